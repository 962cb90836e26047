package terminal

import (
	"bytes"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"
)

var runs = Table{
	Head: []string{"RUN", "JOB", "OUTCOME", "SUMMARY"},
	Rows: [][]string{
		{"12", "report", "● success", "Wrote the report of the week to out/report.md, with the figures."},
		{"11", "take-statements", "⚡ interrupted", ""},
	},
	Tone: func(column int, cell string) Tone {
		if column == 2 && strings.HasPrefix(cell, "●") {
			return Good
		}
		return Plain
	},
}

// A table fits the terminal: its last column is wrapped, or placed below its row if there is too
// little room. In a pipe, each row is one line.
func TestTableFits(t *testing.T) {
	for width, want := range map[int]string{
		0: `RUN  JOB              OUTCOME         SUMMARY
12   report           ● success       Wrote the report of the week to out/report.md, with the figures.
11   take-statements  ⚡ interrupted
`,
		70: `RUN  JOB              OUTCOME         SUMMARY
12   report           ● success       Wrote the report of the week to
                                      out/report.md, with the figures.
11   take-statements  ⚡ interrupted
`,
		44: `RUN  JOB              OUTCOME
    SUMMARY
12   report           ● success
    Wrote the report of the week to
    out/report.md, with the figures.
11   take-statements  ⚡ interrupted
`,
		30: `RUN  JOB          OUTCOME
    SUMMARY
12   report       ● success
    Wrote the report of the
    week to out/report.md,
    with the figures.
11   take-        ⚡
     statements   interrupted
`,
	} {
		var out bytes.Buffer
		if err := Fixed(&out, width, false).Table(runs); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("at %d columns:\n%s\nwant\n%s", width, out.String(), want)
		}
	}
}

// Cells have the colors of their tones, and colors take no width.
func TestTableColours(t *testing.T) {
	var plain, painted bytes.Buffer
	for out, colours := range map[*bytes.Buffer]bool{&plain: false, &painted: true} {
		if err := Fixed(out, 60, colours).Table(runs); err != nil {
			t.Fatal(err)
		}
	}
	if ansi.Strip(painted.String()) != plain.String() {
		t.Errorf("with colours it is\n%s\nwithout\n%s", painted.String(), plain.String())
	}
	if !strings.Contains(painted.String(), "\x1b[32m● success\x1b[m") || !strings.Contains(painted.String(), "\x1b[1mRUN\x1b[m") {
		t.Errorf("%q", painted.String())
	}
	if strings.Contains(plain.String(), "\x1b") {
		t.Errorf("%q", plain.String())
	}
}

// A word of hyphens, which can be broken anywhere, fits its column too.
func TestTableOfHyphens(t *testing.T) {
	var out bytes.Buffer
	if err := Fixed(&out, 10, false).Table(Table{Rows: [][]string{{strings.Repeat("-", 11)}, {"over-----------night"}}}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if w := ansi.StringWidth(strings.TrimSuffix(line, "\n")); w > 10 {
			t.Errorf("a line of %d columns: %q", w, line)
		}
	}
	if n := strings.Count(out.String(), "-"); n != 22 {
		t.Errorf("%d hyphens of 22:\n%s", n, out.String())
	}
}

// Whatever the cells contain, no text is lost. No line exceeds the terminal if the columns can be
// narrowed that far.
func TestTableLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.IntRange(1, 5).Draw(t, "columns")
		width := rapid.IntRange(columns*(leastCell+gap), 140).Draw(t, "width")
		cell := rapid.StringMatching(`[a-zäß●⚡日本-]{0,12}( [a-z0-9]{1,9}){0,6}`)
		var table Table
		for range rapid.IntRange(1, 4).Draw(t, "rows") {
			var row []string
			for range columns {
				row = append(row, strings.TrimSpace(cell.Draw(t, "cell")))
			}
			table.Rows = append(table.Rows, row)
		}

		var out bytes.Buffer
		if err := Fixed(&out, width, false).Table(table); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if w := ansi.StringWidth(strings.TrimSuffix(line, "\n")); w > width {
				t.Fatalf("a line of %d columns at %d: %q", w, width, line)
			}
		}

		// Wrapping moves text and drops spaces at line ends.
		count := func(s string) map[rune]int {
			n := map[rune]int{}
			for _, r := range s {
				if r != ' ' && r != '\n' {
					n[r]++
				}
			}
			return n
		}
		given := ""
		for _, row := range table.Rows {
			given += strings.Join(row, "")
		}
		want, got := count(given), count(out.String())
		for r, n := range want {
			if got[r] != n {
				t.Fatalf("%q is there %d times and was given %d times:\n%s", r, got[r], n, out.String())
			}
		}
	})
}

// A pipe has no width and no colors, whatever the environment contains.
func TestOfPipe(t *testing.T) {
	var out bytes.Buffer
	is := Of(&out, []string{"CLICOLOR_FORCE=1", "TERM=xterm-256color", "COLUMNS=40"})
	if is.Width() != 0 || is.HasColours() || is.Paint(Bad, "x") != "x" {
		t.Errorf("%+v", is)
	}
}
