package tabular

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"rouse/internal/text"
)

// maxCells is the maximum number of rows times columns. Small objects with many keys can make very
// wide rows.
const maxCells = 100_000_000

// Options holds the options for reading a file.
type Options struct {
	Name       string // name of the file, for messages and for the format
	Format     string // csv, tsv, json, jsonl or xlsx; "" detects it from the name, then from the content
	NoHeader   bool   // the first line is a row, not headings
	MaxColumns int
}

// Table is a table in a file that is held in memory.
type Table struct {
	// Headings holds the names of the columns. For csv, tsv and xlsx files they are set by Open,
	// and may be replaced by the same number of names before Scan. For json files they are the keys
	// of all objects, set by Scan.
	Headings []string
	Kinds    []Kind // by column; a column without values is unseen
	Rows     int
	// Truncated reports whether the limit of Scan omitted rows.
	Truncated bool
	Ragged    bool // some rows differ from the columns of the first row
	Warnings  []string

	options Options
	open    func() (Records, error)
	json    *jsonReader // nil unless the columns are keys of objects
}

// Records returns the rows of a file one by one. All results are valid until the next call of Next.
type Records interface {
	Next() error // returns io.EOF after the last row, and a *SyntaxError for an error in the file
	Line() int   // returns the first line of the row
	// Value returns the value of column i, converted for a column of the given affinity. It returns
	// Absent if the row does not have that key.
	Value(i int, to Affinity) any
	Mismatch() string // returns why the row does not match the columns, or ""
	kind(i int) Kind  // returns the kind of the value in column i
	columnCount() int // returns the number of known columns
}

// Open detects the format of a file, decodes it and reads its headings. It returns an *Error or a
// *SyntaxError if the file is not valid.
func Open(content string, o Options) (*Table, error) {
	t := &Table{options: o}
	format, err := inputFormat(o.Format, o.Name, content)
	if err != nil {
		return nil, err
	}
	if format == formatXLSX {
		return t, t.openXLSX(content)
	}
	if what := notText(content); what != "" {
		return nil, invalid("path", "%s is %s", o.Name, what)
	}

	separated := format == formatCSV || format == formatTSV
	// JSON is always UTF-8, so guess the encoding only for the other formats.
	decoded, encoding, err := Decode(content, separated)
	if err != nil {
		return nil, err
	}

	if encoding == Windows1252 {
		t.Warnings = append(t.Warnings, fmt.Sprintf("%s: the file is not UTF-8 (line %d), so it was read as Windows-1252; if letters look wrong, undo the import, save the file as UTF-8 and import it again", o.Name, lineOf(content, badUTF8(content))))
	}
	content = decoded

	if separated {
		return t, t.openCSV(content, format)
	}
	return t, t.openJSON(content, format)
}

// HasKeys reports whether the columns are keys of objects, which have no order in the file.
func (t *Table) HasKeys() bool { return t.json != nil }

// Records returns a reader that starts at the first row.
func (t *Table) Records() (Records, error) { return t.open() }

func (t *Table) openCSV(content, format string) error {
	separator := byte('\t')
	begin := 1 // line of the headings
	if format == formatCSV {
		if said, rest := declaredSeparator(content); said != 0 {
			separator, content, begin = said, rest, 2
		} else {
			separator = guessSeparator(content)
		}
	}

	first := newCSV(content, separator)
	first.line = begin
	if err := first.Next(); errors.Is(err, io.EOF) {
		return invalid("path", "%s is empty", t.options.Name)
	} else if err != nil {
		return err
	}
	if err := t.setHeadings(append([]string(nil), first.cells...)); err != nil {
		return err
	}

	t.open = func() (Records, error) {
		r := newCSV(content, separator)
		r.line = begin
		if !t.options.NoHeader {
			if err := r.Next(); err != nil {
				return nil, err
			}
		}

		// Some programs end lines with separators that have no heading. Cells in such columns may
		// be missing.
		needed := len(t.Headings)
		for needed > 1 && strings.TrimSpace(t.Headings[needed-1]) == "" {
			needed--
		}

		return csvRecords{r, len(t.Headings), needed}, nil
	}

	return nil
}

func (t *Table) openJSON(content, format string) error {
	t.json = newJSON(content)
	if format == formatJSON && !t.json.array {
		return invalid("path", "%s must hold an array of objects [{…}, …]; for an object on each line say format jsonl", t.options.Name)
	}

	t.open = func() (Records, error) {
		t.json = t.json.again()
		return t.json, nil
	}

	return nil
}

// openXLSX opens the first visible sheet. Its first row that is not empty has the headings.
func (t *Table) openXLSX(content string) error {
	w, err := openWorkbook(content)
	if err != nil {
		return err
	}

	first, err := w.rows(0)
	if err != nil {
		return err
	}
	defer first.part.Close()

	if err := first.Next(); errors.Is(err, io.EOF) {
		return invalid("path", "the sheet %s of %s is empty", w.name, t.options.Name)
	} else if err != nil {
		return err
	}

	headings := make([]string, len(first.row))
	for i := range first.row {
		headings[i], _ = scalarValue(first.cell(i), AffinityText).(string)
	}
	if err := t.setHeadings(headings); err != nil {
		return err
	}

	if len(w.others) > 0 {
		t.Warnings = append(t.Warnings, fmt.Sprintf("%s: the sheet %s was read; there are also %s, which were not", t.options.Name, w.name, text.List(w.others, 10)))
	}

	t.open = func() (Records, error) {
		r, err := w.rows(len(t.Headings))
		if err != nil || t.options.NoHeader {
			return r, err
		}
		return r, r.Next()
	}

	return nil
}

// setHeadings uses the first record as headings. With NoHeader, it numbers the columns.
func (t *Table) setHeadings(first []string) error {
	if len(first) > t.options.MaxColumns {
		return t.tooWide()
	}

	if t.options.NoHeader {
		for i := range first {
			first[i] = fmt.Sprintf("column_%d", i+1)
		}
	}

	t.Headings = first
	return nil
}

func (t *Table) tooWide() error {
	return invalid("path", "%s has more than %d columns, which is more than a table can have", t.options.Name, t.options.MaxColumns)
}

// Scan reads all rows, or up to limit rows if limit is not 0. It sets the kinds of the columns.
func (t *Table) Scan(limit int) error {
	if err := t.scan(limit); err != nil {
		return err
	}
	if t.json == nil {
		return nil
	}
	if t.Rows == 0 {
		return invalid("path", "%s holds no objects", t.options.Name)
	}

	t.Headings = t.json.keys[:len(t.Kinds)] // without keys of a record beyond the limit
	return nil
}

func (t *Table) scan(limit int) error {
	r, err := t.open()
	if err != nil {
		return err
	}

	cells := 0
	for {
		if err := r.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}

		if limit > 0 && t.Rows == limit {
			t.Truncated = true
			return nil
		}

		t.Rows++
		if cells += r.columnCount(); cells > maxCells {
			return invalid("path", "%s has more than %d million cells; split it and import the parts", t.options.Name, maxCells/1_000_000)
		}
		if r.columnCount() > t.options.MaxColumns {
			return t.tooWide()
		}

		// A skipped row must not widen the type of a column.
		if r.Mismatch() != "" {
			t.Ragged = true
			continue
		}

		t.learn(r)
	}
}

func (t *Table) learn(r Records) {
	for len(t.Kinds) < r.columnCount() {
		t.Kinds = append(t.Kinds, unseen)
	}

	// Text holds every value, so a text column needs no further check.
	for i, k := range t.Kinds {
		if k != textual {
			t.Kinds[i] = k.merge(r.kind(i))
		}
	}
}
