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
)

// gate is what the loop asks before it makes the calls of one attempt: the rules of the agent,
// with what the run has met so far and what its owner has said.
type gate struct {
	ledger  *ledger.Ledger
	attempt ledger.Attempt
	agent   string // as the run names it
	rules   tool.Gate

	mu    sync.Mutex
	met   tool.Taint // what the record says of the run
	tier  string
	keeps bool // what the run keeps is untrusted, and the record says so
	// What is to be recorded of the calls that begin next.
	adds tool.Taint
	next ledger.Marks

	recalling  sync.Mutex
	recalled   bool
	remembered tool.Taint // of what earlier runs of the agent wrote

	made map[string]bool // keys of calls that earlier attempts have made: what allowed them is used up

	read  bool // whether items are those of the ledger
	items []ledger.Item
}

func (r *Runner) newGate(run ledger.Run, a ledger.Attempt, t task) *gate {
	return &gate{ledger: r.ledger, attempt: a, agent: run.Agent, met: tool.ParseTaint(run.Taint), tier: run.Tier,
		rules: tool.Gate{Agent: t.agent.Name, OnDenied: t.agent.OnDenied, MinTier: t.minTier()}}
}

// Judge implements loop.Gate.
func (g *gate) Judge(ctx context.Context, in tool.Invocation, t tool.Tool, args json.RawMessage) (tool.Verdict, error) {
	need, err := t.Need(ctx, in, args)
	if err != nil {
		return tool.Verdict{}, fmt.Errorf("what a call of %s needs cannot be told: %w", t.Name(), err)
	}

	if need.Shown == "" && need.Action != "" { // its owner is asked for what they can read
		need.Shown = t.Name() + " " + CallText(t.Spec(), args)
	}

	g.mu.Lock()
	defer g.mu.Unlock()

	var by int64 // the item that allows it
	v, err := g.rules.Decide(t.Name(), need, g.met|g.adds, func(hash string) (said tool.Said, err error) {
		said, by, err = g.said(ctx, in, hash)
		return said, err
	})
	if err != nil || v.Refusal != nil || v.Ask != nil {
		return v, err
	}

	g.adds |= need.Adds
	g.next.Tier = max(g.next.Tier, need.Tier)
	g.next.Keeps = g.next.Keeps || need.Keeps
	if by != 0 {
		if g.next.Used == nil {
			g.next.Used = map[int64]string{}
		}
		g.next.Used[by] = in.Key
	}

	return v, nil
}

// said is what the owner has said of an action, for good or in this run, and the item in which
// they allowed it to this call.
func (g *gate) said(ctx context.Context, in tool.Invocation, hash string) (said tool.Said, by int64, err error) {
	if said.Stands, err = g.ledger.Stands(ctx, g.agent, hash); err != nil || said.Stands {
		return said, 0, err
	}

	if !g.read {
		if g.items, err = g.ledger.ItemsOf(ctx, g.attempt.Run); err != nil {
			return said, 0, err
		}
		g.read = true
	}

	for _, i := range g.items {
		if i.Kind != ledger.KindApproval || i.Action.Hash != hash || i.State != ledger.ItemAnswered {
			continue
		}

		used := i.Used
		if key, taken := g.next.Used[i.ID]; taken {
			used = key
		}

		switch {
		case i.Answer == ledger.ApprovalDeny:
			said.Denied, said.Reason = true, i.Reason
		case i.Answer == ledger.ApprovalOnce && (used == "" || used == in.Key && !g.made[in.Key]) && by == 0:
			said.Once, by = true, i.ID
		}
	}

	return said, by, nil
}

// Admit implements loop.Gate: what the calls bring is on record before they begin.
func (g *gate) Admit(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()

	met := g.met | g.adds
	keeps := g.next.Keeps && met&tool.Untrusted != 0
	if met == g.met && max(g.tier, g.next.Tier) == g.tier && (!keeps || g.keeps) && len(g.next.Used) == 0 {
		g.next = ledger.Marks{}
		return nil
	}

	g.next.Taint = g.adds.String()
	if err := g.ledger.Mark(ctx, g.attempt, g.next); err != nil {
		return err
	}

	for n, i := range g.items {
		if key, used := g.next.Used[i.ID]; used {
			g.items[n].Used = key
		}
	}

	g.met, g.tier, g.keeps = met, max(g.tier, g.next.Tier), g.keeps || keeps
	g.adds, g.next = 0, ledger.Marks{}
	return nil
}

// approval is the item of the inbox in which a run asks for leave (UNI-09).
func approval(t task, a tool.Approval) *ledger.Question {
	asker := t.job.Name
	if asker == "" {
		asker = t.agent.Name
	}

	clean := redactor(t.secrets).Replace
	why := clean(a.Why)
	options := []string{ledger.ApprovalOnce, ledger.ApprovalAlways, ledger.ApprovalDeny}
	if a.Each {
		options = []string{ledger.ApprovalOnce, ledger.ApprovalDeny}
	}

	return &ledger.Question{
		Kind: ledger.KindApproval, Call: a.Call, Title: fmt.Sprintf("%s asks for %s", asker, a.Tool),
		Message: fmt.Sprintf("It waits for your leave: %s.", strings.TrimSuffix(why, ".")),
		Options: options, Expires: ledger.ApprovalExpires,
		Action: ledger.Action{Tool: a.Tool, Shown: clean(a.Shown), Hash: a.Hash},
	}
}

var _ loop.Gate = (*gate)(nil)
