package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"rouse/internal/text"
)

// readers are programs and builtins that change no file, whatever their arguments are.
var readers = strings.Fields(`[ : b2sum basename cat cd cksum cmp comm cut date df diff dirname du echo egrep exit export false fgrep file grep head hexdump id jq ls
	md5sum nl od paste printf pwd readlink realpath rev rg seq set sha1sum sha256sum sha512sum shasum sleep stat strings tac tail test tr true type uname unset wc whereis which whoami`)

// gitReaders are the commands of git that change no file without the option --output.
var gitReaders = []string{"blame", "diff", "grep", "log", "ls-files", "rev-parse", "shortlog", "show", "status"}

// unlogged returns why changes of a command are not recorded, or "" if it changes no files as far
// as its words tell (OSA-36).
func unlogged(o resolvedCommand) string {
	if o.argv != nil {
		if !onlyReads(knownWords(o.argv)) {
			return "it is not known which files " + text.Truncate(text.OneLine(o.name()), maxName) + " changes"
		}
		return ""
	}

	why := ""
	syntax.Walk(o.tree, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			if words := wordsOf(n.Args); len(words) > 0 && !onlyReads(words) && why == "" {
				why = "it is a script"
			}
		case *syntax.Redirect: // into a file that stays
			if isWrite(n.Op) && (n.Word == nil || !strings.HasPrefix(wordOf(n.Word).text, "/dev/")) {
				why = "it redirects output into a file"
			}
		}
		return true
	})
	return why
}

// onlyReads reports whether a program with these arguments changes no file.
func onlyReads(words []word) bool {
	if !words[0].known {
		return false
	}
	args := words[1:]
	switch name := path.Base(words[0].text); {
	case slices.Contains(readers, name):
		return true
	case slices.ContainsFunc(args, func(w word) bool { return !w.known && strings.HasPrefix(w.text, "-") }):
		return false
	case name == "find":
		return !slices.ContainsFunc(args, func(w word) bool { return slices.Contains(findsAndActs, w.text) })
	case name == "sort":
		return !hasOption(args, "o", "--output")
	case name == "git":
		return len(args) > 0 && slices.Contains(gitReaders, args[0].text) && !hasOption(args, "", "--output")
	}
	return false
}
