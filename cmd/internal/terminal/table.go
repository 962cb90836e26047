package terminal

import (
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

const (
	gap       = 2  // blanks between columns
	indent    = 4  // of a last column that stands below its row
	leastLast = 24 // columns of the last one beside the others; with less it stands below
	leastCell = 8  // columns to which any other may be narrowed
)

// Table is rows of cells under each other. Cells are plain text on one line.
type Table struct {
	Head []string // nil: the rows have no heading
	Rows [][]string
	// Tone is that of a cell; nil: none has any.
	Tone func(column int, cell string) Tone
}

// Table writes a table so that it fits: what is too long is wrapped within its column, and a last column, which holds the longest texts,
// stands below its row where too little is left beside it. Nothing is cut.
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

// columns are the widths of the columns within a total, which is 0 where there is room for everything. below says that the last column
// stands below the others.
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

	// The widest gives way first: it is the one that wraps best.
	for sum(others)+(n-1)*gap > total {
		at := 0
		for i := range others {
			if others[i] > others[at] {
				at = i
			}
		}
		if others[at] <= leastCell {
			break // nothing more can be done; the terminal itself breaks the lines
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

// row writes a row, in as many lines as its tallest cell has.
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
		pending := 0 // blanks, which are only written before something
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

// wrap breaks a text into lines of a width, at blanks where it has some. A width of 0 is none.
func wrap(s string, width int) []string {
	if width <= 0 || ansi.StringWidth(s) <= width {
		return []string{s}
	}

	// Wrap lets a line that is full have one more hyphen.
	wrapped := ansi.Hardwrap(ansi.Wrap(s, width, ""), width, true)

	return slices.DeleteFunc(strings.Split(wrapped, "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
}
