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

// The modes of a watch.
const (
	ModePerFile  = "per_file" // a run for each file
	ModeBatch    = "batch"    // a run for all files that are ready once the folder is quiet
	ModeConverge = "converge" // runs for the whole folder until it no longer changes
)

// The ways to treat files from before the job.
const (
	ExistingProcess = "process"
	ExistingIgnore  = "ignore"
)

// Collect describes when a watch hands over all collected files as one batch.
type Collect struct {
	// When describes the handovers in words, such as "until 08:00" or "every 24h". It is "" if the
	// watch does not collect.
	When string
	Next func(after time.Time) time.Time // returns the first handover after a time
}

// Watch is a job's watched folder.
type Watch struct {
	match.Filter   // the files that it selects
	Job, Agent     string
	Path           string // absolute
	Recursive      bool
	FollowSymlinks bool // whether to follow links to targets inside the folder
	// Definition is a hash of the job's work. A failed file is tried again after the hash has
	// changed.
	Definition string
	TakeOpen   bool          // whether to take files that a program has open for writing
	OwnFolder  string        // resolved folder of its agent, in which hard links may be read
	Mode       string        // "" means per_file
	Settle     time.Duration // zero means 1s
	// MaxWait limits the wait for a quiet folder, in the modes batch and converge. Zero means 30s.
	MaxWait              time.Duration
	MaxFiles             int        // maximum files of a batch; zero means 500
	Collect              Collect    // only with mode batch
	Existing             string     // "" means process for per_file, ignore for batch and converge
	OnSuccess, OnFailure after.Rule // not in mode converge
	// Boundary holds the directories in which agents or strangers can create names. Below them no
	// link is followed on the way to the folder or to a destination.
	Boundary nofollow.UntrustedDirs
}

// validated returns a copy of watches with their defaults, or an error that lists all mistakes.
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

// afterRules returns the rules for the files of the folder after their runs.
func (w *Watch) afterRules() *after.Folder {
	return &after.Folder{Path: w.Path, Boundary: w.Boundary, OnSuccess: w.OnSuccess, OnFailure: w.OnFailure}
}

// destinations returns the folders to which files are moved.
func (w *Watch) destinations() []string {
	var out []string
	for _, a := range []after.Rule{w.OnSuccess, w.OnFailure} {
		if a.Action == after.Move {
			out = append(out, a.Dir)
		}
	}
	return out
}

// equal reports whether two watches are equal. It compares the function of Collect by its
// description.
func (w Watch) equal(o Watch) bool {
	if !w.Boundary.Equal(o.Boundary) {
		return false
	}
	w.Boundary, o.Boundary = nofollow.UntrustedDirs{}, nofollow.UntrustedDirs{}
	w.Collect.Next, o.Collect.Next = nil, nil
	return reflect.DeepEqual(w, o)
}

// resolveLinks resolves the owner's links in the existing part of a path. Destinations may be
// created later.
func (w *Watch) resolveLinks(path string) string {
	real, err := w.Boundary.Resolve(path)
	if err != nil {
		return path // opening the path returns the error
	}
	return real
}
