package watcher

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"rouse/internal/nofollow"
	"rouse/watcher/after"
	"rouse/watcher/match"
)

const (
	defaultSettle   = time.Second
	defaultMaxWait  = 30 * time.Second
	defaultMaxFiles = 500
)

// What a watch queues runs of.
const (
	ModePerFile  = "per_file" // each file that is ready
	ModeBatch    = "batch"    // all files that are ready once the folder is quiet
	ModeConverge = "converge" // the folder, again and again until it stays as it is
)

// What a watch does with files that were there before the job.
const (
	ExistingProcess = "process"
	ExistingIgnore  = "ignore"
)

// Collect describes when a watch hands over all collected files as one batch.
type Collect struct {
	When string                          // in words, such as "until 08:00" or "every 24h"; "" if the watch does not collect
	Next func(after time.Time) time.Time // returns the first handover after a time
}

// Watch is one job's folder.
type Watch struct {
	match.Filter         // the files that it takes
	Job, Agent           string
	Path                 string // absolute
	Recursive            bool
	FollowSymlinks       bool          // those that lead to something in the folder
	Definition           string        // a hash of what its job does: a file that failed is tried again under another one
	TakeOpen             bool          // also files that a program has open for writing
	OwnFolder            string        // its agent's own, resolved: a hard link there may be read
	Mode                 string        // "" means per_file
	Settle               time.Duration // 0 means 1s
	MaxWait              time.Duration // 0 means 30s: so long a folder that is never quiet is waited for, in batch and converge
	MaxFiles             int           // 0 means 500: of one batch
	Collect              Collect       // only with mode batch
	Existing             string        // "" means process for per_file, ignore for batch and converge
	OnSuccess, OnFailure after.Rule    // not of converge
	// Boundary holds the places in which agents or strangers make names: below them no link is followed
	// on the way to the folder, or to where its files are moved.
	Boundary nofollow.UntrustedDirs
}

// validated is a copy of watches with their defaults, or an error of all that is wrong with them.
func validated(watches []Watch) ([]Watch, error) {
	out := make([]Watch, len(watches))
	seen := map[string]bool{}
	var errs []error
	for i, w := range watches {
		w.setDefaults()
		if err := w.validate(); err != nil {
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

func (w *Watch) setDefaults() {
	w.Mode = cmp.Or(w.Mode, ModePerFile)
	if w.Settle <= 0 {
		w.Settle = defaultSettle
	}

	if w.MaxWait <= 0 {
		w.MaxWait = defaultMaxWait
	}

	if w.MaxFiles <= 0 {
		w.MaxFiles = defaultMaxFiles
	}

	if w.Existing == "" {
		w.Existing = ExistingIgnore
		if w.Mode == ModePerFile {
			w.Existing = ExistingProcess
		}
	}

	w.Path = filepath.Clean(w.Path)
}

func (w *Watch) validate() error {
	switch w.Mode {
	case ModePerFile, ModeBatch:
	case ModeConverge:
		for _, a := range []after.Rule{w.OnSuccess, w.OnFailure} {
			if a.Action != "" && a.Action != after.Leave {
				return fmt.Errorf("mode converge takes the folder as a whole and has no files to %s; leave them (on_success, on_failure)", a.Action)
			}
		}
	default:
		return fmt.Errorf("mode is %q; it is per_file, batch or converge", w.Mode)
	}

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

	for key, a := range map[string]after.Rule{"on_success": w.OnSuccess, "on_failure": w.OnFailure} {
		switch a.Action {
		case "", after.Leave, after.Delete:
		case after.Move:
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

// afterRules returns what happens to files of the folder after their runs.
func (w *Watch) afterRules() *after.Folder {
	return &after.Folder{Path: w.Path, Boundary: w.Boundary, OnSuccess: w.OnSuccess, OnFailure: w.OnFailure}
}

// destinations are the folders that files are moved to.
func (w *Watch) destinations() []string {
	var out []string
	for _, a := range []after.Rule{w.OnSuccess, w.OnFailure} {
		if a.Action == after.Move {
			out = append(out, a.Dir)
		}
	}
	return out
}

// equal reports whether two watches are the same, apart from the function of Collect, which its description stands for.
func (w Watch) equal(o Watch) bool {
	if !w.Boundary.Equal(o.Boundary) {
		return false
	}
	w.Boundary, o.Boundary = nofollow.UntrustedDirs{}, nofollow.UntrustedDirs{}
	w.Collect.Next, o.Collect.Next = nil, nil
	return reflect.DeepEqual(w, o)
}

// resolveLinks resolves the owner's links of a path, as far as it exists: destinations may be created
// later.
func (w *Watch) resolveLinks(path string) string {
	real, err := w.Boundary.Resolve(path)
	if err != nil {
		return path // whoever opens it says what is wrong
	}
	return real
}
