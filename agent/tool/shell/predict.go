package shell

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/agentdb/ledger"
)

// predictable are the commands whose changes can be predicted, with the options that do not affect the
// prediction (OSA-36).
var predictable = map[string][]string{
	"mv":    {"-f", "-v", "-T", "-fv", "-vf"},
	"cp":    {"-f", "-v", "-p", "-T", "-fv", "-pv", "-pf"},
	"rm":    {"-f", "-v", "-fv", "-vf"},
	"mkdir": {"-p", "-v", "-pv", "-vp"},
}

// predict computes the changes of a command before it runs, or says why that is impossible.
func predict(roots *tool.Roots, argv []string) (plan []file.PlannedChange, why string) {
	options, paths, why := split(argv)
	if why != "" {
		return nil, why
	}

	switch name := argv[0]; name {
	case "rm":
		for _, p := range paths {
			if !isFolder(roots, p) && !exists(roots, p) && slices.ContainsFunc(options, func(o string) bool { return strings.Contains(o, "f") }) {
				continue // rm -f ignores what does not exist
			}
			plan = append(plan, file.PlannedChange{Type: ledger.FileDelete, Path: p})
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

// transfers are the changes of mv and cp: several paths into a folder, or one path to another.
func transfers(roots *tool.Roots, name string, paths []string, exact bool) (plan []file.PlannedChange, why string) {
	if len(paths) < 2 {
		return nil, "there is nothing that it would go to"
	}

	from, to := paths[:len(paths)-1], paths[len(paths)-1]
	into := !exact && isFolder(roots, to) // -T takes the destination as a name, even of a folder
	kind := ledger.FileCopy
	if name == "mv" {
		kind = ledger.FileMove
	}

	taken := map[string]bool{}
	for _, p := range from {
		dest := to
		if into {
			dest = filepath.Join(to, filepath.Base(p))
		}
		// The order would decide which one survives.
		if taken[dest] || roots.Canonical(dest) == roots.Canonical(p) {
			return nil, "two of its files have one name"
		}

		taken[dest] = true
		plan = append(plan, file.PlannedChange{Type: kind, Path: dest, From: p})
		if name == "mv" {
			plan = append(plan, file.PlannedChange{Type: kind, Path: p}) // the old name goes away
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
			plan = append(plan, file.PlannedChange{Type: ledger.FileDirCreate, Path: folder})
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

// recordUndo records the files that a command is about to change, or returns why they cannot be
// predicted. For commands that only read it returns neither.
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
