package agentdb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

const (
	maxImport  = 64 << 20 // bytes of a file, OSA-58
	sampleRows = 3        // bad rows that a message names
)

// records is a file that is being read, a record at a time.
type records interface {
	next() error                  // io.EOF after the last record, *lineError for a fault
	line() int                    // where the current record begins
	kind(i int) kind              // what the current value of column i looks like
	value(i int, to affinity) any // what it is bound as
	width() (found, of int)       // columns of the record and of the file
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
	open      func() (records, error)
}

type csvRecords struct {
	*csvReader
	columns int
}

func (r csvRecords) line() int                    { return r.start }
func (r csvRecords) kind(i int) kind              { return sniff(r.cells[i]) }
func (r csvRecords) value(i int, to affinity) any { return cellValue(r.cells[i], to) }
func (r csvRecords) width() (found, of int)       { return len(r.cells), r.columns }

type jsonRecords struct{ *jsonReader }

func (r jsonRecords) line() int              { return r.start }
func (r jsonRecords) width() (found, of int) { return len(r.keys), len(r.keys) }

// examine reads a file through and learns its columns.
func examine(spec ImportSpec) (*source, error) {
	var data bytes.Buffer // it doubles, where io.ReadAll copies a large file five times
	if _, err := data.ReadFrom(io.LimitReader(spec.Source, maxImport+1)); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", spec.label(), err)
	}
	if data.Len() > maxImport {
		return nil, invalid("path", "%s is larger than 64 MiB; split it and import the parts", spec.label())
	}
	s := &source{name: spec.label()}
	content, err := decode(data.Bytes())
	if err != nil {
		return nil, s.fault(err)
	}
	format, err := spec.format(content)
	if err != nil {
		return nil, err
	}
	if format == formatCSV || format == formatTSV {
		err = s.examineCSV(spec, content, format)
	} else {
		err = s.examineJSON(spec, content, format)
	}
	return s, s.fault(err)
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
	if format == formatCSV {
		separator = comma(content)
	}
	first := newCSV(content, separator)
	if err := first.next(); errors.Is(err, io.EOF) {
		return invalid("path", "%s is empty", s.name)
	} else if err != nil {
		return err
	}
	s.headings = append([]string(nil), first.cells...)
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
	s.open = func() (records, error) {
		r := newCSV(content, separator)
		if !spec.NoHeader {
			if err := r.next(); err != nil {
				return nil, err
			}
		}
		return csvRecords{r, len(s.headings)}, nil
	}
	return s.readThrough(spec.MaxRows)
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

// readThrough checks every record and finds what the columns have in common.
func (s *source) readThrough(limit int) error {
	r, err := s.open()
	if err != nil {
		return err
	}
	var bad []string
	faults := 0
	for {
		if err := r.next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if limit > 0 && s.rows == limit {
			s.truncated = true
			break
		}
		s.rows++
		found, of := r.width()
		if found != of {
			if faults++; faults <= sampleRows {
				bad = append(bad, fmt.Sprintf("line %d has %d", r.line(), found))
			}
			continue
		}
		s.learn(r, of)
	}
	if faults > 0 {
		return invalid("path", "%s: %d of %d rows do not have the %d columns of its first line: %s. Nothing was imported; correct the file and import it again",
			s.name, faults, s.rows, len(s.headings), strings.Join(bad, ", "))
	}
	return nil
}

func (s *source) learn(r records, columns int) {
	for len(s.kinds) < columns {
		s.kinds = append(s.kinds, unseen)
	}
	for i, k := range s.kinds {
		if k != text {
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
)

// format is what the caller said, else what the name says, else what the content looks like.
func (s ImportSpec) format(content string) (string, error) {
	switch strings.ToLower(s.Format) {
	case "":
	case formatCSV, formatTSV, formatJSON, formatJSONL:
		return strings.ToLower(s.Format), nil
	case "ndjson":
		return formatJSONL, nil
	default:
		return "", invalid("format", "the format %q is unknown; use csv, tsv, json or jsonl", s.Format)
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
