package agentdb

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// Bounds of a file.
const (
	maxImport  = 64 << 20    // bytes, OSA-58
	maxColumns = 1990        // SQLite has 2,000, of which some are the host's
	maxCells   = 100_000_000 // rows by columns: small objects of many keys make very wide rows
)

func tooWide(name string) error {
	return invalid("path", "%s has more than %d columns, which is more than a table can have", name, maxColumns)
}

// records is a file that is being read, a record at a time.
type records interface {
	next() error                  // io.EOF after the last record, *lineError for a fault
	line() int                    // where the current record begins
	kind(i int) kind              // what the current value of column i looks like
	value(i int, to affinity) any // what it is bound as
	columnCount() int             // of the file, as far as they are known
	misfit() string               // why the record has not the shape of the others, "" if it has
}

// source is a file that has been read through once: it has no fault, and its columns and
// their kinds are known.
type source struct {
	name      string // of the file, for messages
	headings  []string
	kinds     []kind
	only      []string // of the headings, those to import; nil means all
	rows      int
	truncated bool // max_rows left some out
	ragged    bool // some rows have not the columns of the first
	warnings  []string
	open      func() (records, error)
}

type csvRecords struct {
	*csvReader
	columns int
	needed  int // of the columns, up to the last with a heading
}

func (r csvRecords) line() int                    { return r.start }
func (r csvRecords) kind(i int) kind              { return sniff(r.cells[i]) }
func (r csvRecords) columnCount() int             { return r.columns }
func (r csvRecords) value(i int, to affinity) any { return cellValue(r.cells[i], to) }

// misfit lets pass what loses nothing: separators at the end of a line, and missing cells
// of columns that have no heading.
func (r csvRecords) misfit() string {
	found := len(r.cells)
	for len(r.cells) > r.columns && r.cells[len(r.cells)-1] == "" {
		r.cells = r.cells[:len(r.cells)-1]
	}

	if len(r.cells) >= r.needed && len(r.cells) <= r.columns {
		for len(r.cells) < r.columns {
			r.cells = append(r.cells, "")
		}
		return ""
	}
	return fmt.Sprintf("it has %d cells, and the first line has %d", found, r.columns)
}

type jsonRecords struct{ *jsonReader }

func (r jsonRecords) line() int        { return r.start }
func (r jsonRecords) columnCount() int { return len(r.keys) }
func (r jsonRecords) misfit() string   { return "" }

// examine reads a file through and learns its columns.
func examine(spec ImportSpec) (*source, error) {
	content, err := spec.read()
	if err != nil {
		return nil, err
	}

	s := &source{name: spec.label()}
	format, err := spec.format(content)
	if err != nil {
		return nil, err
	}
	if format == formatXLSX {
		return s, s.fault(s.examineXLSX(spec, content))
	}
	if what := notText(content); what != "" {
		return nil, invalid("path", "%s is %s", s.name, what)
	}

	isTable := format == formatCSV || format == formatTSV
	content, warning, err := decode(content, isTable)
	if err != nil {
		return nil, s.fault(err)
	}

	if warning != "" {
		s.warnings = append(s.warnings, s.name+": "+warning)
	}

	if isTable {
		err = s.examineCSV(spec, content, format)
	} else {
		err = s.examineJSON(spec, content, format)
	}

	return s, s.fault(err)
}

// read takes the whole file into memory, without the copies of a buffer that grows when
// its size is known.
func (s ImportSpec) read() (string, error) {
	limit := s.Limit
	if limit <= 0 {
		limit = maxImport
	}

	var data strings.Builder
	if s.Size > 0 && s.Size <= limit {
		data.Grow(int(s.Size))
	}

	if _, err := io.Copy(&data, io.LimitReader(s.Source, limit+1)); err != nil {
		return "", fmt.Errorf("cannot read %s: %w", s.label(), err)
	}
	if int64(data.Len()) > limit {
		return "", invalid("path", "%s is larger than %d MiB; split it and import the parts", s.label(), limit>>20)
	}

	return data.String(), nil
}

// notText names the kinds of files that are often taken for a table and are none.
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

// fault makes a fault of the file an *Error that names it.
func (s *source) fault(err error) error {
	var at *lineError
	if errors.As(err, &at) {
		return invalid("path", "%s, %s. Nothing was imported", s.name, at)
	}
	return err
}

func (s *source) examineCSV(spec ImportSpec, content, format string) error {
	separator := byte('\t')
	begin := 1 // the line of the headings
	if format == formatCSV {
		if said, rest := declared(content); said != 0 {
			separator, content, begin = said, rest, 2
		} else {
			separator = comma(content)
		}
	}

	first := newCSV(content, separator)
	first.line = begin
	if err := first.next(); errors.Is(err, io.EOF) {
		return invalid("path", "%s is empty", s.name)
	} else if err != nil {
		return err
	}

	s.headings = append([]string(nil), first.cells...)
	if err := s.nameColumns(spec); err != nil {
		return err
	}

	needed := len(s.headings)
	for needed > 1 && strings.TrimSpace(s.headings[needed-1]) == "" {
		needed--
	}

	s.open = func() (records, error) {
		r := newCSV(content, separator)
		r.line = begin
		if !spec.NoHeader {
			if err := r.next(); err != nil {
				return nil, err
			}
		}

		return csvRecords{r, len(s.headings), needed}, nil
	}

	return s.readThrough(spec.MaxRows)
}

// nameColumns replaces the headings of a table by the names that were given, or by
// numbers when its first line is a row already.
func (s *source) nameColumns(spec ImportSpec) error {
	if len(s.headings) > maxColumns {
		return tooWide(s.name)
	}

	if spec.NoHeader {
		for i := range s.headings {
			s.headings[i] = fmt.Sprintf("column_%d", i+1)
		}
	}

	if len(spec.Columns) > 0 {
		if len(spec.Columns) != len(s.headings) {
			return invalid("columns", "%s has %d columns and %d names were given", s.name, len(s.headings), len(spec.Columns))
		}

		for i, name := range spec.Columns {
			if err := checkColumn(fmt.Sprintf("columns[%d]", i), name); err != nil {
				return err
			}
		}

		s.headings = spec.Columns
	}

	return nil
}

func (s *source) examineJSON(spec ImportSpec, content, format string) error {
	r := newJSON(content)
	if format == formatJSON && !r.array {
		return invalid("path", "%s must hold an array of objects [{…}, …]; for an object on each line say format jsonl", s.name)
	}

	s.open = func() (records, error) {
		r = r.again()
		return jsonRecords{r}, nil
	}
	if err := s.readThrough(spec.MaxRows); err != nil {
		return err
	}
	if s.rows == 0 {
		return invalid("path", "%s holds no objects", s.name)
	}

	s.headings = r.keys[:len(s.kinds)] // without those of a record beyond max_rows
	s.only = spec.Columns
	for _, name := range s.only {
		if !containsFold(s.headings, name) {
			return invalid("columns", "no object of %s has the key %q%s", s.name, name, didYouMean(name, s.headings))
		}
	}

	return nil
}

// readThrough reads every record once and finds what the columns have in common.
func (s *source) readThrough(limit int) error {
	r, err := s.open()
	if err != nil {
		return err
	}

	cells := 0
	for {
		if err := r.next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}

		if limit > 0 && s.rows == limit {
			s.truncated = true
			return nil
		}

		s.rows++
		if cells += r.columnCount(); cells > maxCells {
			return invalid("path", "%s has more than %d million cells; split it and import the parts", s.name, maxCells/1_000_000)
		}
		if r.columnCount() > maxColumns {
			return tooWide(s.name)
		}

		if r.misfit() != "" {
			s.ragged = true
			continue
		}

		s.learn(r)
	}
}

func (s *source) learn(r records) {
	for len(s.kinds) < r.columnCount() {
		s.kinds = append(s.kinds, unseen)
	}
	for i, k := range s.kinds {
		if k != textual {
			s.kinds[i] = k.merge(r.kind(i))
		}
	}
}

// Formats of a file, OSA-58.
const (
	formatCSV   = "csv"
	formatTSV   = "tsv"
	formatJSON  = "json"
	formatJSONL = "jsonl"
	formatXLSX  = "xlsx"
)

// format is what the caller said, else what the name says, else what the content looks like.
func (s ImportSpec) format(content string) (string, error) {
	switch strings.ToLower(s.Format) {
	case "":
	case formatCSV, formatTSV, formatJSON, formatJSONL, formatXLSX:
		return strings.ToLower(s.Format), nil
	case "ndjson":
		return formatJSONL, nil
	default:
		return "", invalid("format", "the format %q is unknown; use csv, tsv, json, jsonl or xlsx", s.Format)
	}

	switch strings.ToLower(filepath.Ext(s.Name)) {
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

	if strings.HasPrefix(content, "PK\x03\x04") {
		return formatXLSX, nil
	}

	content = content[:min(len(content), sniffBytes)]
	if text, _, err := decode(content, true); err == nil {
		content = text
	}

	start := strings.TrimLeft(content, " \t\r\n")
	switch {
	case strings.HasPrefix(start, "[") && strings.HasPrefix(strings.TrimLeft(start[1:], " \t\r\n"), "{"):
		return formatJSON, nil
	case strings.HasPrefix(start, "{"):
		return formatJSONL, nil
	case comma(content) == '\t':
		return formatTSV, nil
	}

	return formatCSV, nil
}
