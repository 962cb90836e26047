package tabular

import (
	"encoding/csv"
	"io"
)

// Writer writes rows of nil, int64, float64 or string values. The file is complete after Close.
type Writer interface {
	Row(values []any) error
	Close() error
	Warnings() []string // warnings for a reader of the file, after Close
}

// NewWriter returns a writer for one of the formats of OutputFormat. columns are the names of the
// columns.
func NewWriter(format string, to io.Writer, columns []string) (Writer, error) {
	switch format {
	case formatXLSX:
		return newXLSXWriter(to, columns)
	case formatJSON, formatJSONL:
		return newJSONWriter(to, columns, format == formatJSON)
	}

	w := csv.NewWriter(to)
	if format == formatTSV {
		w.Comma = '\t'
	}
	return &csvWriter{w: w, cells: make([]string, len(columns))}, w.Write(columns)
}
