package tabular

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// SheetPreview holds the first rows of a sheet.
type SheetPreview struct {
	Sheet       string   // "" if the file has no sheet with the requested name
	Sheets      []string // all sheets of the file, the previewed one first
	Rows        []SheetRow
	MoreRows    bool
	MoreColumns bool
}

// SheetRow is a row with at least one value. Number is its number in the sheet, from 1.
type SheetRow struct {
	Number int      `json:"row"`
	Cells  []string `json:"cells"`
}

// PreviewXLSX returns the first rows and columns of a sheet of an .xlsx file. If sheet is "", it
// uses the first visible sheet. Its errors describe the problem with the file in words.
func PreviewXLSX(content, sheet string, rows, columns int) (SheetPreview, error) {
	w, err := openWorkbook(content)
	if err != nil {
		return SheetPreview{}, withoutLine(err)
	}

	all := append([]string{w.name}, w.others...)
	if sheet != "" && sheet != w.name {
		target, ok := w.targets[sheet]
		if !ok || w.parts[strings.ToLower(target)] == nil {
			return SheetPreview{Sheets: all}, nil
		}
		// A hidden sheet can be previewed by its name.
		w.sheet, w.name = target, sheet
		all = slices.Insert(slices.DeleteFunc(all, func(name string) bool { return name == sheet }), 0, sheet)
	}

	r, err := w.rows(0)
	if err != nil {
		return SheetPreview{}, withoutLine(err)
	}
	defer r.part.Close()

	out := SheetPreview{Sheet: w.name, Sheets: all}
	for {
		if err := r.Next(); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return out, withoutLine(err)
		}

		if len(out.Rows) == rows {
			out.MoreRows = true
			return out, nil
		}

		row := SheetRow{Number: r.number, Cells: make([]string, min(len(r.row), columns))}
		for i := range row.Cells {
			row.Cells[i], _ = scalarValue(r.cell(i), AffinityText).(string)
		}

		out.MoreColumns = out.MoreColumns || len(r.row) > columns
		out.Rows = append(out.Rows, row)
	}
}

// withoutLine rewords a SyntaxError to name a row, because a workbook has no lines.
func withoutLine(err error) error {
	var at *SyntaxError
	if !errors.As(err, &at) {
		return err
	}
	if at.Line > 1 {
		return fmt.Errorf("row %d: %s", at.Line, at.Text)
	}
	return errors.New(at.Text)
}
