// Package permit decides what a run may do. It checks whether the definition of the run is
// approved, and which places its tools can reach. It allows or denies each call, or asks for an
// approval.
package permit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"rouse/agent/loop"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/label"
	"rouse/internal/nofollow"
	"rouse/internal/text"
)

// Authorizer decides on the calls of one attempt before the loop makes them.
type Authorizer struct {
	ledger  *ledger.Ledger
	attempt ledger.Attempt
	agent   string // agent of the run
	rules   tool.Authorizer

	roots *tool.Roots

	mu    sync.Mutex
	taint tool.Taint // recorded labels of the run
	tier  string
	// Changes by the calls that were allowed since the last OnCallsStart, which records them.
	addedTaint tool.Taint
	marks      label.TaintUpdate
	// Places that these calls read, and places that were read by calls after the last lookup of
	// labels.
	reads, madeReads []label.Place

	MadeCalls map[string]bool // keys of calls that earlier attempts made; their approvals are used up

	itemsRead bool // whether items is set
	items     []inbox.Item
}

// NewAuthorizer returns the authorizer of an attempt.
func NewAuthorizer(l *ledger.Ledger, t *plan.Attempt) *Authorizer {
	g := &Authorizer{ledger: l, attempt: t.Try, agent: t.Run.Agent, taint: tool.ParseTaint(t.Run.Taint), tier: t.Run.Tier,
		rules: tool.Authorizer{Agent: t.Agent.Name, OnDenied: t.Agent.OnDenied, MinTier: t.MinTier(), Met: map[tool.Taint]string{}}}
	if words := untrustedTrigger(t.Detail); words != "" {
		g.rules.Met[tool.Untrusted] = words
	}
	return g
}

// untrustedTrigger returns a description of the untrusted content that started a run, or "".
func untrustedTrigger(d ledger.TriggerDetail) string {
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
func (g *Authorizer) meet(added tool.Taint, words, notPrivate string) {
	for _, label := range []tool.Taint{tool.Untrusted, tool.Private, tool.Outward} {
		if added&label != 0 && g.rules.Met[label] == "" {
			g.rules.Met[label] = words
		}
	}
	if added&tool.Private != 0 && g.rules.NotPrivate == "" {
		g.rules.NotPrivate = notPrivate
	}
}

// callWords returns the tool of a call and its most informative argument, such as the path.
func callWords(name string, args json.RawMessage) string {
	var given map[string]any
	_ = json.Unmarshal(args, &given) // if args is invalid, only the name is returned
	for _, key := range []string{"path", "url", "command", "sql", "table", "name"} {
		if value, ok := given[key].(string); ok && value != "" {
			return fmt.Sprintf("%s %q", name, text.Truncate(value, 120))
		}
	}
	return name
}

// Authorize implements loop.Authorizer.
func (g *Authorizer) Authorize(ctx context.Context, in tool.Invocation, t tool.Tool, args json.RawMessage) (tool.Verdict, error) {
	need, err := t.Access(ctx, in, args)
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

	if need.Shown == "" && need.Action != "" { // the owner needs a readable description
		need.Shown = t.Name() + " " + t.Spec().CallText(args)
	}

	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.lookAgain(ctx); err != nil {
		return tool.Verdict{}, err
	}

	var by int64 // ID of the item that allows the call
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

// answerFor returns the owner's decision on an action. by is the ID of the inbox item that allows
// this call, or 0.
func (g *Authorizer) answerFor(ctx context.Context, in tool.Invocation, hash string) (said tool.OwnerDecision, by int64, err error) {
	if said.Standing, err = g.ledger.Inbox.HasStandingApproval(ctx, g.agent, hash); err != nil || said.Standing {
		return said, 0, err
	}

	if !g.itemsRead {
		if g.items, err = g.ledger.Inbox.OfRun(ctx, g.attempt.Run); err != nil {
			return said, 0, err
		}
		g.itemsRead = true
	}

	// A denial applies to the rest of the run. A single approval applies to the first call that
	// asks, and to its repetition after an interruption.
	for _, i := range g.items {
		if i.Kind != inbox.KindApproval || i.Action.Hash != hash || i.State != inbox.ItemAnswered {
			continue
		}

		// All calls of one model response are decided before the first is recorded.
		used := i.Used
		if key, taken := g.marks.UsedApprovals[i.ID]; taken {
			used = key
		}

		switch {
		case i.Answer == inbox.ApprovalDeny:
			said.Denied, said.Reason = true, i.Reason
		case i.Answer == inbox.ApprovalOnce && (used == "" || used == in.Key && !g.MadeCalls[in.Key]) && by == 0:
			said.Once, by = true, i.ID
		}
	}

	return said, by, nil
}

// OnCallsStart implements loop.Authorizer. It records the labels and writes of the calls before
// they begin.
func (g *Authorizer) OnCallsStart(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()

	taint := g.taint | g.addedTaint
	var err error
	if g.marks.Writes, err = g.ledger.Labels.Unlabelled(ctx, taint.String(), g.marks.Writes); err != nil {
		return err
	}

	g.madeReads, g.reads = append(g.madeReads, g.reads...), nil
	// Most calls change nothing here, and each write would wait for the disk.
	if taint == g.taint && max(g.tier, g.marks.Tier) == g.tier && len(g.marks.Writes) == 0 && len(g.marks.UsedApprovals) == 0 {
		g.marks = label.TaintUpdate{}
		return nil
	}

	g.marks.Taint = g.addedTaint.String()
	if err := g.ledger.Labels.RecordTaint(ctx, g.attempt, g.marks); err != nil {
		return err
	}

	// Update the items too, because they are read from the ledger only once.
	for n, i := range g.items {
		if key, used := g.marks.UsedApprovals[i.ID]; used {
			g.items[n].Used = key
		}
	}

	g.taint, g.tier = taint, max(g.tier, g.marks.Tier)
	g.addedTaint, g.marks = 0, label.TaintUpdate{}
	return nil
}

// ApprovalQuestion returns the inbox item with which a run asks for an approval.
func ApprovalQuestion(t *plan.Attempt, a tool.ApprovalRequest) *inbox.Question {
	clean := t.Redactor().Replace
	message := fmt.Sprintf("It waits for your approval: %s.", strings.TrimSuffix(a.Why, "."))
	for _, s := range a.Settings {
		if strings.HasPrefix(s, "rouse ") {
			message += " Once you have checked the data, this command ends such requests: " + s
		} else {
			message += fmt.Sprintf(" To allow it for good, add to the agent %s: %s", t.Agent.Name, s)
		}
	}
	options := []string{inbox.ApprovalOnce, inbox.ApprovalAlways, inbox.ApprovalDeny}
	if a.NoStandingApproval {
		options = []string{inbox.ApprovalOnce, inbox.ApprovalDeny}
	}

	return &inbox.Question{
		Kind: inbox.KindApproval, Call: a.Call, Title: fmt.Sprintf("%s asks for %s", t.Asker(), a.Tool),
		Message: clean(message),
		Options: options, Expires: inbox.ApprovalExpires,
		Action: inbox.Action{Tool: a.Tool, Description: clean(a.Shown), Hash: a.Hash},
	}
}

var _ loop.Authorizer = (*Authorizer)(nil)

// lookUp adds the labels of the places that a call reads. If the call may write the agent's memory,
// it also adds the places of that memory to the writes.
func (g *Authorizer) lookUp(ctx context.Context, need *tool.Access) error {
	if need.WritesMemory { // the agent's database and its writable places
		need.Writes = append(append(need.Writes, g.roots.Writable()...), label.TablePlace(g.rules.Agent, ""))
	}

	letters, err := g.ledger.Labels.Of(ctx, need.Reads...)
	labels := tool.ParseTaint(letters)
	if labels&tool.Private != 0 && need.NotPrivate == "" {
		if need.NotPrivate = "rouse grants"; len(need.Reads) == 1 { // this command lists all labelled places
			name := need.Reads[0].Name
			if need.Reads[0].Kind != label.PlaceFile { // the name of a table begins with the agent's name
				name, _, _ = strings.Cut(name, "/")
			}
			need.NotPrivate = "rouse grants release " + name
		}
	}
	need.AddsTaint |= labels
	return err
}

// lookAgain adds labels that other runs have put on the places since the calls read them. Labels
// are recorded before content is written, so no label is missed.
func (g *Authorizer) lookAgain(ctx context.Context) error {
	letters, err := g.ledger.Labels.Of(ctx, g.madeReads...)
	g.addedTaint |= tool.ParseTaint(letters)
	g.madeReads = nil
	return err
}

// ProgramEnded records the labels of the places that a long-running program can read, and labels
// the places that it may have written.
func (g *Authorizer) ProgramEnded(ctx context.Context) error {
	need := g.roots.ProgramNeed()
	if err := g.lookUp(ctx, &need); err != nil {
		return err
	}

	g.mu.Lock()
	g.addedTaint |= need.AddsTaint
	g.marks.Writes = append(g.marks.Writes, need.Writes...)
	g.mu.Unlock()
	return g.OnCallsStart(ctx)
}

// labelFile records a new file before it gets its name. So the file keeps its labels if it is
// renamed.
func (g *Authorizer) labelFile(ctx context.Context, file label.Place) error {
	g.mu.Lock()
	defer g.mu.Unlock()

	missing, err := g.ledger.Labels.Unlabelled(ctx, g.taint.String(), []label.Place{file})
	if err != nil || len(missing) == 0 {
		return err
	}
	return g.ledger.Labels.RecordTaint(ctx, g.attempt, label.TaintUpdate{Writes: missing})
}

// Shown describes the content of a prompt that runs may have written.
type Shown struct {
	Folder bool          // files of the working folder
	Tables bool          // tables of the agent's database
	Rows   bool          // rows of the agent's database
	Labels tool.Taint    // labels of the earlier runs in the prompt
	Places []label.Place // workspaces and registered tools
}

// AdmitPrompt records the labels of everything that the prompt shows: tables, rows, files and
// skills. The prompt must be complete.
func (g *Authorizer) AdmitPrompt(ctx context.Context, t *plan.Attempt, s Shown) error {
	if !t.NeedsModel() && !t.Executes() {
		return nil
	}

	need := g.promptNeed(t, s)
	if err := g.lookUp(ctx, &need); err != nil {
		return err
	}

	g.mu.Lock()
	g.meet(need.AddsTaint&^g.taint, "its prompt, which shows files, tables, rows or reports of earlier runs", need.NotPrivate)
	g.addedTaint |= need.AddsTaint
	g.mu.Unlock()
	// The model is about to read the prompt, so record the labels even if the run is being stopped.
	return g.OnCallsStart(context.WithoutCancel(ctx))
}

// promptNeed returns the access that a prompt needs.
func (g *Authorizer) promptNeed(t *plan.Attempt, s Shown) (need tool.Access) {
	if s.Folder {
		need = g.roots.ReadNeed(cmp.Or(t.Agent.HostFolder, "."))
	}

	// Only rows of a private database are private data. Names of tables can carry labels too,
	// because labelled runs may have chosen them.
	if s.Tables || s.Rows {
		need.Reads = append(need.Reads, label.TablePlace(t.Agent.Name, ""))
	}
	if s.Rows && t.Agent.PrivateDatabase {
		need.AddsTaint |= tool.Private
		need.NotPrivate = "private: {database: false}"
	}

	need.AddsTaint |= s.Labels &^ tool.Outward // external effects of earlier runs do not count for this run
	need.Reads = append(need.Reads, s.Places...)
	for _, sk := range t.Agent.Skills.All() {
		shown := g.roots.ReadNeed(sk.Dir)
		// A skill in a private folder is not private data, because the agent is meant to follow it.
		need.AddsTaint, need.Reads = need.AddsTaint|shown.AddsTaint&^tool.Private, append(need.Reads, shown.Reads...)
	}

	return need
}

// Untrusted reports whether the run has read untrusted content.
func (g *Authorizer) Untrusted() bool { return g != nil && g.taint&tool.Untrusted != 0 }

// Kept returns the places that an agent keeps between runs. If the agent is not configured, these
// are the places with its name.
func Kept(p *plan.Active, name string) ([]label.Place, error) {
	named := []label.Place{label.TablePlace(name, ""), label.WorkspacePlace(name, "", "")}
	a, ok := p.Agents[name]
	if !ok {
		return named, nil
	}

	places, err := kept(a, p.Boundary)
	return append(named, places...), err
}

// kept returns the places of the agent's database, its workdir and its writable folders.
func kept(a plan.Agent, b nofollow.UntrustedDirs) ([]label.Place, error) {
	out := []label.Place{label.TablePlace(a.Name, "")}
	roots, err := tool.NewRootsWithin(b, a.Workdir, grants(&plan.Attempt{Task: plan.Task{Agent: a}}))
	if errors.Is(err, os.ErrNotExist) { // the agent has never run
		return append(out, label.Place{Kind: label.PlaceFile, Name: a.Workdir}), nil
	}
	if err != nil {
		return nil, err
	}

	// The workdir is included even if it is read-only, because others may write there.
	return append(append(out, label.Place{Kind: label.PlaceFile, Name: roots.Workdir()}), roots.Writable()...), nil
}
