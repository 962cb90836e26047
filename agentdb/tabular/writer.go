package tabular

import (
	"encoding/csv"
	"io"
)

// Writer writes rows. Values are nil, int64, float64 or string, and the file is whole after Close.
type Writer interface {
	Row(values []any) error
	Close() error
	Warnings() []string // after Close: what a reader of the file should know
}

// NewWriter begins a file in one of the formats of OutputFormat, with the names of its columns.
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
