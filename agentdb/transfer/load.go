// Package transfer imports the rows of a file into a table, inside a transaction of the caller.
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

// ImportSpec describes an import of a file.
type ImportSpec struct {
	Table  string // default: derived from the file name
	Source io.Reader
	// Size is the size of the file in bytes, if known. It only saves memory.
	Size  int64
	Limit int64  // maximum file size in bytes; 0 means 64 MiB
	Name  string // file name, for messages and to detect the format
	// Format is csv, tsv, json, jsonl or xlsx. If empty, the name decides, then the content.
	Format     string
	Mode       string   // insert (the default) or upsert
	KeyColumns []string // for upsert: a row with the same values is updated
	NoCreate   bool     // do not create a missing table
	NoHeader   bool     // the first line of a csv or tsv file is a row
	// Columns names the columns of a csv or tsv file in order, instead of its header. For JSON
	// files, it selects the keys to import.
	Columns []string
	MaxRows int // maximum number of rows to read; 0 means all
	// Progress receives the number of rows done and the total, about every ten thousand rows.
	// Optional.
	Progress func(done, of int64)
}

// Imported is the result of Import.
type Imported struct {
	Table          string   `json:"table"`
	RowsImported   int64    `json:"rows_imported"`
	RowsSkipped    int64    `json:"rows_skipped"`            // rows that do not fit, and existing rows of an upsert with only key columns
	RowsRejected   int64    `json:"rows_rejected,omitempty"` // rows that do not fit, included in rows_skipped
	CreatedTable   bool     `json:"created_table"`
	Columns        []string `json:"columns"`
	Truncated      bool     `json:"truncated"` // the file has more than max_rows rows
	DroppedColumns []string `json:"dropped_columns,omitempty"`
	SampleErrors   []string `json:"sample_errors,omitempty"` // reasons for the first five rejected rows
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

// ImportRows writes the rows of a file inside a write. It may be called again if the write is
// repeated. quota is the limit of the database in bytes; zero means no limit.
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
			// The limited capacity makes append copy the slice, which belongs to the source. The
			// write may run again.
			out.Warnings = append(out.Warnings[:len(out.Warnings):len(out.Warnings)], fmt.Sprintf("column %s: %d values are shorter as numbers than they were written, such as %s; if they are codes or telephone numbers, undo the import and make the column TEXT", m.columns[i], a.n, quoteCell(a.first)))
		}
	}

	if n := rejected.Rejected; n > 0 {
		out.RowsRejected, out.SampleErrors = int64(n), rejected.Samples()
		out.Warnings = append(out.Warnings[:len(out.Warnings):len(out.Warnings)], fmt.Sprintf("%d of %d rows of %s were left out because they do not fit; sample_errors says why, of the first", n, s.Rows, s.name))
	}

	return out, nil
}

// checkChunks is the number of chunks between two checks of the quota and progress reports.
const checkChunks = 16

// checkRoom returns an error if an import has grown the file to more than twice its quota. The
// quota is otherwise checked only before a write, and a small file can hold very many rows.
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

// load writes all records of a file that fit. It calls progress from time to time with the number
// of written records.
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

	values := make([]any, len(m.columns)) // copied by the chunker
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

// fill sets values from the current record, in the order of the mapping. It returns the reason if
// the record does not fit, and "" otherwise.
func (m *mapping) fill(values []any, r tabular.Records) (why string) {
	empty := true
	for i, at := range m.fileColumns {
		v := r.Value(at, m.affinity[i])
		if _, missing := v.(tabular.Absent); missing || v == nil {
			switch {
			// An upsert without a key would insert a row instead of updating the intended one.
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
