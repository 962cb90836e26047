package runclone

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"rouse/agent/checkout"
	"rouse/agent/checkout/pullrequest"
	"rouse/agent/tool"
	"rouse/internal/dial"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/label"
	"rouse/internal/text"
)

const pullRequestTimeout = 30 * time.Second

// Push pushes the branch of a successful run. If that fails, the result becomes an error and the
// branch stays in the owner's repository. If o is nil, Push does nothing.
func (c *Clones) Push(ctx context.Context, run ledger.Run, o *checkout.PushOptions, b Branch, out *ledger.Result) {
	got := b.got
	if o == nil || out.Outcome != domain.OutcomeSuccess || out.Wait != nil || len(got.Commits) == 0 {
		return
	}
	ctx = context.WithoutCancel(ctx)
	if err := c.push(ctx, run, *o, got); err != nil {
		out.Outcome, out.Kind, out.Verified = domain.OutcomeError, kindPush, false
		out.Error = joined(fmt.Sprintf("the branch %s is in %s, and was not sent: %v; send it with: git push %s %[1]s", got.Branch, got.Repo, err, o.Remote), out.Error)
		return
	}
	url, err := c.openPullRequest(ctx, run, *o, got, out.Summary)
	if err != nil {
		out.Outcome, out.Kind, out.Verified = domain.OutcomeError, kindPush, false
		out.Error = joined(fmt.Sprintf("the branch %s was pushed to %s, and no pull request could be opened: %v", got.Branch, o.Remote, err), out.Error)
		return
	}
	says := fmt.Sprintf("it was pushed to %s", o.Remote)
	if url != "" {
		says = joined(says, "pull request: "+url)
	}
	out.Summary = joined(out.Summary, says)
}

func (c *Clones) push(ctx context.Context, run ledger.Run, o checkout.PushOptions, got checkout.Result) error {
	// Untrusted content must not make the host send private data.
	now, err := c.ledger.Runs.Get(ctx, run.ID)
	if err != nil {
		return err
	}
	if strings.Contains(now.Taint, label.TaintUntrusted) && strings.Contains(now.Taint, tool.Private.String()) {
		return fmt.Errorf("the run met untrusted content and private data, which may be in the commits; look at them first: rouse apply %d --diff", run.ID)
	}

	c.mu.RLock()
	defer c.mu.RUnlock()
	if err := c.store.Push(ctx, got, o.Remote, checkout.Login{Token: o.Token}); err != nil {
		return err
	}
	return c.record(ctx, run, "checkout.pushed", map[string]any{"remote": o.Remote, "branch": got.Branch, "head": got.Head})
}

// openPullRequest opens a pull request for a pushed branch. It returns its URL, or "" if pull
// requests are not configured.
func (c *Clones) openPullRequest(ctx context.Context, run ledger.Run, o checkout.PushOptions, got checkout.Result, summary string) (string, error) {
	if !o.PullRequest {
		return "", nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	remote, err := c.store.Remote(ctx, got, o.Remote)
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
	opened, err := client.Open(ctx, pullrequest.Request{Branch: got.Branch, Target: got.Target, Title: c.redact(pullRequestTitle(run, got)), Body: c.redact(pullRequestBody(run, got, summary))})
	if err != nil {
		return "", err
	}
	return opened.URL, c.record(ctx, run, "checkout.proposed", map[string]any{"url": opened.URL, "number": opened.Number})
}

func pullRequestTitle(run ledger.Run, got checkout.Result) string {
	if len(got.Commits) == 1 && strings.TrimSpace(got.Commits[0].Subject) != "" {
		return text.Truncate(text.OneLine(got.Commits[0].Subject), 200)
	}
	return fmt.Sprintf("%s: %s", run.Job, text.Plural(len(got.Commits), "commit"))
}

// pullRequestBody returns the text of a pull request. The agent's text is in a code block, so that
// it cannot contain links or mention users.
func pullRequestBody(run ledger.Run, got checkout.Result, summary string) string {
	var said strings.Builder
	said.WriteString(summary + "\n\n")
	for _, c := range got.Commits {
		fmt.Fprintf(&said, "%.12s %s\n", c.Hash, text.OneLine(c.Subject))
	}
	block := strings.ReplaceAll(text.Truncate(text.Lines(said.String()), 4_000), "```", "'''")
	return fmt.Sprintf("Run %d of the job %s made %s.\n\n```text\n%s\n```\n", run.ID, run.Job, text.Plural(len(got.Commits), "commit"), strings.TrimSpace(block))
}
