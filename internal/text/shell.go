package text

import (
	"strconv"

	"mvdan.cc/sh/v3/syntax"
)

// ShellWord quotes s as one word of a shell command line if necessary.
func ShellWord(s string) string {
	quoted, err := syntax.Quote(s, syntax.LangBash)
	if err != nil { // a command line cannot hold NUL
		return strconv.Quote(s)
	}
	return quoted
}
