package watcher

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
)

const defaultSettle = time.Second

// What a watch does with files that were there before the job.
const (
	ExistingProcess = "process"
	ExistingIgnore  = "ignore"
)

// What happens to a file after its run.
const (
	actionLeave  = "leave"
	actionMove   = "move"
	actionDelete = "delete"
)

// After is what happens to a file after its run.
type After struct {
	Action string // "" or leave, move, delete
	Dir    string // of move
}

// Watch is one job's folder.
type Watch struct {
	Job, Agent           string
	Path                 string   // absolute
	Include, Exclude     []string // a pattern without a slash matches at any depth; dir means dir/**
	Recursive            bool
	Settle               time.Duration // 0 means 1s
	Existing             string        // "" means process
	OnSuccess, OnFailure After
}

// prepared checks watches and fills their defaults.
func prepared(watches []Watch) ([]Watch, error) {
	out := make([]Watch, len(watches))
	seen := map[string]bool{}
	var errs []error
	for i, w := range watches {
		if w.Settle <= 0 {
			w.Settle = defaultSettle
		}
		if w.Existing == "" {
			w.Existing = ExistingProcess
		}
		w.Path = filepath.Clean(w.Path)
		if err := w.check(); err != nil {
			errs = append(errs, fmt.Errorf("job %s: %w", w.Job, err))
		}
		if seen[w.Job] {
			errs = append(errs, fmt.Errorf("job %s: it has two watches; give each folder a job of its own", w.Job))
		}
		seen[w.Job] = true
		out[i] = w
	}
	return out, errors.Join(errs...)
}

func (w *Watch) check() error {
	if !filepath.IsAbs(w.Path) {
		return fmt.Errorf("the watched folder %q is not an absolute path", w.Path)
	}
	if w.Existing != ExistingProcess && w.Existing != ExistingIgnore {
		return fmt.Errorf("existing is %q; it is process or ignore", w.Existing)
	}
	for _, g := range slices.Concat(w.Include, w.Exclude) {
		if !doublestar.ValidatePattern(g) {
			return fmt.Errorf("the pattern %q is broken", g)
		}
	}
	for key, a := range map[string]After{"on_success": w.OnSuccess, "on_failure": w.OnFailure} {
		switch a.Action {
		case "", actionLeave, actionDelete:
		case actionMove:
			if !filepath.IsAbs(a.Dir) {
				return fmt.Errorf("%s moves to %q, which is not an absolute path", key, a.Dir)
			}
			if filepath.Clean(a.Dir) == w.Path {
				return fmt.Errorf("%s moves files to the watched folder itself, where they would be taken again; name a folder inside it or elsewhere", key)
			}
		default:
			return fmt.Errorf("%s is %q; it is leave, move or delete", key, a.Action)
		}
	}
	return nil
}

// destinations are the folders that files are moved to.
func (w *Watch) destinations() []string {
	var out []string
	for _, a := range []After{w.OnSuccess, w.OnFailure} {
		if a.Action == actionMove {
			out = append(out, a.Dir)
		}
	}
	return out
}

func (w *Watch) equal(o *Watch) bool {
	return w.Job == o.Job && w.Agent == o.Agent && w.Path == o.Path && w.Recursive == o.Recursive && w.Settle == o.Settle &&
		w.Existing == o.Existing && w.OnSuccess == o.OnSuccess && w.OnFailure == o.OnFailure &&
		slices.Equal(w.Include, o.Include) && slices.Equal(w.Exclude, o.Exclude)
}

// inside gives a path relative to a folder that holds it, with slashes.
func inside(dir, path string) (string, bool) {
	rel, err := filepath.Rel(dir, path)
	if err != nil || rel == "." || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return "", false
	}
	return filepath.ToSlash(rel), true
}

// resolved is a path with the links resolved of as much of it as exists.
func resolved(path string) string {
	rest := ""
	for dir := path; ; dir = filepath.Dir(dir) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, rest)
		}
		if dir == filepath.Dir(dir) {
			return path
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}
