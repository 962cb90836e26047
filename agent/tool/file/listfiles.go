package file

import (
	"cmp"
	"context"

	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"rouse/agent/tool"
)

// Limits of list_files (YOA-03).
const (
	maxListed   = 200
	listTimeout = 10 * time.Second
)

const listAliasText = "List the files below a folder, by their paths. `pattern` is a glob like **/*.csv; `max_depth` is 3 unless given. Hidden files, node_modules, and what .gitignore names are left out."

// listAlias is list_files: files alone, sorted, as text and as the entries of a listing (UNI-02).
func (f *files) listAlias(s tool.Spec) (tool.Tool, error) {
	type args struct {
		Path     string `json:"path,omitempty" jsonschema:"default the working folder"`
		Pattern  string `json:"pattern,omitempty" jsonschema:"glob of the files"`
		MaxDepth int    `json:"max_depth,omitempty" jsonschema:"default 3"`
	}
	return tool.Define(s, func(ctx context.Context, _ tool.Invocation, a args) (tool.Envelope, error) {
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

	var mu sync.Mutex
	var names []string
	wanted := globMatcher(glob)
	w, err := f.walkPath(ctx, at, depth, func(it walkedFile) {
		if wanted(it.rel) {
			mu.Lock()
			defer mu.Unlock()
			names = append(names, it.rel)
		}
	})
	if err != nil {
		return pathFailure(at, err)
	}

	slices.Sort(names)
	total := len(names)
	res := listing{Kind: "listing", Path: at, Entries: []entry{}, Truncated: total > maxListed || w.incomplete.Load()}
	var text strings.Builder
	for _, rel := range names[:min(total, maxListed)] {
		shown := path.Join(filepath.ToSlash(at), rel)
		res.Entries = append(res.Entries, entry{path.Base(shown), shown, "file"})
		text.WriteString(quotePath(shown) + "\n")
	}

	res.EntryCount = len(res.Entries)
	warnings := w.unreadWarning()
	if w.incomplete.Load() {
		warnings = append(warnings, "the list was ended early: the folder has too many entries, or is too slow to read; list a smaller one")
	}

	return tool.Success(struct {
		listing
		Text  string `json:"text"`
		Total int    `json:"total"`
	}{res, text.String(), total}, warnings...)
}
