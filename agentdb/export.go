package agentdb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"rouse/agentdb/dberr"
	"rouse/agentdb/sqlvalue"
	"rouse/agentdb/tabular"
	"rouse/agentdb/transfer"
)

// Limits of an export.
const (
	maxExportRows  = 1_000_000
	maxExportBytes = 256 << 20 // about the size limit of an import
	exportTimeouts = 6         // multiple of the query timeout
)

// ExportSpec describes an export of a query result to a file.
type ExportSpec struct {
	SQL    string         // one SELECT
	Params []any          // for ?
	Named  map[string]any // for :name, @name and $name
	// Format is csv, tsv, json, jsonl or xlsx. If empty, the extension of Name decides; without
	// an extension it is csv.
	Format string
	Name   string // file name
}

// Exported is the result of Export.
type Exported struct {
	Format       string   `json:"format"`
	RowsExported int64    `json:"rows_exported"`
	Bytes        int64    `json:"bytes"`
	Truncated    bool     `json:"truncated"` // more than 1,000,000 rows or 256 MiB
	Columns      []string `json:"columns"`
	Warnings     []string `json:"warnings,omitempty"`
}

// Export writes the result of one SELECT in a form that imports as the same rows. Texts are
// written unchanged, with a warning about texts like =1+1. In CSV and TSV, NULL is an empty cell.
// BLOBs are written in base64.
func (db *DB) Export(ctx context.Context, spec ExportSpec, to io.Writer) (Exported, error) {
	format, err := tabular.OutputFormat(spec.Format, spec.Name)
	if err != nil {
		return Exported{}, transfer.FileError(err)
	}

	patience := exportTimeouts * db.timeout
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	late := errors.New("the query took too long")
	timer := time.AfterFunc(patience, func() { cancel(late) })
	defer timer.Stop()

	counted := &countingWriter{to: to}
	out := Exported{Format: format}
	err = db.export(bounded, spec, counted, &out, timer)
	out.Bytes = counted.n
	switch {
	case err == nil:
		return out, nil
	case counted.err != nil:
		return Exported{}, fmt.Errorf("the export cannot be written: %w", counted.err)
	case errors.Is(context.Cause(bounded), late):
		return Exported{}, &dberr.Error{Kind: dberr.KindTimeout, Field: "sql", Retryable: true, Message: fmt.Sprintf("the query took longer than %s and was stopped; narrow it with WHERE, or export it in parts", patience)}
	}

	return Exported{}, db.Health.queryError(ctx, ctx, spec.SQL, transfer.FileError(err))
}

func (db *DB) export(ctx context.Context, spec ExportSpec, to *countingWriter, out *Exported, timer *time.Timer) error {
	buffer := bufio.NewWriterSize(to, 1<<16)
	var file tabular.Writer
	begin := func(columns []string) (err error) {
		timer.Stop()
		out.Columns = columns
		file, err = tabular.NewWriter(out.Format, buffer, columns)
		return err
	}
	err := db.eachRow(ctx, QuerySpec{SQL: spec.SQL, Params: spec.Params, Named: spec.Named}, maxExportRows, begin, func(values []any) (more bool, err error) {
		// The query returns one row more than the limit, which shows that the result is
		// truncated.
		if out.RowsExported == maxExportRows || to.n > maxExportBytes {
			out.Truncated = true
			out.Warnings = append(out.Warnings, fmt.Sprintf("the answer goes on after %d rows; export the rest with WHERE, or with LIMIT and OFFSET", out.RowsExported))
			return false, nil
		}

		for i, v := range values {
			if b, ok := v.(bool); ok { // SQLite has no booleans
				values[i], _ = sqlvalue.Storable(b)
			}
		}
		out.RowsExported++
		return true, file.Row(values)
	})
	if err != nil {
		return err
	}
	if err := errors.Join(file.Close(), buffer.Flush()); err != nil {
		return err
	}

	out.Warnings = append(out.Warnings, file.Warnings()...)
	return nil
}

type countingWriter struct {
	to  io.Writer
	n   int64
	err error
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.n += int64(n)
	if err != nil {
		w.err = err
	}
	return n, err
}
