package tabular

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"rouse/internal/text"
)

// maxCells bounds rows by columns: small objects of many keys make very wide rows.
const maxCells = 100_000_000

// Options say how to read a file.
type Options struct {
	Name       string // of the file, for messages and for its extension, which can say the format
	Format     string // csv, tsv, json, jsonl or xlsx; "" looks at the name, then at the content
	NoHeader   bool   // the first line of a table is a row already
	MaxColumns int
}

// Table is a table in a file, whose content is in memory.
type Table struct {
	// Headings are the names of the columns. Of csv, tsv and xlsx files they are known at once,
	// and may be replaced by as many others before Scan; of json files they are the keys of all
	// objects, known after Scan.
	Headings []string
	Kinds    []Kind // of the columns, as far as there are values in them
	Rows     int
	// Truncated says that rows were left out by the limit of Scan.
	Truncated bool
	Ragged    bool // some rows have not the columns of the first
	Warnings  []string

	options Options
	open    func() (Records, error)
	json    *jsonReader // nil unless the columns are keys
}

// Records gives the rows of a file one after the other. What is said of a row, and its values,
// hold until the next.
type Records interface {
	Next() error                  // io.EOF after the last row, *SyntaxError for a fault
	Line() int                    // where the row begins
	Value(i int, to Affinity) any // of column i, as it is stored in a column of that affinity; Absent where the row has no such key
	Mismatch() string             // why the row has not the shape of the others, "" if it has
	kind(i int) Kind              // what the value of column i looks like
	columnCount() int             // of the file, as far as they are known
}

// Open decides what a file is, decodes it and reads its headings. What is wrong with the file is
// an *Error or a *SyntaxError.
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
	// JSON is UTF-8 by its definition, so another encoding is only guessed for the others.
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

// HasKeys says that the columns are the keys of objects, and have no order in the file.
func (t *Table) HasKeys() bool { return t.json != nil }

// Records begins to read the rows.
func (t *Table) Records() (Records, error) { return t.open() }

func (t *Table) openCSV(content, format string) error {
	separator := byte('\t')
	begin := 1 // the line of the headings
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

		// Programs end lines with separators that have no heading; cells there may be missing.
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

// openXLSX reads the first visible sheet: its first row that is not empty has the headings.
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

// setHeadings takes the first record of a file, or numbers where that is a row already.
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

// Scan reads every row once, up to a limit unless that is 0, and finds what the columns have in
// common.
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

	t.Headings = t.json.keys[:len(t.Kinds)] // without those of a record beyond the limit
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

		// A row that will be left out must not widen the type of a column.
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

	// Text holds everything, so a column that is text already needs no further look.
	for i, k := range t.Kinds {
		if k != textual {
			t.Kinds[i] = k.merge(r.kind(i))
		}
	}
}
