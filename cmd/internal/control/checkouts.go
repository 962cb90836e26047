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

// maxCheckoutDiff is how much of a diff is sent, in bytes.
const maxCheckoutDiff = 256 << 10

// Checkout returns the checkout of a run, or nil if the run has no checkout. If diff is true, it includes the changes.
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

// addSent adds where the branch was sent, which the events of its run say.
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

// WaitingCheckouts returns the checkouts whose branches wait to be applied or discarded.
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

// Apply puts the commits of a run on the branch that it began from.
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
	return newCheckout(run, s), nil // as it was
}

// checkoutError says why a branch was not applied or discarded. Nothing was lost.
func checkoutError(run ledger.Run, done string, err error) error {
	if errors.Is(err, checkout.ErrNone) {
		return &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("run %d has no checkout, or it was discarded", run.ID)}
	}
	return &api.Error{Status: http.StatusConflict, Message: fmt.Sprintf("run %d was not %s: %v", run.ID, done, err)}
}
