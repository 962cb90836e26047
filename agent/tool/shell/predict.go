package shell

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/internal/ledger/fileop"
	"rouse/internal/text"
)

// predictable maps commands with predictable changes to the options that do not affect the
// prediction.
var predictable = map[string][]string{
	"mv":    {"-f", "-v", "-T", "-fv", "-vf"},
	"cp":    {"-f", "-v", "-p", "-T", "-fv", "-pv", "-pf"},
	"rm":    {"-f", "-v", "-fv", "-vf"},
	"mkdir": {"-p", "-v", "-pv", "-vp"},
}

// predict computes the changes of a command before it runs. If that is impossible, why is the
// reason.
func predict(roots *tool.Roots, argv []string) (plan []file.PlannedChange, why string) {
	options, paths, why := split(argv)
	if why != "" {
		return nil, why
	}

	switch name := argv[0]; name {
	case "rm":
		for _, p := range paths {
			if !isFolder(roots, p) && !exists(roots, p) && slices.ContainsFunc(options, func(o string) bool { return strings.Contains(o, "f") }) {
				continue // rm -f ignores missing files
			}
			plan = append(plan, file.PlannedChange{Type: fileop.Delete, Path: p})
		}
	case "mkdir":
		return newFolders(roots, paths, slices.ContainsFunc(options, func(o string) bool { return strings.Contains(o, "p") })), ""
	default:
		return transfers(roots, name, paths, slices.Contains(options, "-T"))
	}

	return plan, ""
}

// split separates the options and the paths of a command.
func split(argv []string) (options, paths []string, why string) {
	rest := argv[1:]
	for i, a := range rest {
		if a == "--" {
			return options, append(paths, rest[i+1:]...), ""
		}

		if !strings.HasPrefix(a, "-") || a == "-" {
			paths = append(paths, a)
			continue
		}

		if !slices.Contains(predictable[argv[0]], a) {
			return nil, nil, "nothing is known of what it does with " + a
		}

		options = append(options, a)
	}

	return options, paths, ""
}

// transfers returns the changes of mv and cp: several paths into a folder, or one path to another.
func transfers(roots *tool.Roots, name string, paths []string, exact bool) (plan []file.PlannedChange, why string) {
	if len(paths) < 2 {
		return nil, "there is nothing that it would go to"
	}

	from, to := paths[:len(paths)-1], paths[len(paths)-1]
	into := !exact && isFolder(roots, to) // -T treats the destination as a name, even if it is a folder
	kind := fileop.Copy
	if name == "mv" {
		kind = fileop.Move
	}

	taken := map[string]bool{}
	for _, p := range from {
		dest := to
		if into {
			dest = filepath.Join(to, filepath.Base(p))
		}
		// The result would depend on the order.
		if taken[dest] || roots.Canonical(dest) == roots.Canonical(p) {
			return nil, "two of its files have one name"
		}

		taken[dest] = true
		plan = append(plan, file.PlannedChange{Type: kind, Path: dest, From: p})
		if name == "mv" {
			plan = append(plan, file.PlannedChange{Type: kind, Path: p}) // the old name disappears
		}
	}

	return plan, ""
}

// newFolders returns the folders that mkdir will create, outermost first.
func newFolders(roots *tool.Roots, paths []string, parents bool) (plan []file.PlannedChange) {
	seen := map[string]bool{}
	for _, p := range paths {
		var missing []string
		for folder := filepath.Clean(p); !exists(roots, folder) && !seen[folder]; folder = filepath.Dir(folder) {
			missing = append(missing, folder)
			seen[folder] = true // mkdir -p a/b a/c creates a once
			if !parents || folder == filepath.Dir(folder) {
				break
			}
		}

		slices.Reverse(missing)
		for _, folder := range missing {
			plan = append(plan, file.PlannedChange{Type: fileop.DirCreate, Path: folder})
		}
	}

	return plan
}

func exists(roots *tool.Roots, path string) bool {
	p, err := roots.Resolve(path, false)
	if err != nil {
		return false
	}
	defer p.Close()
	_, err = p.Lstat(p.Rel)
	return !errors.Is(err, fs.ErrNotExist)
}

func isFolder(roots *tool.Roots, path string) bool {
	p, err := roots.Resolve(path, false)
	if err != nil {
		return false
	}
	defer p.Close()
	info, err := p.Stat(p.Rel)
	return err == nil && info.IsDir()
}

// recordUndo records the files that a command is about to change. If the changes cannot be
// predicted, why is the reason. For commands that only read, both results are empty.
func (f *family) recordUndo(ctx context.Context, in tool.Invocation, o resolvedCommand) (undo *file.RecordedPlan, why string, err error) {
	if o.argv == nil || predictable[o.argv[0]] == nil {
		return nil, unlogged(o), nil
	}

	plan, why := predict(f.roots, o.argv)
	if why != "" {
		return nil, why, nil
	}

	undo, err = file.RecordPlan(ctx, f.log, f.roots, in, plan)
	if bad, ok := errors.AsType[*tool.Refusal](err); ok {
		return nil, bad.Message, nil
	}
	return undo, "", err
}

// readers are programs and builtins that never change files, whatever their arguments are.
var readers = strings.Fields(`[ : b2sum basename cat cd cksum cmp comm cut date df diff dirname du echo egrep exit export false fgrep file grep head hexdump id jq ls
	md5sum nl od paste printf pwd readlink realpath rev rg seq set sha1sum sha256sum sha512sum shasum sleep stat strings tac tail test tr true type uname unset wc whereis which whoami`)

// gitReaders are the git commands that do not change files unless they have the option --output.
var gitReaders = []string{"blame", "diff", "grep", "log", "ls-files", "rev-parse", "shortlog", "show", "status"}

// unlogged returns the reason the changes of a command are not recorded. It returns "" if the
// command changes no files, judging by its words.
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
		case *syntax.Redirect: // into a file that remains
			if isWrite(n.Op) && (n.Word == nil || !strings.HasPrefix(wordOf(n.Word).text, "/dev/")) {
				why = "it redirects output into a file"
			}
		}
		return true
	})
	return why
}

// onlyReads reports whether a program with these arguments changes no files.
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
