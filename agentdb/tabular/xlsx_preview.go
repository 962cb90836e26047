package tabular

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// SheetPreview is the beginning of a sheet of a spreadsheet file.
type SheetPreview struct {
	Sheet       string   // empty if the file has no sheet with the name that was asked for
	Sheets      []string // of the file, this one first
	Rows        []SheetRow
	MoreRows    bool // there are more rows
	MoreColumns bool // there are more columns
}

// SheetRow is a row that holds something, with its number in the sheet, from 1.
type SheetRow struct {
	Number int      `json:"row"`
	Cells  []string `json:"cells"`
}

// PreviewXLSX reads the first rows and columns of a sheet of an .xlsx file, "" for the first that
// can be seen. Its errors say in words what is wrong with the file.
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
		// A hidden sheet can be previewed when its name is known.
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

// withoutLine names a row where the error is about a file that has no lines.
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
