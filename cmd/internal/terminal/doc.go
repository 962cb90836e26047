// Package terminal formats output for people: tables that fit the terminal, colors, and a screen
// that is redrawn in place.
//
// # Design
//
// On a terminal, tables fit its width, and toned text has colors. In a pipe or a file, each row is
// one line without colors, for grep and awk. NO_COLOR and TERM=dumb are honored. Callers must
// sanitize texts first (text.OneLine): this package neither interprets nor removes escape
// sequences.
//
// The package uses x/ansi but not lipgloss. Lipgloss tables shrink all columns equally, which
// breaks the numbers and names that people copy, and lipgloss and bubbletea would enlarge the
// program.
package terminal
