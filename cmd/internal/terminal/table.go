package terminal

import (
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

const (
	gap       = 2  // spaces between columns
	indent    = 4  // indentation of a last column placed below its row
	leastLast = 24 // minimum width of the last column next to the others
	leastCell = 8  // minimum width of a narrowed column
)

// Table is a table of text. Cells are plain text on one line.
type Table struct {
	Head []string // nil for a table without a heading
	Rows [][]string
	// Tone returns the tone of a cell. Optional.
	Tone func(column int, cell string) Tone
}

// Table writes a table so that it fits the terminal. Long cells are wrapped within their columns.
// The last column, which holds the longest texts, is placed below its row if there is too little
// room next to it. No text is cut.
func (t Terminal) Table(table Table) error {
	rows := table.Rows
	if table.Head != nil {
		rows = append([][]string{table.Head}, rows...)
	}
	widths, below := columns(rows, t.width)

	var out strings.Builder
	for i, row := range rows {
		tone := table.Tone
		if table.Head != nil && i == 0 {
			tone = func(int, string) Tone { return Strong }
		}
		t.row(&out, row, widths, below, tone)
	}
	_, err := io.WriteString(t.w, out.String())
	return err
}

// columns returns the column widths for a total width, where 0 means no limit. below reports
// whether the last column goes below the others.
func columns(rows [][]string, total int) (widths []int, below bool) {
	for _, row := range rows {
		for len(widths) < len(row) {
			widths = append(widths, 0)
		}
		for i, cell := range row {
			widths[i] = max(widths[i], ansi.StringWidth(cell))
		}
	}

	n := len(widths) - 1
	if total <= 0 || n < 0 || sum(widths)+n*gap <= total {
		return widths, false
	}
	if n == 0 {
		return []int{total}, false
	}

	others := widths[:n]
	if left := total - sum(others) - n*gap; left >= leastLast {
		widths[n] = left
		return widths, false
	}

	// Narrow the widest column first, because it wraps best.
	for sum(others)+(n-1)*gap > total {
		at := 0
		for i := range others {
			if others[i] > others[at] {
				at = i
			}
		}
		if others[at] <= leastCell {
			break // columns are at their minimum; the terminal breaks the lines
		}
		others[at]--
	}
	widths[n] = max(total-indent, leastCell)
	return widths, true
}

func sum(widths []int) (total int) {
	for _, w := range widths {
		total += w
	}
	return total
}

// row writes a row, which takes as many lines as its tallest cell.
func (t Terminal) row(out *strings.Builder, row []string, widths []int, below bool, tone func(int, string) Tone) {
	beside := row
	if below && len(row) == len(widths) {
		beside = row[:len(row)-1]
	}

	cells := make([][]string, len(beside))
	lines := 1
	for i, cell := range beside {
		cells[i] = wrap(cell, widths[i])
		lines = max(lines, len(cells[i]))
	}

	for n := range lines {
		var line strings.Builder
		pending := 0 // spaces, which are written only before text
		for i, cell := range cells {
			part := ""
			if n < len(cell) {
				part = cell[n]
			}
			if part != "" {
				line.WriteString(strings.Repeat(" ", pending))
				line.WriteString(t.toned(tone, i, beside[i], part))
				pending = 0
			}
			pending += widths[i] - ansi.StringWidth(part) + gap
		}
		out.WriteString(line.String() + "\n")
	}

	if len(beside) < len(row) {
		last := len(row) - 1
		for _, part := range wrap(row[last], widths[last]) {
			if part != "" {
				out.WriteString(strings.Repeat(" ", indent) + t.toned(tone, last, row[last], part) + "\n")
			}
		}
	}
}

func (t Terminal) toned(tone func(int, string) Tone, column int, cell, part string) string {
	if tone == nil {
		return part
	}
	return t.Paint(tone(column, cell), part)
}

// wrap breaks a text into lines of the given width, at spaces if possible. A width of 0 means no
// limit.
func wrap(s string, width int) []string {
	if width <= 0 || ansi.StringWidth(s) <= width {
		return []string{s}
	}

	// ansi.Wrap can exceed the width by a hyphen.
	wrapped := ansi.Hardwrap(ansi.Wrap(s, width, ""), width, true)

	return slices.DeleteFunc(strings.Split(wrapped, "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
}
