package text

import (
	"strconv"

	"mvdan.cc/sh/v3/syntax"
)

// ShellWord writes s as one word of a command line that a person may paste into a shell.
func ShellWord(s string) string {
	quoted, err := syntax.Quote(s, syntax.LangBash)
	if err != nil { // a NUL, which no command line can hold
		return strconv.Quote(s)
	}
	return quoted
}
