package shell

import (
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"rouse/agent/tool"
)

// maxCommand limits a command line, in bytes.
const maxCommand = 16_000

// commandLine is a parsed command line.
type commandLine struct {
	script string // source
	tree   *syntax.File
	argv   []string // nil unless it is one simple command of plain words
	why    string   // reason for a nil argv
}

// parse parses a command line like bash. The error is written for the author of the command.
func parse(command string) (commandLine, error) {
	l := commandLine{script: command}
	switch {
	case strings.TrimSpace(command) == "":
		return l, fmt.Errorf("the command is empty")
	case len(command) > maxCommand:
		return l, fmt.Errorf("the command has %d bytes; write what is longer than %d to a file", len(command), maxCommand)
	case strings.ContainsRune(command, 0):
		return l, fmt.Errorf("the command holds a NUL character")
	}

	var err error
	if l.tree, err = syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(command), ""); err != nil {
		return l, fmt.Errorf("the command cannot be read as bash reads it: %w", err)
	}
	if len(l.tree.Stmts) == 0 {
		return l, fmt.Errorf("the command is a comment alone")
	}

	l.argv, l.why = simpleArgv(l.tree)
	return l, nil
}

// Plain returns the argv of a command line that is one program with its arguments. Otherwise why is
// the reason it is not. The error is set if it is not a valid command at all.
func Plain(command string) (argv []string, why string, err error) {
	l, err := parse(command)
	return l.argv, l.why, err
}

// simpleArgv returns the argv of a command line that is one program with its arguments and needs no
// shell. Otherwise why is the reason it is not.
func simpleArgv(tree *syntax.File) (argv []string, why string) {
	if len(tree.Stmts) != 1 {
		return nil, "more than one command"
	}

	s := tree.Stmts[0]
	call, simple := s.Cmd.(*syntax.CallExpr)
	switch {
	case len(s.Redirs) > 0:
		return nil, "a redirection"
	case s.Background || s.Coprocess || s.Disown:
		return nil, "a command in the background"
	case s.Negated || !simple:
		return nil, "a pipe, a list or a construct of the shell"
	case len(call.Assigns) > 0:
		return nil, "an assignment of a variable"
	}

	for _, w := range call.Args {
		if why := needsShell(w); why != "" {
			return nil, why
		}
		argv = append(argv, unquoted(w.Parts))
	}
	if argv[0] == "" {
		return nil, "a program without a name"
	}

	return argv, ""
}

// needsShell returns the reason a shell would change a word, or "".
func needsShell(w *syntax.Word) string {
	bare := "" // join the unquoted parts, because the parser splits a pattern at its [
	for _, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			bare += part.Value
		case *syntax.SglQuoted:
			if part.Dollar {
				return "an expansion ($)"
			}
		case *syntax.DblQuoted:
			if part.Dollar {
				return "an expansion ($)"
			}
			for _, inner := range part.Parts {
				if _, lit := inner.(*syntax.Lit); !lit {
					return "an expansion ($)"
				}
			}
		default:
			return "an expansion"
		}
	}

	// The brackets of a secret's placeholder are not a pattern.
	switch bare = tool.FillPlaceholders(bare, func(string) string { return "" }); {
	case hasGlob(bare):
		return "a pattern or a ~ that the shell would expand; quote it to mean it as it is"
	case hasBraces(bare):
		return "braces that the shell would expand; quote them to mean them as they are"
	}

	return ""
}

// hasBraces reports whether bash may expand a word into several, as with {a,b} and {1..3}.
func hasBraces(bare string) bool {
	_, inner, open := strings.Cut(bare, "{")
	last := strings.LastIndexByte(inner, '}')
	return open && last >= 0 && (strings.Contains(inner[:last], ",") || strings.Contains(inner[:last], ".."))
}

// unquoted returns the text of a word without quotes and backslashes.
func unquoted(parts []syntax.WordPart) string {
	var out strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case *syntax.Lit:
			out.WriteString(unescaped(part.Value, ""))
		case *syntax.SglQuoted:
			out.WriteString(part.Value)
		case *syntax.DblQuoted:
			for _, inner := range part.Parts {
				if lit, ok := inner.(*syntax.Lit); ok {
					out.WriteString(unescaped(lit.Value, "$`\"\\\n"))
				}
			}
		}
	}

	return out.String()
}

// unescaped removes backslashes from a text. If only is set, it removes just those before one of
// its characters. A newline after a backslash is removed, too.
func unescaped(text, only string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) && (only == "" || strings.IndexByte(only, text[i+1]) >= 0) {
			if i++; text[i] == '\n' {
				continue
			}
		}
		out.WriteByte(text[i])
	}

	return out.String()
}

// hasGlob reports whether an unquoted text contains a character of a pattern, or ~ for a home
// folder.
func hasGlob(text string) bool {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '*', '?', '[', '~':
			return true
		}
	}
	return false
}
