package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"rouse/agent/loop"
	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// authorizer decides on the calls of one attempt before the loop makes them: by the rules of the
// agent, the taint of the run so far, and what its owner has answered.
type authorizer struct {
	ledger  *ledger.Ledger
	attempt ledger.Attempt
	agent   string // as the run names it
	rules   tool.Authorizer

	roots *tool.Roots

	mu    sync.Mutex
	taint tool.Taint // what the record says of the run
	tier  string
	// What OnCallsStart records of the calls that were allowed since it last did.
	addedTaint tool.Taint
	marks      ledger.TaintUpdate
	// What they read, and what those before them read since the labels there were last looked up.
	reads, madeReads []ledger.Place

	madeCalls map[string]bool // keys of calls that earlier attempts have made: what allowed them is used up

	itemsRead bool // whether items are those of the ledger
	items     []ledger.Item
}

func (r *Runner) newAuthorizer(t *attempt) *authorizer {
	g := &authorizer{ledger: r.ledger, attempt: t.a, agent: t.run.Agent, taint: tool.ParseTaint(t.run.Taint), tier: t.run.Tier,
		rules: tool.Authorizer{Agent: t.agent.Name, OnDenied: t.agent.OnDenied, MinTier: t.minTier(), Met: map[tool.Taint]string{}}}
	if words := untrustedTrigger(t.detail); words != "" {
		g.rules.Met[tool.Untrusted] = words
	}
	return g
}

// untrustedTrigger names the untrusted content that started a run.
func untrustedTrigger(d ledger.Detail) string {
	switch {
	case d.File != nil:
		return fmt.Sprintf("the file %q that started the run", d.File.Name)
	case len(d.Files) > 0:
		return "the files that started the run"
	case d.Folder != "":
		return fmt.Sprintf("the watched folder %q", d.Folder)
	case d.Webhook != nil:
		return "the webhook request that started the run"
	}
	return ""
}

// meet records the origin of each label that a call adds to the run.
func (g *authorizer) meet(added tool.Taint, words, notPrivate string) {
	for _, label := range []tool.Taint{tool.Untrusted, tool.Private, tool.Outward} {
		if added&label != 0 && g.rules.Met[label] == "" {
			g.rules.Met[label] = words
		}
	}
	if added&tool.Private != 0 && g.rules.NotPrivate == "" {
		g.rules.NotPrivate = notPrivate
	}
}

// callWords returns the tool of a call and its most telling argument, such as the path.
func callWords(name string, args json.RawMessage) string {
	var given map[string]any
	_ = json.Unmarshal(args, &given) // if they are invalid, the name alone is returned
	for _, key := range []string{"path", "url", "command", "sql", "table", "name"} {
		if value, ok := given[key].(string); ok && value != "" {
			return fmt.Sprintf("%s %q", name, text.Truncate(value, 120))
		}
	}
	return name
}

// Authorize implements loop.Authorizer.
func (g *authorizer) Authorize(ctx context.Context, in tool.Invocation, t tool.Tool, args json.RawMessage) (tool.Verdict, error) {
	need, err := t.Need(ctx, in, args)
	if domain.IsFileFault(err) {
		refused := tool.FaultEnvelope(err)
		refused.Tool = t.Name()
		return tool.Verdict{Refusal: &refused}, nil
	}
	if err != nil {
		return tool.Verdict{}, fmt.Errorf("what a call of %s needs cannot be told: %w", t.Name(), err)
	}

	if err := g.lookUp(ctx, &need); err != nil {
		return tool.Verdict{}, err
	}

	if need.Shown == "" && need.Action != "" { // an owner decides on what they can read
		need.Shown = t.Name() + " " + CallText(t.Spec(), args)
	}

	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.lookAgain(ctx); err != nil {
		return tool.Verdict{}, err
	}

	var by int64 // the item that allows it
	held := g.taint | g.addedTaint
	need.AddsTaint = need.Labels(held)
	v, err := g.rules.Decide(t.Name(), need, held, func(hash string) (said tool.OwnerDecision, err error) {
		said, by, err = g.answerFor(ctx, in, hash)
		return said, err
	})
	if err != nil || v.Refusal != nil || v.Ask != nil {
		return v, err
	}

	g.meet(need.AddsTaint&^held, callWords(t.Name(), args), need.NotPrivate)
	g.addedTaint |= need.AddsTaint
	g.marks.Tier = max(g.marks.Tier, need.Tier)
	g.marks.Writes = append(g.marks.Writes, need.Writes...)
	g.reads = append(g.reads, need.Reads...)
	if by != 0 {
		if g.marks.UsedApprovals == nil {
			g.marks.UsedApprovals = map[int64]string{}
		}
		g.marks.UsedApprovals[by] = in.Key
	}

	return v, nil
}

// answerFor is what the owner has said of an action, for good or in this run, and the item in which
// they allowed it to this call.
func (g *authorizer) answerFor(ctx context.Context, in tool.Invocation, hash string) (said tool.OwnerDecision, by int64, err error) {
	if said.Standing, err = g.ledger.HasStandingApproval(ctx, g.agent, hash); err != nil || said.Standing {
		return said, 0, err
	}

	if !g.itemsRead {
		if g.items, err = g.ledger.ItemsOf(ctx, g.attempt.Run); err != nil {
			return said, 0, err
		}
		g.itemsRead = true
	}

	// A denial counts for the rest of the run. An approval for once counts for one call: the first
	// that asks, and that call again when it was cut off, but not once it has come to an end.
	for _, i := range g.items {
		if i.Kind != ledger.KindApproval || i.Action.Hash != hash || i.State != ledger.ItemAnswered {
			continue
		}

		// The calls of one answer are judged before any of them is recorded.
		used := i.Used
		if key, taken := g.marks.UsedApprovals[i.ID]; taken {
			used = key
		}

		switch {
		case i.Answer == ledger.ApprovalDeny:
			said.Denied, said.Reason = true, i.Reason
		case i.Answer == ledger.ApprovalOnce && (used == "" || used == in.Key && !g.madeCalls[in.Key]) && by == 0:
			said.Once, by = true, i.ID
		}
	}

	return said, by, nil
}

// OnCallsStart implements loop.Authorizer: what the calls bring is on record before they begin.
func (g *authorizer) OnCallsStart(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()

	taint := g.taint | g.addedTaint
	var err error
	if g.marks.Writes, err = g.ledger.Unlabelled(ctx, taint.String(), g.marks.Writes); err != nil {
		return err
	}

	g.madeReads, g.reads = append(g.madeReads, g.reads...), nil
	// Most calls change nothing; each write would wait for the disk.
	if taint == g.taint && max(g.tier, g.marks.Tier) == g.tier && len(g.marks.Writes) == 0 && len(g.marks.UsedApprovals) == 0 {
		g.marks = ledger.TaintUpdate{}
		return nil
	}

	g.marks.Taint = g.addedTaint.String()
	if err := g.ledger.RecordTaint(ctx, g.attempt, g.marks); err != nil {
		return err
	}

	// The items were read once; what the ledger has just noted of them is noted here, too.
	for n, i := range g.items {
		if key, used := g.marks.UsedApprovals[i.ID]; used {
			g.items[n].Used = key
		}
	}

	g.taint, g.tier = taint, max(g.tier, g.marks.Tier)
	g.addedTaint, g.marks = 0, ledger.TaintUpdate{}
	return nil
}

// approvalQuestion is the inbox item in which a run asks for an approval (UNI-09).
func approvalQuestion(t *attempt, a tool.ApprovalRequest) *ledger.Question {
	clean := t.redactor().Replace
	message := fmt.Sprintf("It waits for your approval: %s.", strings.TrimSuffix(a.Why, "."))
	for _, s := range a.Settings {
		if strings.HasPrefix(s, "rouse ") {
			message += " Once you have checked the data, this command ends such requests: " + s
		} else {
			message += fmt.Sprintf(" To allow it for good, add to the agent %s: %s", t.agent.Name, s)
		}
	}
	options := []string{ledger.ApprovalOnce, ledger.ApprovalAlways, ledger.ApprovalDeny}
	if a.NoStandingApproval {
		options = []string{ledger.ApprovalOnce, ledger.ApprovalDeny}
	}

	return &ledger.Question{
		Kind: ledger.KindApproval, Call: a.Call, Title: fmt.Sprintf("%s asks for %s", t.asker(), a.Tool),
		Message: clean(message),
		Options: options, Expires: ledger.ApprovalExpires,
		Action: ledger.Action{Tool: a.Tool, Description: clean(a.Shown), Hash: a.Hash},
	}
}

var _ loop.Authorizer = (*authorizer)(nil)
