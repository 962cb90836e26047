// Package terminal shows things to a person: tables that fit, colours where the terminal has them, and a screen that changes in place.
//
// # Design
//
// Where something is written decides how: on a terminal a table is as wide as that, with its cells wrapped and never cut, and what has a
// tone has its colour; in a pipe or a file each row is one line, without colours, so that grep and awk find what they look for. NO_COLOR
// and TERM=dumb are honoured by colorprofile, widths of letters are those of x/ansi. Texts have to be harmless already (text.OneLine): what
// they hold is never obeyed here, and never parsed.
//
// Both libraries are the ground on which lipgloss stands. Its own table is not used: it takes what is missing of the width from all columns
// alike, so that the numbers and names that a person copies are broken first; and it would make the program 1.1 MB larger, with bubbletea
// 1.7 MB, in place of 0.2.
package terminal
