package agent

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"rouse/agent/checkout"
	"rouse/agent/checkout/pullrequest"
	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/dial"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// pullRequestTimeout bounds each request to the API of a server.
const pullRequestTimeout = 30 * time.Second

// Push is what the owner has had done with the branch of a run that ended with success.
type Push struct {
	Remote      string // of the owner's repository, by its name
	Token       string
	PullRequest bool
	Provider    string // github or gitlab; "" is told by the host of the remote
}

// pushBranch sends the branch of a run to a server after success. If that fails, the run ends as an error, because its owner waits
// for the branch there; it stays in the owner's repository in any case. A step that was done before a crash is found done.
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

// push pushes a branch.
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

// pullRequestTitle is the subject of a single commit, or says how many there are.
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
