package transfer

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"rouse/agentdb/bulk"
	"rouse/agentdb/dberr"
	"rouse/agentdb/schema"
	"rouse/agentdb/sqltext"
	"rouse/agentdb/tabular"
)

// Limits of a file.
const (
	maxImport = 64 << 20 // bytes
)

// Source is a file that has been checked completely: it has no syntax errors, and its columns and
// their kinds are known.
type Source struct {
	*tabular.Table
	name string   // file name for messages
	only []string // headings to import; nil means all
}

// Examine reads and checks a whole file and determines its columns.
func Examine(spec ImportSpec) (*Source, error) {
	content, err := spec.read()
	if err != nil {
		return nil, err
	}

	s := &Source{name: spec.label()}
	if s.Table, err = tabular.Open(content, tabular.Options{Name: s.name, Format: spec.Format, NoHeader: spec.NoHeader, MaxColumns: schema.MaxColumns}); err != nil {
		return nil, s.fileError(err)
	}

	// The columns of a table can be named before it is read; the keys of objects are known only
	// later.
	if !s.HasKeys() {
		if err := s.nameColumns(spec); err != nil {
			return nil, err
		}
	}
	if err := s.Scan(spec.MaxRows); err != nil {
		return nil, s.fileError(err)
	}
	if s.HasKeys() {
		return s, s.pickKeys(spec)
	}

	return s, nil
}

// read reads the whole file into memory. If Size is known, it allocates the memory at once.
func (s ImportSpec) read() (string, error) {
	limit := s.Limit
	if limit <= 0 {
		limit = maxImport
	}

	var data strings.Builder
	if s.Size > 0 && s.Size <= limit {
		data.Grow(int(s.Size))
	}

	// Read one byte more than the limit to detect a larger file.
	if _, err := io.Copy(&data, io.LimitReader(s.Source, limit+1)); err != nil {
		return "", fmt.Errorf("cannot read %s: %w", s.label(), err)
	}
	if int64(data.Len()) > limit {
		return "", dberr.Invalid("path", "%s is larger than %d MiB; split it and import the parts", s.label(), limit>>20)
	}

	return data.String(), nil
}

// fileError converts an error in the content of a file to an *Error with the file name.
func (s *Source) fileError(err error) error {
	var at *tabular.SyntaxError
	if errors.As(err, &at) {
		return dberr.Invalid("path", "%s, %s. Nothing was imported", s.name, at)
	}
	return FileError(err)
}

// FileError converts an error in the content or format of a file to an *Error.
func FileError(err error) error {
	var bad *tabular.Error
	if errors.As(err, &bad) {
		return dberr.Invalid(bad.Field, "%s", bad.Message)
	}
	return err
}

// nameColumns replaces the headings of a table by the given names.
func (s *Source) nameColumns(spec ImportSpec) error {
	if len(spec.Columns) == 0 {
		return nil
	}
	if len(spec.Columns) != len(s.Headings) {
		return dberr.Invalid("columns", "%s has %d columns and %d names were given", s.name, len(s.Headings), len(spec.Columns))
	}

	for i, name := range spec.Columns {
		if err := sqltext.CheckColumn(fmt.Sprintf("columns[%d]", i), name); err != nil {
			return err
		}
	}

	s.Headings = spec.Columns
	return nil
}

// pickKeys selects the keys of objects to import.
func (s *Source) pickKeys(spec ImportSpec) error {
	s.only = spec.Columns
	for _, name := range s.only {
		if !sqltext.ContainsFold(s.Headings, name) {
			return dberr.Invalid("columns", "no object of %s has the key %q%s", s.name, name, sqltext.DidYouMean(name, s.Headings))
		}
	}
	return nil
}

// rejectError returns the message for ErrTooManyRejects, and every other error unchanged.
func (s *Source) rejectError(rejected *bulk.Rejects, err error) error {
	if !errors.Is(err, bulk.ErrTooManyRejects) {
		return err
	}

	advice := "Correct the file and import it again"
	// Rows of different widths are usually a title or notes above the table.
	if s.Ragged {
		advice = "If the table begins further down, remove the lines above its headings; otherwise correct the file"
	}
	return dberr.Invalid("path", "%s: more than half of its %d rows do not fit, so nothing was imported: %s. %s", s.name, s.Rows, strings.Join(rejected.Samples(), "; "), advice)
}
