package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"rouse/agent/checkout"
	"rouse/agent/checkout/pullrequest"
	"rouse/agent/loop"
	"rouse/agent/model/playbook"
	"rouse/agent/tool"
	"rouse/internal/dial"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/text"
)

// Checkout is a repository of the owner of which each run gets a private clone as its workdir.
type Checkout struct {
	Repo, Ref string
	Branch    string // a template of CheckoutNames
	Keep      time.Duration
	Push      *Push // after success; nil: the branch waits in Repo
}

// CheckoutNames are the names for the template of checkout.branch. Only the host decides their
// values.
func CheckoutNames() []string { return []string{"Job", "Agent", "Run"} }

// checkout returns the checkout of a run, or nil if it works in the agent's workdir: a call that a person makes by hand does.
func (t *task) checkout() *Checkout {
	if t.detail.Tool != "" {
		return nil
	}
	return cmp.Or(t.governingJob().Checkout, t.agent.Checkout)
}

// makeClone makes the clone of a run, and has the task work there. A later attempt goes on in the same clone.
func (r *Runner) makeClone(ctx context.Context, t *attempt) error {
	o := t.checkout()
	if o == nil {
		return nil
	}
	if r.clones == nil {
		return errors.New("clones are made by a daemon with a home")
	}

	branch, err := playbook.Expand("checkout: branch", o.Branch, map[string]any{"Job": cmp.Or(t.run.Job, t.governingJob().Name, t.agent.Name), "Agent": t.agent.Name, "Run": strconv.FormatInt(t.run.ID, 10)})
	if err != nil {
		return err
	}
	r.clonesMu.RLock()
	defer r.clonesMu.RUnlock()
	clone, err := r.clones.Make(ctx, cloneOf(t.run), checkout.Spec{Repo: o.Repo, Ref: o.Ref, Branch: branch, Agent: t.agent.Name, Keep: o.Keep})
	if err != nil {
		return err
	}
	if clone.Made.Before(t.run.QueuedAt.Add(-time.Minute)) {
		return fmt.Errorf("%s is the clone of an older run %d, of a history that was reset; move that folder away", filepath.Dir(clone.Dir), t.run.ID)
	}
	if err := r.noteCheckout(ctx, t.run, "checkout.made", map[string]any{"repo": clone.Repo, "ref": clone.Ref, "branch": clone.Branch, "base": clone.Base, "notes": clone.Notes}); err != nil {
		return err
	}

	t.clone = &clone
	if slices.Contains(t.agent.PrivateFolders, t.agent.Workdir) || slices.Contains(t.agent.PrivateFolders, o.Repo) {
		t.agent.PrivateFolders = append(slices.Clone(t.agent.PrivateFolders), clone.Dir)
	}
	t.agent.Workdir, t.agent.HostFolder = clone.Dir, ""
	return nil
}

func cloneOf(run ledger.Run) string { return strconv.FormatInt(run.ID, 10) }

// noteCheckout records an event of a run's checkout, unless the last one says the same: a step that a crash has cut off is made again.
func (r *Runner) noteCheckout(ctx context.Context, run ledger.Run, kind string, data any) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return err
	}
	events, err := r.ledger.Events(ctx, ledger.EventFilter{Run: run.ID, Limit: -1})
	if err != nil {
		return err
	}
	for _, e := range slices.Backward(events) {
		if e.Kind == kind {
			if string(e.Data) == string(raw) {
				return nil
			}
			break
		}
	}
	return r.ledger.AppendEvents(ctx, ledger.Event{Run: run.ID, Job: run.Job, Kind: kind, Data: raw})
}

// The kinds of errors by which the work of a run is done, and its branch is not where its owner wants it.
const (
	kindCheckout = "checkout"
	kindPush     = "push"
)

// broughtBack is what became of the branch of a run.
type broughtBack struct {
	waits, failed string
	got           checkout.Result
}

// tell adds it to how the run ended. A branch that could not be brought back is a failure.
func (b broughtBack) tell(res *ledger.Result) {
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

// collectClone brings the branch of a run into the owner's repository. On failure the clone stays.
func (r *Runner) collectClone(ctx context.Context, t *attempt, res loop.Result) (b broughtBack, err error) {
	if t.clone == nil || res.Wait != nil || res.Approval != nil {
		return b, nil
	}
	ctx = context.WithoutCancel(ctx) // also of a run that was stopped
	r.clonesMu.RLock()
	defer r.clonesMu.RUnlock()
	got, err := r.clones.Collect(ctx, *t.clone)
	if err != nil {
		b.failed = fmt.Sprintf("the branch %s could not be brought back: %v; its clone stays in %s", t.clone.Branch, err, t.clone.Dir)
		return b, nil //nolint:nilerr // the run's result says it
	}
	b.waits, b.got = waits(t.run, got), got
	return b, r.noteCheckout(ctx, t.run, "checkout.collected", collected(got))
}

// collected is the data of the event: the lists themselves are in the record of the clone.
func collected(res checkout.Result) map[string]any {
	return map[string]any{"repo": res.Repo, "branch": res.Branch, "base": res.Base, "head": res.Head, "commits": len(res.Commits), "files": len(res.Files), "uncommitted": res.Uncommitted, "notes": res.Notes}
}

// waits says what of a run waits for its owner, "" if nothing does.
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

// CheckoutState is how far the checkout of a run has come, and for how long its clone is kept.
type CheckoutState struct {
	checkout.State
	Run int64
}

// Waiting reports whether the branch waits to be applied or discarded.
func (s CheckoutState) Waiting() bool {
	return s.Result != nil && s.Applied == nil && len(s.Result.Commits) > 0
}

// CheckoutOf returns the checkout of a run, or checkout.ErrNone.
func (r *Runner) CheckoutOf(run ledger.Run) (CheckoutState, error) {
	if r.clones == nil {
		return CheckoutState{}, checkout.ErrNone
	}
	s, err := r.clones.State(cloneOf(run))
	if err == nil && s.Made.Before(run.QueuedAt.Add(-time.Minute)) { // of a history that was reset
		err = checkout.ErrNone
	}
	return CheckoutState{s, run.ID}, err
}

// WaitingCheckouts returns the runs whose branches wait to be applied or discarded, the oldest first.
func (r *Runner) WaitingCheckouts() (out []CheckoutState, err error) {
	if r.clones == nil {
		return nil, nil
	}
	all, err := r.clones.List()
	for _, s := range all {
		id, bad := strconv.ParseInt(s.Run, 10, 64)
		if one := (CheckoutState{s, id}); bad == nil && one.Waiting() {
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b CheckoutState) int { return cmp.Compare(a.Run, b.Run) })
	return out, err
}

// CheckoutDiff returns the changes of a run's branch as text, at most max bytes of it.
func (r *Runner) CheckoutDiff(ctx context.Context, s CheckoutState, max int) (string, error) {
	if s.Result == nil {
		return "", nil
	}
	r.clonesMu.RLock()
	defer r.clonesMu.RUnlock()
	return r.clones.Diff(ctx, *s.Result, max)
}

// ApplyCheckout puts the commits of a finished run on the branch that it began from.
func (r *Runner) ApplyCheckout(ctx context.Context, run ledger.Run, how checkout.How) (checkout.Applied, error) {
	s, err := r.CheckoutOf(run)
	if err != nil {
		return checkout.Applied{}, err
	}
	r.clonesMu.RLock()
	defer r.clonesMu.RUnlock()
	if s.Result == nil { // it could not be brought back when the run ended
		got, err := r.clones.Collect(ctx, s.Clone)
		if err != nil {
			return checkout.Applied{}, err
		}
		if err := r.noteCheckout(ctx, run, "checkout.collected", collected(got)); err != nil {
			return checkout.Applied{}, err
		}
		s.Result = &got
	}
	if len(s.Result.Commits) == 0 {
		return checkout.Applied{}, fmt.Errorf("run %d has no commits; there is nothing to apply", run.ID)
	}
	done, err := r.clones.Apply(ctx, *s.Result, how)
	if err != nil {
		return done, err
	}
	return done, r.noteCheckout(ctx, run, "checkout.applied", map[string]any{"how": done.How, "branch": done.Branch, "before": done.Before, "commit": done.Commit})
}

// DiscardCheckout removes the clone and the branch of a finished run. What was applied stays.
func (r *Runner) DiscardCheckout(ctx context.Context, run ledger.Run) error {
	s, err := r.CheckoutOf(run)
	if err != nil {
		return err
	}
	r.clonesMu.RLock()
	defer r.clonesMu.RUnlock()
	if err := r.clones.Discard(ctx, cloneOf(run)); err != nil {
		return err
	}
	return r.noteCheckout(ctx, run, "checkout.discarded", map[string]any{"branch": s.Branch, "applied": s.Applied != nil})
}

// PruneCheckouts removes the clones that were kept for long enough. Those of runs that have not ended stay.
func (r *Runner) PruneCheckouts(ctx context.Context) error {
	if r.clones == nil {
		return nil
	}
	r.clonesMu.Lock()
	defer r.clonesMu.Unlock()
	removed, err := r.clones.Prune(func(c checkout.Clone) bool {
		id, err := strconv.ParseInt(c.Run, 10, 64)
		if err != nil {
			return false
		}
		run, err := r.ledger.Run(ctx, id)
		return errors.Is(err, ledger.ErrNotFound) || err == nil && run.State == domain.StateFinished
	}, r.ledger.Now())
	for _, name := range removed {
		r.log.Info("a clone was removed, for it was neither applied nor discarded for long enough; its branch stays", "run", name)
	}
	return err
}

// recoverCheckouts finishes what a crash has cut off. What cannot be finished is told, and can be applied again.
func (r *Runner) recoverCheckouts(ctx context.Context) {
	if r.clones == nil {
		return
	}
	if err := r.clones.Recover(ctx); err != nil {
		r.log.Error("applying a run was cut off, and could not be finished; apply it again", "err", err)
	}
}

// CheckoutUsage measures the disk space of clones and mirrors.
func (r *Runner) CheckoutUsage() (checkout.Usage, error) {
	if r.clones == nil {
		return checkout.Usage{}, nil
	}
	return r.clones.Usage()
}

const pullRequestTimeout = 30 * time.Second

// Push is what the owner has had done with the branch of a run that ended with success.
type Push struct {
	Remote      string // of the owner's repository, by its name
	Token       string
	PullRequest bool
	Provider    string // github or gitlab; "" is told by the host of the remote
}

// pushBranch pushes the branch of a successful run. On failure the run ends as an error, and the
// branch stays in the owner's repository.
func (r *Runner) pushBranch(ctx context.Context, t *attempt, got checkout.Result, out *ledger.Result) error {
	o := t.checkout()
	if o == nil || o.Push == nil || out.Outcome != domain.OutcomeSuccess || out.Wait != nil || len(got.Commits) == 0 {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	if err := r.push(ctx, t.run, *o.Push, got); err != nil {
		out.Outcome, out.Kind, out.Verified = domain.OutcomeError, kindPush, false
		out.Error = joined(fmt.Sprintf("the branch %s is in %s, and was not sent: %v; send it with: git push %s %[1]s", got.Branch, got.Repo, err, o.Push.Remote), out.Error)
		return nil
	}
	url, err := r.openPullRequest(ctx, t.run, *o.Push, got, out.Summary)
	if err != nil {
		out.Outcome, out.Kind, out.Verified = domain.OutcomeError, kindPush, false
		out.Error = joined(fmt.Sprintf("the branch %s was pushed to %s, and no pull request could be opened: %v", got.Branch, o.Push.Remote, err), out.Error)
		return nil
	}
	says := fmt.Sprintf("it was pushed to %s", o.Push.Remote)
	if url != "" {
		says = joined(says, "pull request: "+url)
	}
	out.Summary = joined(out.Summary, says)
	return nil
}

func (r *Runner) push(ctx context.Context, run ledger.Run, o Push, got checkout.Result) error {
	// A stranger's text must not send private data anywhere unasked.
	now, err := r.ledger.Run(ctx, run.ID)
	if err != nil {
		return err
	}
	if strings.Contains(now.Taint, ledger.TaintUntrusted) && strings.Contains(now.Taint, tool.Private.String()) {
		return fmt.Errorf("the run met untrusted content and private data, which may be in the commits; look at them first: rouse apply %d --diff", run.ID)
	}

	r.clonesMu.RLock()
	defer r.clonesMu.RUnlock()
	if err := r.clones.Push(ctx, got, o.Remote, checkout.Login{Token: o.Token}); err != nil {
		return err
	}
	return r.noteCheckout(ctx, run, "checkout.pushed", map[string]any{"remote": o.Remote, "branch": got.Branch, "head": got.Head})
}

// openPullRequest opens the pull request of a branch that was pushed. It returns its address, "" if none is wanted.
func (r *Runner) openPullRequest(ctx context.Context, run ledger.Run, o Push, got checkout.Result, summary string) (string, error) {
	if !o.PullRequest {
		return "", nil
	}
	r.clonesMu.RLock()
	defer r.clonesMu.RUnlock()
	remote, err := r.clones.Remote(ctx, got, o.Remote)
	if err != nil {
		return "", err
	}
	client, err := pullrequest.For(remote)
	if err != nil {
		return "", err
	}
	if o.Provider != "" {
		client.Provider = pullrequest.Provider(o.Provider)
	}
	client.Token, client.HTTP = o.Token, &http.Client{Transport: dial.New(dial.Options{Own: []string{client.Base}, Proxy: true}), Timeout: pullRequestTimeout}
	opened, err := client.Open(ctx, pullrequest.Request{Branch: got.Branch, Target: got.Target, Title: r.Redact(pullRequestTitle(run, got)), Body: r.Redact(pullRequestBody(run, got, summary))})
	if err != nil {
		return "", err
	}
	return opened.URL, r.noteCheckout(ctx, run, "checkout.proposed", map[string]any{"url": opened.URL, "number": opened.Number})
}

func pullRequestTitle(run ledger.Run, got checkout.Result) string {
	if len(got.Commits) == 1 && strings.TrimSpace(got.Commits[0].Subject) != "" {
		return text.Truncate(text.OneLine(got.Commits[0].Subject), 200)
	}
	return fmt.Sprintf("%s: %s", run.Job, text.Plural(len(got.Commits), "commit"))
}

// pullRequestBody has the texts of the agent in a block of code: there they link to nothing, and call nobody.
func pullRequestBody(run ledger.Run, got checkout.Result, summary string) string {
	var said strings.Builder
	said.WriteString(summary + "\n\n")
	for _, c := range got.Commits {
		fmt.Fprintf(&said, "%.12s %s\n", c.Hash, text.OneLine(c.Subject))
	}
	block := strings.ReplaceAll(text.Truncate(text.Lines(said.String()), 4_000), "```", "'''")
	return fmt.Sprintf("Run %d of the job %s made %s.\n\n```text\n%s\n```\n", run.ID, run.Job, text.Plural(len(got.Commits), "commit"), strings.TrimSpace(block))
}
