package checkout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"rouse/internal/atomicfile"
)

// Discard removes the clone of a run and its branch in the owner's repository. It returns an error
// and keeps the branch if another program has moved it or it is checked out.
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

// dropBranch removes the collected branch of a run.
func (s *Store) dropBranch(ctx context.Context, rec record) error {
	r, err := openRepository(ctx, rec.Repo, s.scratch())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the repository no longer exists
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

// remove removes the folder of a run. It renames the folder first, so that a partly removed folder
// is not mistaken for a clone.
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
	all, err := s.List()
	errs := []error{err}
	for _, c := range all {
		if c.pending != nil && c.Result != nil {
			_, err := s.Apply(ctx, *c.Result, c.pending.How)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Prune removes clones that are older than their Keep, if ended reports that their run has ended.
// It returns the runs of the removed clones. Their branches in the owner's repository stay. It also
// removes remains of a killed daemon and mirrors without clones. It must not run while a clone is
// being made.
func (s *Store) Prune(ended func(c Clone) bool, now time.Time) (removed []string, err error) {
	all, err := s.List()
	errs := []error{err, removeAll(s.scratch())}
	used := map[string]bool{}
	for _, c := range all {
		if c.Keep > 0 && c.Made.Before(now.Add(-c.Keep)) && ended(c.Clone) {
			err := s.remove(c.Run)
			if err == nil {
				removed = append(removed, c.Run)
				continue
			}
			errs = append(errs, err)
		}
		used[c.Mirror] = true
	}

	for _, unfinished := range []string{"runs/.*", "mirrors/.*"} {
		left, _ := filepath.Glob(filepath.Join(s.Dir, unfinished))
		for _, dir := range left {
			errs = append(errs, removeAll(dir))
		}
	}
	if err != nil {
		return removed, errors.Join(errs...) // an unreadable clone may borrow from any mirror
	}
	mirrors, _ := filepath.Glob(filepath.Join(s.Dir, "mirrors", "*"))
	for _, dir := range mirrors {
		info, err := os.Stat(dir)
		if err == nil && !used[dir] && info.ModTime().Before(now.Add(-mirrorKeep)) {
			errs = append(errs, removeAll(dir))
		}
	}
	return removed, errors.Join(errs...)
}

// mirrorKeep is the time a mirror without clones is kept. It is long enough for a weekly job.
const mirrorKeep = 14 * 24 * time.Hour
