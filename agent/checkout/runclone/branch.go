package runclone

import (
	"context"
	"fmt"

	"rouse/agent/checkout"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/text"
)

// The kinds of errors of a run that has done its work, if its branch could not be collected or
// pushed.
const (
	kindCheckout = "checkout"
	kindPush     = "push"
)

// KeepsBranch reports whether a run failed only because its branch could not be collected or
// pushed. The work of such a run is done.
func KeepsBranch(res ledger.Result) bool { return res.Kind == kindCheckout || res.Kind == kindPush }

// Branch is the branch of a run after Collect.
type Branch struct {
	waits, failed string
	got           checkout.Result
}

// Report adds the state of the branch to the result of the run. If the branch could not be
// collected, the run fails.
func (b Branch) Report(res *ledger.Result) {
	if res.Wait != nil {
		return
	}
	if b.failed != "" && res.Outcome.Done() {
		res.Outcome, res.Kind, res.Verified = domain.OutcomeError, kindCheckout, false
	}
	if res.Outcome.Done() {
		res.Summary = joined(res.Summary, b.waits)
	} else {
		res.Error = joined(joined(res.Error, b.failed), b.waits)
	}
}

// Collect copies the branch of a run into the owner's repository. If that fails, the clone stays
// and Branch.Report adds the error to the run.
func (c *Clones) Collect(ctx context.Context, run ledger.Run, clone checkout.Clone) (b Branch, err error) {
	ctx = context.WithoutCancel(ctx) // even if the run was stopped
	c.mu.RLock()
	defer c.mu.RUnlock()
	got, err := c.store.Collect(ctx, clone)
	if err != nil {
		b.failed = fmt.Sprintf("the branch %s could not be brought back: %v; its clone stays in %s", clone.Branch, err, clone.Dir)
		return b, nil //nolint:nilerr // the run's result says it
	}
	b.waits, b.got = waits(run, got), got
	return b, c.recordCollected(ctx, run, got)
}

func (c *Clones) collect(ctx context.Context, run ledger.Run, clone checkout.Clone) (checkout.Result, error) {
	got, err := c.store.Collect(ctx, clone)
	if err != nil {
		return got, err
	}
	return got, c.recordCollected(ctx, run, got)
}

// recordCollected records the event. The lists of commits and files are in the record of the clone.
func (c *Clones) recordCollected(ctx context.Context, run ledger.Run, res checkout.Result) error {
	return c.record(ctx, run, "checkout.collected", map[string]any{"repo": res.Repo, "branch": res.Branch, "base": res.Base, "head": res.Head, "commits": len(res.Commits), "files": len(res.Files), "uncommitted": res.Uncommitted, "notes": res.Notes})
}

// waits describes the branch and files of a run that wait for the owner. It returns "" if there are
// none.
func waits(run ledger.Run, res checkout.Result) string {
	left := ""
	if res.Uncommitted > 0 {
		left = "not committed in its clone: " + text.Plural(res.Uncommitted, "file")
	}
	if len(res.Commits) == 0 {
		return left
	}
	says := fmt.Sprintf("the branch %s waits for you (%s, %s): rouse apply %d, or rouse discard %[4]d", res.Branch, text.Plural(len(res.Commits), "commit"), text.Plural(len(res.Files), "file"), run.ID)
	return joined(says, left)
}

func joined(before, more string) string {
	if before == "" || more == "" {
		return before + more
	}
	return before + "; " + more
}
