package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"rouse/agent/checkout"
	"rouse/agent/checkout/runclone"
	"rouse/cmd/internal/api"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
)

// maxCheckoutDiff is the maximum size of a diff in a response, in bytes.
const maxCheckoutDiff = 256 << 10

// Checkout returns the checkout of a run, or nil if the run has no checkout. If diff is set, the
// result includes the changes.
func (x *Checkouts) Checkout(ctx context.Context, run ledger.Run, diff bool) (*api.Checkout, error) {
	s, err := x.Runner.Clones().Of(run)
	if errors.Is(err, checkout.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	c := newCheckout(run, s)
	if err := x.addSent(ctx, run, &c); err != nil {
		return nil, err
	}
	if diff {
		if c.Diff, err = x.Runner.Clones().Diff(ctx, s, maxCheckoutDiff); err != nil {
			c.Notes = append(c.Notes, "the changes cannot be shown: "+err.Error())
		}
	}
	return &c, nil
}

// addSent adds the remote branch and the pull request of a checkout, which are recorded in the
// run's events.
func (x *Checkouts) addSent(ctx context.Context, run ledger.Run, c *api.Checkout) error {
	events, err := x.Ledger.Events.List(ctx, event.Filter{Run: run.ID, Limit: -1})
	if err != nil {
		return err
	}
	for _, e := range events {
		var sent struct{ Remote, URL string }
		if (e.Kind != "checkout.pushed" && e.Kind != "checkout.proposed") || json.Unmarshal(e.Data, &sent) != nil {
			continue
		}
		c.Pushed, c.PullRequest = cmp.Or(sent.Remote, c.Pushed), cmp.Or(sent.URL, c.PullRequest)
	}
	return nil
}

func newCheckout(run ledger.Run, s runclone.State) api.Checkout {
	c := api.Checkout{Run: strconv.FormatInt(run.ID, 10), State: api.CheckoutOpen, Repo: s.Repo, Ref: s.Ref, Target: s.Target, Branch: s.Branch, Base: s.Base, Commits: []checkout.Commit{}, Files: []checkout.FileStat{},
		Notes: append([]string{}, s.Notes...), Applied: s.Applied, Clone: s.Dir, KeptUntil: api.At(s.Made.Add(s.Keep)), Taint: append([]string{}, strings.Split(run.Taint, "")...)}
	if s.Result != nil {
		c.State, c.Head, c.Uncommitted = api.CheckoutEmpty, s.Result.Head, s.Result.Uncommitted
		c.Commits, c.Files, c.Notes = append(c.Commits, s.Result.Commits...), append(c.Files, s.Result.Files...), append([]string{}, s.Result.Notes...)
	}
	switch {
	case s.Applied != nil:
		c.State = api.CheckoutApplied
	case s.Waiting():
		c.State = api.CheckoutWaiting
	}
	return c
}

// WaitingCheckouts returns the checkouts with branches that wait to be applied or discarded.
func (x *Checkouts) WaitingCheckouts(ctx context.Context) ([]api.Checkout, error) {
	all, err := x.Runner.Clones().Waiting()
	out := []api.Checkout{}
	for _, s := range all {
		run, missing := x.Ledger.Runs.Get(ctx, s.Run)
		if missing == nil {
			out = append(out, newCheckout(run, s))
		}
	}
	return out, err
}

// Apply applies the commits of a run to the branch that it started from.
func (x *Checkouts) Apply(ctx context.Context, run ledger.Run, ask api.ApplyRequest) (api.Checkout, error) {
	how := cmp.Or(checkout.How(ask.How), checkout.Merge)
	if how != checkout.Merge && how != checkout.CherryPick {
		return api.Checkout{}, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("%q is neither merge nor cherry-pick", ask.How)}
	}

	s, err := x.Runner.Clones().Of(run)
	if err == nil && ask.Head != "" && s.Result != nil && s.Result.Head != ask.Head {
		err = errors.New("its branch has other commits than those that were shown; look at it again")
	}
	if err == nil {
		_, err = x.Runner.Clones().Apply(ctx, run, how)
	}
	if err != nil {
		return api.Checkout{}, checkoutError(run, "applied", err)
	}
	s, err = x.Runner.Clones().Of(run)
	return newCheckout(run, s), err
}

// Discard removes the clone and the branch of a run.
func (x *Checkouts) Discard(ctx context.Context, run ledger.Run) (api.Checkout, error) {
	s, err := x.Runner.Clones().Of(run)
	if err == nil {
		err = x.Runner.Clones().Discard(ctx, run)
	}
	if err != nil {
		return api.Checkout{}, checkoutError(run, "discarded", err)
	}
	return newCheckout(run, s), nil // state before the removal
}

// checkoutError returns the error for a branch that was not applied or discarded. The branch is
// unchanged.
func checkoutError(run ledger.Run, done string, err error) error {
	if errors.Is(err, checkout.ErrNone) {
		return &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("run %d has no checkout, or it was discarded", run.ID)}
	}
	return &api.Error{Status: http.StatusConflict, Message: fmt.Sprintf("run %d was not %s: %v", run.ID, done, err)}
}
