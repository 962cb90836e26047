package agentdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"rouse/agentdb/sqlite"
)

// ImportSpec asks for the rows of a file, OSA-58.
type ImportSpec struct {
	Table      string // "" names it after the file
	Source     io.Reader
	Name       string   // of the file: its extension can say the format, and messages name it
	Format     string   // csv, tsv, json or jsonl; "" looks at the name, then at the content
	Mode       string   // insert (the default) or upsert
	KeyColumns []string // upsert: a row with the same values there is updated
	NoCreate   bool     // refuse to make the table when it does not exist
	NoHeader   bool     // the first line of a csv or tsv file is a row already
	// Columns names the columns of a csv or tsv file in their order, instead of its header.
	// Of json files it picks the keys to import.
	Columns []string
	MaxRows int // stop after so many; 0 reads all
}

// Imported is the result of Import.
type Imported struct {
	Table          string   `json:"table"`
	RowsImported   int64    `json:"rows_imported"`
	RowsSkipped    int64    `json:"rows_skipped"` // upsert of nothing but keys that are there already
	CreatedTable   bool     `json:"created_table"`
	Columns        []string `json:"columns"`
	Truncated      bool     `json:"truncated"` // max_rows left rows out
	DroppedColumns []string `json:"dropped_columns,omitempty"`
	Warnings       []string `json:"warnings,omitempty"`
}

const modeUpsert = "upsert"

// Import writes the rows of a file, all or none. A file with rows that do not fit is
// refused as a whole, and the message names the first of them.
func (db *DB) Import(ctx context.Context, by By, spec ImportSpec) (Imported, error) {
	// A call that was made already must not read its file again, which may be gone.
	if stored, err := db.recall(ctx, by, opImport); stored != nil || err != nil {
		return decodeResult[Imported](stored, err)
	}
	spec, err := spec.checked()
	if err != nil {
		return Imported{}, err
	}
	s, err := examine(spec)
	if err != nil {
		return Imported{}, err
	}
	imported, err := write(ctx, db, by, opImport, func(ctx context.Context, tx *sqlite.Tx) (Imported, error) {
		return importRows(ctx, tx, by, spec, s)
	})
	if err == nil {
		imported.Warnings = db.committed(ctx, imported.Warnings)
	}
	db.checkpoint(ctx)
	return imported, err
}

func (s ImportSpec) label() string {
	if s.Name == "" {
		return "the file"
	}
	return filepath.Base(s.Name)
}

func (s ImportSpec) checked() (ImportSpec, error) {
	if s.Table == "" {
		base := filepath.Base(s.Name)
		s.Table = strings.TrimLeft(toColumn(strings.TrimSuffix(base, filepath.Ext(base))), "_")
	}
	if err := checkTable("table", s.Table); err != nil {
		return s, err
	}
	switch {
	case s.Mode == "" || s.Mode == "insert":
		if len(s.KeyColumns) > 0 {
			return s, invalid("key_columns", "key_columns belong to mode upsert; say mode upsert, or leave them out")
		}
	case s.Mode != modeUpsert:
		return s, invalid("mode", "the mode %q is unknown; use insert or upsert", s.Mode)
	case len(s.KeyColumns) == 0:
		return s, invalid("key_columns", "mode upsert needs key_columns: the columns that tell rows apart")
	}
	if s.MaxRows < 0 {
		return s, invalid("max_rows", "max_rows must not be negative")
	}
	for i, name := range s.Columns {
		if containsFold(s.Columns[:i], name) {
			return s, invalid(fmt.Sprintf("columns[%d]", i), "the column %s is named twice", name)
		}
	}
	return s, nil
}

// importRows runs inside a write, perhaps more than once.
func importRows(ctx context.Context, tx *sqlite.Tx, by By, spec ImportSpec, s *source) (Imported, error) {
	if err := deferCheckpoint(tx); err != nil {
		return Imported{}, err
	}
	m, created, err := s.target(ctx, tx, by, spec)
	if err != nil {
		return Imported{}, err
	}
	out := Imported{Table: m.table.Name, CreatedTable: created, Columns: m.columns, Truncated: s.truncated, DroppedColumns: m.dropped}
	if len(m.dropped) > 0 {
		out.Warnings = []string{fmt.Sprintf("the table %s has no place for these columns of %s, they were left out: %s", m.table.Name, s.name, strings.Join(m.dropped, ", "))}
	}
	l := &loader{tx: tx, by: by, op: opImport, table: m.table, keys: m.keys, unit: s.name + ", line"}
	out.RowsImported, err = l.load(ctx, s, m)
	out.RowsSkipped = int64(s.rows) - out.RowsImported
	return out, errors.Join(err, l.close())
}

// load writes all records. They are read and turned into chunks beside the writing.
func (l *loader) load(ctx context.Context, s *source, m *mapping) (written int64, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	chunks := make(chan *chunk, 2)
	read := make(chan error, 1)
	go func() {
		defer close(chunks)
		read <- s.chunks(ctx, m, chunks)
	}()
	defer func() {
		stop(err)
		for range chunks { // the reader ends before the transaction does
		}
		if e := <-read; err == nil {
			err = s.fault(e)
		}
	}()
	for c := range chunks {
		changed, _, err := l.write(ctx, c)
		if err != nil {
			return 0, err
		}
		written += changed
	}
	return written, nil
}

// chunks reads the file again, which is known to have no fault, and sends its rows.
func (s *source) chunks(ctx context.Context, m *mapping, to chan<- *chunk) error {
	r, err := s.open()
	if err != nil {
		return err
	}
	b := &chunker{columns: m.columns, size: chunkRows, at: now(), emit: func(c *chunk) error {
		select {
		case to <- c:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
	values := make([]any, len(m.columns))
	for range s.rows {
		if err := r.next(); err != nil {
			return err
		}
		if err := m.fill(values, r); err != nil {
			return err
		}
		if err := b.add(r.line(), values); err != nil {
			return err
		}
	}
	return b.flush()
}

// fill takes the values of the current record into the order of the mapping.
func (m *mapping) fill(values []any, r records) error {
	for i, at := range m.from {
		v := r.value(at, m.affinity[i])
		if _, missing := v.(absent); missing || v == nil {
			switch {
			case m.isKey[i]:
				return &lineError{r.line(), fmt.Sprintf("the key %s has no value", m.columns[i])}
			case m.isRowID[i], missing && m.hasDefault[i]:
				v = absent{} // the next id, or the default
			default:
				v = nil
			}
		}
		values[i] = v
	}
	return nil
}
