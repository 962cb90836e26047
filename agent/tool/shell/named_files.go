package shell

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// mention is a text in a command line that may name a file.
type mention struct {
	path string
	// fixed reports that another path cannot replace the text. The command may change the file or
	// depend on its name. The text may also be part of code, a list or a pattern.
	fixed bool
}

// rename is called with each mention. It returns the replacement, or false to keep the text.
type rename func(m mention) (string, bool)

var (
	// byName lists programs that use their operands as names. A copy would be the wrong file for
	// them.
	byName = strings.Fields(`mv cp rm rmdir mkdir ln install touch tee truncate shred dd chmod chown chgrp setfacl stat ls du find test [ echo printf
		basename dirname realpath readlink cd pushd sed tar zip unzip git rsync sort`)

	// projects lists programs that run files of the current folder without being told to.
	projects = strings.Fields(`make gmake ninja just task npm npx pnpm yarn bun cargo go mvn gradle ant rake bundle composer tox nox pytest cmake meson
		scons docker docker-compose podman`)

	// scriptRunners matches programs that run the file named by their first operand.
	scriptRunners = regexp.MustCompile(`(?i)^(ba|da|z|k|fi)?sh$|^(python|perl|ruby|node|deno|bun|php|lua|pwsh|powershell)[0-9.]*(\.exe)?$`)
	shells        = strings.Fields("sh bash dash zsh ksh eval")
)

// Scripts returns the words of a command line that name a file it executes: a program with a path
// and the script of an interpreter. It also finds them behind wrappers such as env and nice.
func Scripts(argv []string) (out []string) {
	at, program := 0, ""
	for ; at < len(argv) && program == ""; at++ {
		word := argv[at]
		if isWrapped(argv[:at], word) {
			continue
		}

		if program = path.Base(word); strings.ContainsAny(word, `/\`) {
			out = append(out, word)
		}
	}

	// The word after an option such as -c is not a file.
	if scriptRunners.MatchString(program) && at < len(argv) && !strings.HasPrefix(argv[at], "-") {
		out = append(out, argv[at])
	}
	return out
}

// isWrapped reports whether a word precedes the program of a command line.
func isWrapped(before []string, word string) bool {
	return wrapperWords(append(slices.Clone(before), word)) > len(before)
}

// renamed returns the command line with its mentions replaced.
func (l commandLine) renamed(by rename) (argv []string, script string) {
	if l.argv != nil {
		return renameArgv(l.argv, by, maxNested), l.script
	}
	return nil, renameScript(l.script, l.tree, by, maxNested)
}

// renameArgv replaces mentions in the words of one program.
func renameArgv(argv []string, by rename, depth int) []string {
	out := slices.Clone(argv)
	program, begin := "", 0 // program to which the words from begin on belong
	for i, word := range argv {
		switch {
		case program == "" && isWrapped(argv[begin:i], word):
			out[i] = renameWord(word, false, by)
		case program == "":
			if program = path.Base(word); slices.Contains(projects, program) {
				by(mention{".", true})
			}
			out[i] = renameWord(word, false, by)
		case program == "find" && slices.Contains([]string{"-exec", "-execdir", "-ok", "-okdir"}, word):
			program, begin = "", i+1
		case scriptRunners.MatchString(program) && word == "-m": // runs a module of the folder
			by(mention{".", true})
		case slices.Contains(shells, program) && (isCommandOption(argv[i-1]) || program == "eval"):
			out[i] = renameNested(word, by, depth)
		default:
			out[i] = renameWord(word, slices.Contains(byName, program) && !strings.HasPrefix(word, "-"), by)
		}
	}

	return out
}

// isCommandOption reports whether the next word of a shell's command line is a script: -c, -ec,
// -lc.
func isCommandOption(word string) bool {
	return strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") && strings.HasSuffix(word, "c")
}

// renameNested replaces mentions in a script that is an argument.
func renameNested(script string, by rename, depth int) string {
	tree := parseScript(script)
	if tree == nil || depth == 0 {
		renameTokens(script, by)
		return script
	}
	return renameScript(script, tree, by, depth-1)
}

// renameWord replaces a word, or the end of it that is the value of an option: --file=x, -fx, @x,
// -d@x.
func renameWord(word string, fixed bool, by rename) string {
	if name, ok := by(mention{word, fixed}); ok {
		return name
	}

	var starts []int
	if at := strings.IndexByte(word, '='); at >= 0 {
		starts = append(starts, at+1)
	}
	if at := strings.IndexByte(word, '@'); at >= 0 {
		starts = append(starts, at+1)
	}
	if strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") && len(word) > 2 {
		starts = append(starts, 2)
	}

	for _, start := range starts {
		if name, ok := by(mention{word[start:], fixed}); ok {
			return word[:start] + name
		}
	}

	renameTokens(word, by)
	return word
}

// renameTokens mentions every part of a text that could be a path within code, a list or a pattern.
func renameTokens(text string, by rename) {
	for token := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'`()<>|&;{}=@:,$", r) }) {
		if token != text {
			by(mention{token, true})
		}
		if rel := strings.TrimLeft(token, "/"); rel != token { // after $PWD or a similar variable
			by(mention{rel, true})
		}
	}
}

// scriptRenamer collects the edits of a script.
type scriptRenamer struct {
	by      rename
	depth   int
	handled map[*syntax.Word]bool
	edits   []edit
}

// edit replaces the bytes of a script from one offset to another.
type edit struct {
	from, to uint
	text     string
}

// renameScript replaces mentions in a script.
func renameScript(script string, tree *syntax.File, by rename, depth int) string {
	r := &scriptRenamer{by: by, depth: depth, handled: map[*syntax.Word]bool{}}
	syntax.Walk(tree, r.visit)
	slices.SortFunc(r.edits, func(a, b edit) int { return int(b.from) - int(a.from) })
	for _, e := range r.edits { // from the end, so that the offsets stay valid
		script = script[:e.from] + e.text + script[e.to:]
	}
	return script
}

func (r *scriptRenamer) visit(n syntax.Node) bool {
	switch n := n.(type) {
	case *syntax.CallExpr:
		r.call(n.Args)
	case *syntax.Redirect:
		switch {
		case n.Word == nil:
		case isWrite(n.Op) && n.Op != syntax.RdrInOut:
			// Output: what the file held decides nothing.
			r.handled[n.Word] = true
		case n.Op == syntax.RdrIn:
			r.replace(n.Word, renameWord(staticWord(n.Word), false, r.by))
		}
	case *syntax.Word:
		// A word of an assignment, loop, condition or here-document, or a word with an expansion.
		if !r.handled[n] {
			text := staticWord(n)
			r.by(mention{text, true})
			renameTokens(text, r.by)
		}
	}
	return true
}

// call replaces mentions in the words of one program within a script.
func (r *scriptRenamer) call(words []*syntax.Word) {
	argv := staticWords(words)
	for i, name := range renameArgv(argv, r.by, r.depth) {
		if name != argv[i] {
			r.replace(words[i], name)
		}
	}
}

// replace replaces a word, unless a shell would expand it.
func (r *scriptRenamer) replace(w *syntax.Word, text string) {
	if needsShell(w) != "" || text == staticWord(w) {
		return
	}

	r.handled[w] = true
	if q, err := syntax.Quote(text, syntax.LangBash); err == nil {
		r.edits = append(r.edits, edit{w.Pos().Offset(), w.End().Offset(), q})
	}
}
