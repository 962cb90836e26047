package checkout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rouse/internal/atomicfile"
)

// Discard removes the clone of a run, and its branch in the owner's repository. A branch that another program has
// moved since stays, and so does one that is checked out: the error names it.
func (s *Store) Discard(ctx context.Context, run string) error {
	defer s.lock("run " + run)()
	rec, err := s.read(run)
	if err != nil {
		return err
	}
	if len(rec.Heads) > 0 {
		if err := s.dropBranch(ctx, rec); err != nil {
			return fmt.Errorf("checkout of run %s: %w", run, err)
		}
	}
	return s.remove(run)
}

// dropBranch removes the branch that a run brought.
func (s *Store) dropBranch(ctx context.Context, rec record) error {
	r, err := openRepository(ctx, rec.Repo, s.scratch())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the repository is gone
	}
	if err != nil {
		return err
	}
	defer r.close()

	now, err := r.ref(ctx, rec.Branch)
	if err != nil || now == "" {
		return err
	}
	if !slices.Contains(rec.Heads, now) {
		return fmt.Errorf("the branch %s of %s was changed by another program (it is at %s); remove it yourself if it is of no use: git branch -D %s", rec.Branch, r.path, short(now), rec.Branch)
	}
	if err := r.checkNotOut(rec.Branch, "discard"); err != nil {
		return err
	}
	_, err = r.bareGit().run(ctx, "update-ref", "-d", "refs/heads/"+rec.Branch, now)
	return err
}

// remove removes the folder of a run. It has another name meanwhile, so that a part of it is never taken for a clone.
func (s *Store) remove(run string) error {
	gone := s.runDir(".gone-" + run)
	if err := removeAll(gone); err != nil {
		return err
	}
	if err := atomicfile.Rename(s.runDir(run), gone); err != nil {
		return err
	}
	step()
	return removeAll(gone)
}

// Recover finishes each Apply that a crash has interrupted. Call it when the daemon starts.
func (s *Store) Recover(ctx context.Context) error {
	entries, err := os.ReadDir(filepath.Join(s.Dir, "runs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		rec, err := s.read(e.Name())
		if err == nil && rec.Pending != nil && rec.Result != nil {
			_, err = s.Apply(ctx, *rec.Result, rec.Pending.How)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Prune removes the clones that were made before now minus keep, and returns their runs. Their branches in the owner's
// repository stay. It also removes the remains of a daemon that was killed, and mirrors that no clone has borrowed
// from for as long. Call it while no clone is being made.
func (s *Store) Prune(keep time.Duration, now time.Time) (removed []string, err error) {
	entries, err := os.ReadDir(filepath.Join(s.Dir, "runs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	errs := []error{removeAll(s.scratch())}
	used := map[string]bool{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			errs = append(errs, removeAll(s.runDir(e.Name())))
			continue
		}
		rec, err := s.read(e.Name())
		if err == nil && rec.Made.Before(now.Add(-keep)) {
			if err = s.remove(e.Name()); err == nil {
				removed = append(removed, e.Name())
				continue
			}
		}
		errs = append(errs, err)
		used[rec.Mirror] = true
	}

	mirrors, _ := filepath.Glob(filepath.Join(s.Dir, "mirrors", "*"))
	for _, dir := range mirrors {
		if info, err := os.Stat(dir); err == nil && !used[dir] && info.ModTime().Before(now.Add(-keep)) {
			errs = append(errs, removeAll(dir))
		}
	}
	return removed, errors.Join(errs...)
}
