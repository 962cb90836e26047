// Package transfer imports the rows of a file into a table. It works inside a transaction of the
// caller.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"rouse/agentdb/bulk"
	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/sqltext"
	"rouse/agentdb/sqlvalue"
	"rouse/agentdb/tabular"
	"rouse/internal/storage/sqlite"
	"rouse/internal/text"
)

// ImportSpec asks for the rows of a file, OSA-58.
type ImportSpec struct {
	Table      string // "" names it after the file
	Source     io.Reader
	Size       int64    // of the file in bytes, where it is known: a larger one is read without copies
	Limit      int64    // bytes of a file; 0 means 64 MiB
	Name       string   // of the file: its extension can say the format, and messages name it
	Format     string   // csv, tsv, json, jsonl or xlsx; "" looks at the name, then at the content
	Mode       string   // insert (the default) or upsert
	KeyColumns []string // upsert: a row with the same values there is updated
	NoCreate   bool     // refuse to make the table when it does not exist
	NoHeader   bool     // the first line of a csv or tsv file is a row already
	// Columns names the columns of a csv or tsv file in their order, instead of its header.
	// Of json files it picks the keys to import.
	Columns []string
	MaxRows int // stop after so many; 0 reads all
	// Progress, when set, hears every some ten thousand rows how many of the file's are done.
	Progress func(done, of int64)
}

// Imported is the result of Import.
type Imported struct {
	Table          string   `json:"table"`
	RowsImported   int64    `json:"rows_imported"`
	RowsSkipped    int64    `json:"rows_skipped"`            // do not fit, or an upsert of nothing but keys that are there already
	RowsRejected   int64    `json:"rows_rejected,omitempty"` // of RowsSkipped, those that do not fit
	CreatedTable   bool     `json:"created_table"`
	Columns        []string `json:"columns"`
	Truncated      bool     `json:"truncated"` // max_rows left rows out
	DroppedColumns []string `json:"dropped_columns,omitempty"`
	SampleErrors   []string `json:"sample_errors,omitempty"` // why rows do not fit, of the first five
	Warnings       []string `json:"warnings,omitempty"`
}

const modeUpsert = "upsert"

func (s ImportSpec) label() string {
	if s.Name == "" {
		return "the file"
	}
	return filepath.Base(s.Name)
}

// Checked returns the specification with its defaults, or an error if it is invalid.
func (s ImportSpec) Checked() (ImportSpec, error) {
	if s.Table == "" {
		base := filepath.Base(s.Name)
		s.Table = strings.TrimLeft(sqltext.ToColumn(strings.TrimSuffix(base, filepath.Ext(base))), "_")
	}
	if err := sqltext.CheckTable("table", s.Table); err != nil {
		return s, err
	}

	switch {
	case s.Mode == "" || s.Mode == "insert":
		if len(s.KeyColumns) > 0 {
			return s, dberr.Invalid("key_columns", "key_columns belong to mode upsert; say mode upsert, or leave them out")
		}
	case s.Mode != modeUpsert:
		return s, dberr.Invalid("mode", "the mode %q is unknown; use insert or upsert", s.Mode)
	case len(s.KeyColumns) == 0:
		return s, dberr.Invalid("key_columns", "mode upsert needs key_columns: the columns that tell rows apart")
	}

	if s.MaxRows < 0 {
		return s, dberr.Invalid("max_rows", "max_rows must not be negative")
	}

	for i, name := range s.Columns {
		if sqltext.ContainsFold(s.Columns[:i], name) {
			return s, dberr.Invalid(fmt.Sprintf("columns[%d]", i), "the column %s is named twice", name)
		}
	}

	return s, nil
}

// ImportRows writes the rows of a file inside a write, perhaps more than once. quota is the limit of
// the database in bytes; 0 means none.
func ImportRows(ctx context.Context, tx *sqlite.Tx, by changelog.By, spec ImportSpec, s *Source, quota int64) (Imported, error) {
	m, created, err := s.mapTable(ctx, tx, by, spec)
	if err != nil {
		return Imported{}, err
	}

	out := Imported{Table: m.table.Name, CreatedTable: created, Columns: m.columns, Truncated: s.Truncated, DroppedColumns: m.dropped, Warnings: s.Warnings}
	if len(m.dropped) > 0 {
		out.Warnings = append(out.Warnings[:len(s.Warnings):len(s.Warnings)], fmt.Sprintf("the table %s has no place for these columns of %s, they were left out: %s", m.table.Name, s.name, strings.Join(m.dropped, ", ")))
	}

	rejected := &bulk.Rejects{Total: s.Rows}
	l := &bulk.Loader{Tx: tx, By: by, Op: changelog.OpImport, Table: m.table, Keys: m.keys, Rejected: rejected}
	out.RowsImported, err = load(ctx, l, s, m, func(done int64) error {
		if spec.Progress != nil {
			spec.Progress(done, int64(s.Rows))
		}
		return checkRoom(tx, quota)
	})
	if err = errors.Join(err, l.Close()); err != nil {
		return Imported{}, s.rejectError(rejected, err)
	}

	out.RowsSkipped = int64(s.Rows) - out.RowsImported
	for i, a := range m.lossy {
		if a.n > 0 {
			// The capacity is cut, because the slice belongs to the source and the write may run
			// again.
			out.Warnings = append(out.Warnings[:len(out.Warnings):len(out.Warnings)], fmt.Sprintf("column %s: %d values are shorter as numbers than they were written, such as %s; if they are codes or telephone numbers, undo the import and make the column TEXT", m.columns[i], a.n, quoteCell(a.first)))
		}
	}

	if n := rejected.Rejected; n > 0 {
		out.RowsRejected, out.SampleErrors = int64(n), rejected.Samples()
		out.Warnings = append(out.Warnings[:len(out.Warnings):len(out.Warnings)], fmt.Sprintf("%d of %d rows of %s were left out because they do not fit; sample_errors says why, of the first", n, s.Rows, s.name))
	}

	return out, nil
}

// checkChunks is after how many chunks an import checks the quota and reports its progress.
const checkChunks = 16

// checkRoom ends an import that takes the file to twice its quota: what a write may do is
// decided before it (OSA-62), but a small file can hold very many rows.
func checkRoom(tx *sqlite.Tx, limit int64) error {
	if limit <= 0 {
		return nil
	}

	var size int64
	if err := tx.QueryRow("select page_count * page_size from pragma_page_count, pragma_page_size").Scan(&size); err != nil || size <= 2*limit {
		return err
	}

	return &dberr.Error{Kind: dberr.KindRejected, Message: fmt.Sprintf(
		"the rows would take the database to more than twice its quota of %s, so nothing was imported. Import a part with max_rows, or the owner raises database.quota of this agent", text.Size(limit))}
}

// load writes all records of a file that fit. It calls progress now and then with the number of
// records done.
func load(ctx context.Context, l *bulk.Loader, s *Source, m *mapping, progress func(done int64) error) (written int64, err error) {
	r, err := s.Records()
	if err != nil {
		return 0, s.fileError(err)
	}

	done, chunks := int64(0), 0
	b := &bulk.Chunker{Columns: m.columns, At: sqlvalue.Now(), Emit: func(c *bulk.Chunk) error {
		done += int64(len(c.Rows))
		changed, err := l.Write(ctx, c)
		written += changed
		if chunks++; err == nil && chunks%checkChunks == 0 {
			err = progress(done)
		}
		return err
	}}

	values := make([]any, len(m.columns)) // the chunker copies them
	for range s.Rows {
		if err := r.Next(); err != nil {
			return 0, s.fileError(err)
		}

		why := r.Mismatch()
		if why == "" {
			why = m.fill(values, r)
		}
		if why != "" {
			err = l.Rejected.Add(r.Line(), why)
		} else {
			err = b.Add(r.Line(), values)
		}
		if err != nil {
			return 0, err
		}
	}

	err = b.Flush()
	return written, err
}

// fill takes the values of the current record into the order of the mapping, or says why
// the record does not fit.
func (m *mapping) fill(values []any, r tabular.Records) (why string) {
	empty := true
	for i, at := range m.fileColumns {
		v := r.Value(at, m.affinity[i])
		if _, missing := v.(tabular.Absent); missing || v == nil {
			switch {
			// An upsert without a key would insert the row instead of updating the one that was
			// meant.
			case m.isKey[i]:
				return fmt.Sprintf("the key %s has no value", m.columns[i])
			case m.isRowID[i], missing && m.hasDefault[i]:
				values[i] = tabular.Absent{} // the next id, or the default
			default:
				values[i], empty = nil, false
			}
			continue
		}

		if text, ok := v.(string); ok && m.isNumber[i] {
			if !tabular.ReadsAsNumber(text) {
				return fmt.Sprintf("column %s: %s is not a number%s", m.columns[i], quoteCell(text), decimalComma(text))
			}
			m.lossy[i].add(text)
		}

		values[i], empty = v, false
	}
	if empty {
		return "it has no value at all"
	}

	return ""
}
