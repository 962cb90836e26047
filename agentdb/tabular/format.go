package tabular

import (
	"path/filepath"
	"strings"
)

// File formats.
const (
	formatCSV   = "csv"
	formatTSV   = "tsv"
	formatJSON  = "json"
	formatJSONL = "jsonl"
	formatXLSX  = "xlsx"
)

// inputFormat returns the requested format. If said is "", it uses the extension of the name, and
// then the content.
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

// detectFormat guesses the format from the beginning of a file. The default is CSV.
func detectFormat(content string) string {
	if strings.HasPrefix(content, "PK\x03\x04") {
		return formatXLSX
	}

	// Decode UTF-16 first, so that braces and tabs can be found. If the content cannot be decoded,
	// Open later returns the error with its place.
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

// OutputFormat returns the format for a file to be written: the requested format, that of the
// extension, or csv.
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

// notText describes binary files that are often mistaken for a text table. It returns "" for other
// files.
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
