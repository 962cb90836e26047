package tabular

import (
	"path/filepath"
	"strings"
)

// The formats.
const (
	formatCSV   = "csv"
	formatTSV   = "tsv"
	formatJSON  = "json"
	formatJSONL = "jsonl"
	formatXLSX  = "xlsx"
)

// inputFormat is what the caller said, else what the name says, else what the content looks like.
func inputFormat(said, name, content string) (string, error) {
	switch strings.ToLower(said) {
	case "":
	case formatCSV, formatTSV, formatJSON, formatJSONL, formatXLSX:
		return strings.ToLower(said), nil
	case "ndjson":
		return formatJSONL, nil
	default:
		return "", invalid("format", "the format %q is unknown; use csv, tsv, json, jsonl or xlsx", said)
	}

	switch strings.ToLower(filepath.Ext(name)) {
	case ".csv":
		return formatCSV, nil
	case ".tsv", ".tab":
		return formatTSV, nil
	case ".json":
		return formatJSON, nil
	case ".jsonl", ".ndjson":
		return formatJSONL, nil
	case ".xlsx", ".xlsm":
		return formatXLSX, nil
	}

	return detectFormat(content), nil
}

// detectFormat guesses from the beginning of a file; CSV is what is left.
func detectFormat(content string) string {
	if strings.HasPrefix(content, "PK\x03\x04") {
		return formatXLSX
	}

	// A file in UTF-16 shows its braces and tabs only once it is decoded. One that cannot be
	// decoded gets its error later, with the place.
	content = content[:min(len(content), sniffBytes)]
	if text, _, err := Decode(content, true); err == nil {
		content = text
	}

	start := strings.TrimLeft(content, " \t\r\n")
	switch {
	case strings.HasPrefix(start, "[") && strings.HasPrefix(strings.TrimLeft(start[1:], " \t\r\n"), "{"):
		return formatJSON
	case strings.HasPrefix(start, "{"):
		return formatJSONL
	case guessSeparator(content) == '\t':
		return formatTSV
	}

	return formatCSV
}

// OutputFormat is the format in which a file is to be written: the one that was said, else the
// one of the name's extension, else csv.
func OutputFormat(said, name string) (string, error) {
	format := strings.ToLower(said)
	if format == "" {
		format = strings.ToLower(strings.TrimPrefix(filepath.Ext(name), "."))
		if format == "tab" {
			format = formatTSV
		}
	}

	switch format {
	case formatCSV, formatTSV, formatJSON, formatJSONL, formatXLSX:
		return format, nil
	case "ndjson":
		return formatJSONL, nil
	case "", "txt":
		if said == "" {
			return formatCSV, nil
		}
	}

	if said == "" {
		return "", invalid("format", "the name of %s does not say a format that can be written; say format csv, tsv, json, jsonl or xlsx", filepath.Base(name))
	}

	return "", invalid("format", "the format %q is unknown; use csv, tsv, json, jsonl or xlsx", said)
}

// notText names the kinds of files that are often mistaken for a table of text.
func notText(content string) string {
	for begin, what := range map[string]string{
		"\xd0\xcf\x11\xe0": "a spreadsheet of the old kind (.xls); save it as .xlsx or .csv and import that",
		"PK\x03\x04":       "a zip archive or a spreadsheet, not a text; a spreadsheet is imported with format xlsx",
		"\x1f\x8b":         "compressed (gzip); unpack it and import what is inside",
		"%PDF-":            "a PDF, which has no rows; export its table as .csv or .xlsx",
	} {
		if strings.HasPrefix(content, begin) {
			return what
		}
	}
	return ""
}
