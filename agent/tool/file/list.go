package file

import (
	"cmp"
	"context"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rouse/agent/tool"
	"rouse/internal/pattern"
	"rouse/internal/text"
)

// Limits of a listing, and of the search for a missing file.
const (
	defaultDepth  = 3
	maxEntries    = 300
	maxPerFolder  = 20 // entries of a subfolder
	maxCandidates = 5
	maxVisited    = 20_000
)

type entry struct {
	Name string `json:"name"`
	Path string `json:"path"` // usable as an argument
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

// alwaysIgnored reports whether listings omit a name: hidden files and folders of build tools.
func alwaysIgnored(name string) bool {
	return strings.HasPrefix(name, ".") || name == "node_modules" || name == "__pycache__"
}

// pendingFolder is a folder that is still to be listed.
type pendingFolder struct {
	rel, shown string
	depth      int
}

// list lists a folder level by level, so that a deep subfolder does not crowd out its siblings.
func (f *files) list(a readArgs) (tool.Envelope, error) {
	place, err := f.roots.Resolve(a.Path, false)
	if err != nil {
		return tool.Envelope{}, err
	}
	defer place.Close()

	depth := a.MaxDepth
	if depth <= 0 {
		depth = defaultDepth
	}
	since, err := f.parseSince(a.Since)
	if err != nil {
		return tool.Envelope{}, err
	}
	res := listing{Kind: "listing", Path: a.Path, Entries: []entry{}}
	waiting := []pendingFolder{{filepath.ToSlash(place.Rel), filepath.ToSlash(a.Path), 1}}
	for ; len(waiting) > 0; waiting = waiting[1:] {
		at := waiting[0]
		found, err := children(place.FS(), at.rel)
		if err != nil && at.depth == 1 {
			return tool.Envelope{}, place.Explain(err)
		}

		most := maxEntries
		if at.depth > 1 {
			most = maxPerFolder
		}

		// With since, only files are listed, but all folders are searched.
		if !since.IsZero() {
			for _, e := range found {
				if e.IsDir() && at.depth < depth {
					waiting = append(waiting, pendingFolder{path.Join(at.rel, e.Name()), path.Join(at.shown, e.Name()), at.depth + 1})
				}
			}
			found = slices.DeleteFunc(found, func(e fs.DirEntry) bool {
				info, err := e.Info()
				return err != nil || e.IsDir() || info.ModTime().Before(since)
			})
		}

		most = min(most, maxEntries-len(res.Entries))
		// A subfolder that cannot be read is listed without its contents.
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
	return tool.Success(res), nil
}

// children returns the entries of a folder, folders first.
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

// notFoundWithCandidates returns a refusal that names files with the same name in the working
// folder. If there are no such files or the search fails, the refusal has only the message.
func (f *files) notFoundWithCandidates(ctx context.Context, wanted, message string) *tool.Refusal {
	root, err := f.roots.Resolve(".", false)
	if err != nil {
		return tool.RefusePath(tool.KindNotFound, "%s", message)
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
			return fs.SkipDir // unreadable folders have no candidates
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
		return tool.RefusePath(tool.KindNotFound, "%s", message)
	}
	names := strings.Join(found, ", ")
	return tool.Refuse(tool.KindNotFound, "%s; files of that name: %s", message, names).WithField("path", "one of "+names)
}

// Limits of list_files.
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

// listAlias implements list_files. It returns only files, sorted, as text and as entries of a
// listing.
func (f *files) listAlias(ctx context.Context, _ tool.Invocation, a listAliasArgs) (tool.Envelope, error) {
	if a.MaxDepth < 0 {
		return tool.Envelope{}, tool.Refuse(tool.KindInvalidArgs, "max_depth must be 1 or more").WithField("max_depth", "1 or more")
	}
	if !validGlob(a.Pattern) {
		return tool.Envelope{}, tool.Refuse(tool.KindInvalidArgs, "pattern %q is not a glob", a.Pattern).WithField("pattern", "a glob like *.csv")
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()

	at := cmp.Or(a.Path, ".")
	var names []string
	wanted := globMatcher(a.Pattern)
	w, err := f.walkPath(ctx, at, cmp.Or(a.MaxDepth, defaultDepth), func(it walkedFile) {
		if wanted(it.rel) {
			names = append(names, it.rel)
		}
	})
	if err != nil {
		return failureOf(at, err)
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
	}{res, text.String(), total}, warnings...), nil
}

// fileFacts holds the properties of a file in a listing.
type fileFacts struct {
	Size     *int64 `json:"size,omitempty"`     // bytes
	Modified string `json:"modified,omitempty"` // RFC 3339, in the configured zone
}

func (f *files) facts(info fs.FileInfo) fileFacts {
	size := info.Size()
	return fileFacts{&size, info.ModTime().In(f.Zone).Format(time.RFC3339)}
}

// parseSince parses the argument since. It returns the zero time if the argument is empty. A
// duration counts back from now.
func (f *files) parseSince(written string) (time.Time, error) {
	written = strings.TrimSpace(written)
	if written == "" {
		return time.Time{}, nil
	}
	if d, err := text.ParseSpan(written); err == nil {
		return time.Now().Add(-max(d, -d)), nil
	}
	at, err := time.Parse(time.RFC3339, written)
	if err != nil && f.Since != nil {
		at, err = f.Since(written)
	}
	if err != nil {
		return at, tool.Refuse(tool.KindInvalidArgs, "since: %v", err).WithField("since", "a time like 2026-11-30T08:00:00+01:00, or a duration like 24h or 7d")
	}
	return at, nil
}
