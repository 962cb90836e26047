package agent

import (
	"context"
	"path/filepath"
	"time"

	"rouse/agent/tool"
	"rouse/internal/fspath"
	"rouse/internal/ledger"
	"rouse/internal/nofollow"
)

// claimOutput records a file that a run writes into the folder that its job watches, so that the
// job does not wake itself.
func (r *Runner) claimOutput(ctx context.Context, t *attempt, o tool.Output) error {
	// A watch knows its files by the real name of the folder, which may be younger than the run.
	root, err := t.Plan.Boundary.Resolve(t.Job.Watched.Folder)
	if err != nil {
		return nil //nolint:nilerr // a folder that is not there holds nothing
	}

	rel, ok := fspath.Rel(root, o.Path)
	if !ok || rel == "." {
		return nil // not in the folder
	}
	if !t.Job.Watched.Recursive && filepath.Dir(rel) != "." {
		return nil
	}

	return r.ledger.ClaimOwnOutput(ctx, t.Try, ledger.Claim{Job: t.Job.Name, Path: filepath.ToSlash(o.Path), Hash: o.Hash, Size: o.Size, ModTime: o.ModTime})
}

// claimExpected claims the files that the job expects, whatever made them.
func (r *Runner) claimExpected(ctx context.Context, t *attempt) error {
	if t.Job.Watched.Folder == "" {
		return nil
	}

	for _, e := range t.Job.Expect {
		path := spelled(t.Plan.Boundary, e.File)
		if e.File == "" || fileUnmet(t.Plan.Boundary, path, t.Try.StartedAt) != "" {
			continue
		}

		o, ok := statOutput(ctx, t.Plan.Boundary, path)
		if !ok {
			continue
		}
		if err := r.claimOutput(ctx, t, o); err != nil {
			return err
		}
	}

	return nil
}

// statOutput is a file as it is now; false when it cannot be told, or changes while it is read.
func statOutput(ctx context.Context, b nofollow.Boundary, path string) (tool.Output, bool) {
	stat := func() (int64, time.Time, bool) {
		info, err := b.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			return 0, time.Time{}, false
		}
		return info.Size(), info.ModTime(), true
	}

	actual, err := b.Resolve(path)
	size, modified, ok := stat()
	if err != nil || !ok {
		return tool.Output{}, false
	}

	// The hash counts only if the file stayed the same while it was read.
	hash, err := contentHash(ctx, b, path)
	if err != nil {
		return tool.Output{}, false
	}
	if again, later, ok := stat(); !ok || again != size || !later.Equal(modified) {
		return tool.Output{}, false
	}

	return tool.Output{Path: actual, Hash: hash, Size: size, ModTime: modified}, true
}
