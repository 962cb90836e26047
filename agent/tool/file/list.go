package file

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rouse/agent/tool"
	"rouse/internal/pattern"
)

// Limits of a listing, and of the search for a missing file (OSA-31).
const (
	defaultDepth  = 3
	maxEntries    = 300
	maxPerFolder  = 20 // of a folder within the one that was asked for
	maxCandidates = 5
	maxVisited    = 20_000
)

type entry struct {
	Name string `json:"name"`
	Path string `json:"path"` // can be used as it is
	Type string `json:"type"` // file, directory
	fileFacts
}

type listing struct {
	Kind       string  `json:"kind"` // listing
	Path       string  `json:"path"`
	Entries    []entry `json:"entries"`
	EntryCount int     `json:"entry_count"`
	Truncated  bool    `json:"truncated"`
}

// alwaysIgnored reports what listings leave out: hidden files, and folders that programs fill.
func alwaysIgnored(name string) bool {
	return strings.HasPrefix(name, ".") || name == "node_modules" || name == "__pycache__"
}

// pendingFolder is a folder that is still to be listed.
type pendingFolder struct {
	rel, shown string
	depth      int
}

// list shows a folder level by level, so that a deep branch does not crowd out what lies next to it.
func (f *files) list(a readArgs) tool.Envelope {
	place, err := f.roots.Resolve(a.Path, false)
	if err != nil {
		return pathFailure(a.Path, err)
	}
	defer place.Close()

	depth := a.MaxDepth
	if depth <= 0 {
		depth = defaultDepth
	}

	since, bad := f.parseSince(a.Since)
	if bad != nil {
		return *bad
	}
	res := listing{Kind: "listing", Path: a.Path, Entries: []entry{}}
	waiting := []pendingFolder{{filepath.ToSlash(place.Rel), filepath.ToSlash(a.Path), 1}}
	for ; len(waiting) > 0; waiting = waiting[1:] {
		at := waiting[0]
		found, err := children(place.FS(), at.rel)
		if err != nil && at.depth == 1 {
			return pathFailure(a.Path, place.Explain(err))
		}

		most := maxEntries
		if at.depth > 1 {
			most = maxPerFolder
		}

		// With since, only files are listed.
		shownOf := found
		if !since.IsZero() {
			shownOf = slices.DeleteFunc(slices.Clone(found), func(e fs.DirEntry) bool { return !modifiedSince(e, since) })
		}
		for _, e := range found {
			if e.IsDir() && at.depth < depth && !since.IsZero() {
				waiting = append(waiting, pendingFolder{path.Join(at.rel, e.Name()), path.Join(at.shown, e.Name()), at.depth + 1})
			}
		}
		found = shownOf

		most = min(most, maxEntries-len(res.Entries))
		// A folder further down that may not be read is shown without its content.
		if err != nil || len(found) > most {
			res.Truncated = true
			found = found[:min(len(found), most)]
		}

		for _, e := range found {
			shown := path.Join(at.shown, e.Name())
			kind := "file"
			if e.IsDir() {
				kind = "directory"
				if at.depth < depth {
					waiting = append(waiting, pendingFolder{path.Join(at.rel, e.Name()), shown, at.depth + 1})
				}
			}

			var facts fileFacts
			if info, err := e.Info(); err == nil && kind == "file" {
				facts = f.facts(info)
			}
			res.Entries = append(res.Entries, entry{e.Name(), shown, kind, facts})
		}
	}

	res.EntryCount = len(res.Entries)
	return tool.Success(res)
}

// children are the entries of a folder, folders first.
func children(root fs.FS, rel string) ([]fs.DirEntry, error) {
	found, err := fs.ReadDir(root, rel)
	found = slices.DeleteFunc(found, func(e fs.DirEntry) bool { return alwaysIgnored(e.Name()) })
	slices.SortStableFunc(found, func(a, b fs.DirEntry) int {
		switch {
		case a.IsDir() == b.IsDir():
			return strings.Compare(a.Name(), b.Name())
		case a.IsDir():
			return -1
		}
		return 1
	})

	return found, err
}

// notFoundWithCandidates adds to a failure the files of the same name in the working folder. It is a
// courtesy: whatever goes wrong here leaves the failure as it was.
func (f *files) notFoundWithCandidates(ctx context.Context, wanted string, bad *tool.PathError) tool.Envelope {
	root, err := f.roots.Resolve(".", false)
	if err != nil {
		return bad.Envelope()
	}
	defer root.Close()

	var found []string
	visited := 0
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		visited++
		switch {
		case visited > maxVisited || len(found) >= maxCandidates || ctx.Err() != nil:
			return fs.SkipAll
		case err != nil:
			return fs.SkipDir // no candidates where nothing may be read
		case p == ".":
		case alwaysIgnored(d.Name()):
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.Type().IsRegular() && pattern.EqualName(d.Name(), filepath.Base(wanted)):
			found = append(found, p)
		}

		return nil
	})
	if err != nil || len(found) == 0 {
		return bad.Envelope()
	}

	names := strings.Join(found, ", ")
	return tool.Failure(tool.KindNotFound, "%s; files of that name: %s", bad.Message, names).WithField("path", fmt.Sprintf("one of %s", names))
}

// Limits of list_files (YOA-03).
const (
	maxListed   = 200
	listTimeout = 10 * time.Second
)

const listAliasText = "List the files below a folder, by their paths. `pattern` is a glob like **/*.csv; `max_depth` is 3 unless given. Hidden files, node_modules, and what .gitignore names are left out."

type listAliasArgs struct {
	Path     string `json:"path,omitempty" jsonschema:"default the working folder"`
	Pattern  string `json:"pattern,omitempty" jsonschema:"glob of the files"`
	MaxDepth int    `json:"max_depth,omitempty" jsonschema:"default 3"`
}

// listAlias is list_files: files alone, sorted, as text and as the entries of a listing (UNI-02).
func (f *files) listAlias(s tool.Spec) (tool.Tool, error) {
	return tool.Define(s, func(ctx context.Context, _ tool.Invocation, a listAliasArgs) (tool.Envelope, error) {
		if a.MaxDepth < 0 {
			return tool.Failure(tool.KindInvalidArgs, "max_depth must be 1 or more").WithField("max_depth", "1 or more"), nil
		}
		if !validGlob(a.Pattern) {
			return tool.Failure(tool.KindInvalidArgs, "pattern %q is not a glob", a.Pattern).WithField("pattern", "a glob like *.csv"), nil
		}
		return f.listFiles(ctx, cmp.Or(a.Path, "."), a.Pattern, cmp.Or(a.MaxDepth, defaultDepth)), nil
	})
}

func (f *files) listFiles(ctx context.Context, at, glob string, depth int) tool.Envelope {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()

	var names []string
	wanted := globMatcher(glob)
	w, err := f.walkPath(ctx, at, depth, func(it walkedFile) {
		if wanted(it.rel) {
			names = append(names, it.rel)
		}
	})
	if err != nil {
		return pathFailure(at, err)
	}

	slices.Sort(names)
	total := len(names)
	res := listing{Kind: "listing", Path: at, Entries: []entry{}, Truncated: total > maxListed || w.incomplete}
	var text strings.Builder
	for _, rel := range names[:min(total, maxListed)] {
		shown := path.Join(filepath.ToSlash(at), rel)
		res.Entries = append(res.Entries, entry{Name: path.Base(shown), Path: shown, Type: "file"})
		text.WriteString(quotePath(shown) + "\n")
	}

	res.EntryCount = len(res.Entries)
	warnings := w.unreadWarning()
	if w.incomplete {
		warnings = append(warnings, "the list was ended early: the folder has too many entries, or is too slow to read; list a smaller one")
	}

	return tool.Success(struct {
		listing
		Text  string `json:"text"`
		Total int    `json:"total"`
	}{res, text.String(), total}, warnings...)
}
