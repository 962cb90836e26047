package file

import (
	"cmp"
	"context"
	"io"

	"rouse/agent/tool"
	"rouse/agentdb/tabular"
	"rouse/internal/text"
)

// Limits of the preview of a spreadsheet (OSA-31).
const (
	defaultCells = 8 // rows, and columns
	maxRows      = 50
	maxColumns   = 30
	maxCell      = 200 // characters
)

type sheetResult struct {
	Kind      string             `json:"kind"` // spreadsheet
	Path      string             `json:"path"`
	Sheet     string             `json:"sheet"`
	Sheets    []string           `json:"sheets"`
	Rows      []tabular.SheetRow `json:"rows"`
	Truncated bool               `json:"truncated"`
}

// sheet shows the beginning of a spreadsheet.
func (f *files) sheet(ctx context.Context, content io.Reader, a readArgs) (tool.Envelope, error) {
	if a.MaxRows < 0 || a.MaxColumns < 0 {
		return tool.Failure(tool.KindInvalidArgs, "max_rows and max_columns must be 1 or more").WithField("max_rows", "1 to 50"), nil
	}

	rows, columns := min(cmp.Or(a.MaxRows, defaultCells), maxRows), min(cmp.Or(a.MaxColumns, defaultCells), maxColumns)
	p, err := f.viewer.XLSX(ctx, content, a.SheetName, rows, columns)
	if err != nil {
		return tool.Envelope{}, err
	}

	for _, r := range p.Rows {
		for i, cell := range r.Cells {
			r.Cells[i] = text.Truncate(cell, maxCell)
		}
	}

	res := sheetResult{"spreadsheet", a.Path, p.Sheet, p.Sheets[:min(len(p.Sheets), maxRows)], p.Rows, p.Cut || p.Clipped}
	var warnings []string
	if p.Cut {
		warnings = append(warnings, "there are more rows; max_rows shows up to 50, and db_import reads all")
	}

	if p.Clipped {
		warnings = append(warnings, "there are more columns; max_columns shows up to 30, and db_import reads all")
	}

	return tool.Success(res, warnings...), nil
}
