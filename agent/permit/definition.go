package permit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"rouse/agent/loop"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/agent/tool/executor"
	"rouse/agent/tool/mcp"
	"rouse/agent/tool/shell"
	"rouse/agent/tool/web"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
)

// definition describes everything that a run does and may do. The owner approves this text. It
// contains no secrets.
type definition struct {
	Job          string           `json:"job,omitempty"`
	Prompt       string           `json:"prompt,omitempty"`
	Playbook     []definedCall    `json:"playbook,omitempty"`
	Skill        string           `json:"skill,omitempty"`
	Input        map[string]any   `json:"input,omitempty"`
	Config       json.RawMessage  `json:"config,omitempty"`      // configuration of the skill
	SkillTools   []string         `json:"skill_tools,omitempty"` // tools that the module may call
	Executor     *definedExecutor `json:"executor,omitempty"`
	When         []definedGate    `json:"when,omitempty"`
	Watched      string           `json:"watched,omitempty"`
	Bounds       definedBounds    `json:"bounds"`
	Agent        string           `json:"agent"`
	Instructions string           `json:"instructions,omitempty"`
	Soul         string           `json:"soul,omitempty"`
	Mode         string           `json:"mode,omitempty"`
	Workdir      string           `json:"workdir"`
	Checkout     *definedCheckout `json:"checkout,omitempty"`
	Database     bool             `json:"database"`
	Tools        toolNames        `json:"tools"`
	Read         []string         `json:"read,omitempty"`
	Public       []string         `json:"public,omitempty"`
	Private      []string         `json:"private,omitempty"` // folders, and "database" for the database
	Write        []string         `json:"write,omitempty"`
	Commands     []definedCommand `json:"commands,omitempty"`
	Skills       []string         `json:"skill_commands,omitempty"` // commands that skills may allow
	Network      []web.Grant      `json:"network,omitempty"`
	Secrets      []string         `json:"secrets,omitempty"`
	Servers      []string         `json:"mcp,omitempty"`
	OnDenied     string           `json:"on_denied,omitempty"`
	MinTier      string           `json:"min_tier,omitempty"`
	Unconfined   string           `json:"unconfined,omitempty"`
}

type toolNames struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

func definitionOf(t *plan.Task) definition {
	a, j := t.Agent, t.Job
	d := definition{
		Job: j.Name, Prompt: j.Prompt, Playbook: definedCalls(j.Playbook), When: definedGates(j.When), Watched: j.Watched.Folder, Bounds: definedBoundsOf(Bounds(t)),
		Agent: a.Name, Instructions: a.Instructions, Soul: a.Soul, Workdir: a.Workdir, Database: a.Database, Tools: toolNames{a.Allow, a.Deny},
		Read: a.Read, Public: a.Public, Write: a.Write, Commands: definedCommands(a.Commands), Network: a.Network,
		OnDenied: a.OnDenied, MinTier: t.MinTier(), Unconfined: a.Unconfined,
	}

	if a.Mode != plan.ModeFolder { // definitions that were approved before modes existed have no mode
		d.Mode = a.Mode
	}

	if o := t.Checkout(); o != nil {
		d.Checkout = &definedCheckout{o.Repo, o.Ref, o.Branch}
	}

	if j.Skill != nil {
		d.Skill, d.Input, d.Config, d.SkillTools = j.Skill.Dir, j.Input, t.ModuleSettings.Config, t.ModuleSettings.Tools
	}

	if t.Executes() {
		d.Executor = definedExecutorOf(*j.Executor)
	}

	d.Private = slices.Clone(a.PrivateFolders)
	if a.PrivateDatabase {
		d.Private = append(d.Private, "database")
	}

	for _, s := range t.SkillsAllowingCommands() {
		for _, g := range s.Grants {
			d.Skills = append(d.Skills, fmt.Sprintf("%s: %q", s.Name, g.Argv))
		}
	}

	for _, s := range a.Secrets {
		d.Secrets = append(d.Secrets, s.Name+" to "+cmp.Or(s.OnlyTo, "commands"))
	}

	for _, s := range a.Servers {
		d.Servers = append(d.Servers, serverLine(s))
	}

	if t.Detail.Tool != "" || t.Detail.Wake != nil || (t.Detail.Prompt != "" && j.Name == "") {
		d.Prompt = "" // the prompt belongs to one run, and a definition is approved for all runs
	}

	return d
}

func (d definition) text() (string, error) {
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(d)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// unapprovedDefinition is a definition that another user could have changed and that the owner has
// not approved.
type unapprovedDefinition struct{ uses, foreign, text, hash string }

// findUnapproved returns the definition that must be approved before a task begins, or nil.
func findUnapproved(ctx context.Context, l *ledger.Ledger, t *plan.Task) (*unapprovedDefinition, error) {
	u := unapprovedDefinition{uses: t.UsesSystem(t.Plan.Specs), foreign: cmp.Or(t.Job.Foreign, t.Agent.Foreign)}
	if u.foreign == "" || u.uses == "" {
		return nil, nil
	}

	text, err := definitionOf(t).text()
	if err != nil {
		return nil, fmt.Errorf("the definition of %s cannot be written down: %w", cmp.Or(t.Job.Name, t.Agent.Name), err)
	}

	u.text, u.hash = text, tool.ActionHash(t.Agent.Name, "", text)
	if stands, err := l.Inbox.HasStandingApproval(ctx, t.Agent.Name, u.hash); stands || err != nil {
		return nil, err
	}

	return &u, nil
}

// UnapprovedJobs returns the jobs with definitions that wait for approval. Each value describes how
// another user can change the definition.
func UnapprovedJobs(ctx context.Context, l *ledger.Ledger, p *plan.Active) (map[string]string, error) {
	held := map[string]string{}
	for name := range p.Jobs {
		t, err := p.Resolve(ledger.Run{Job: name})
		if err != nil {
			continue // without its agent, the job does not run
		}

		u, err := findUnapproved(ctx, l, t)
		if err != nil {
			return nil, err
		}

		if u != nil {
			held[name] = u.foreign
		}
	}

	return held, nil
}

// AwaitApproval returns an early end that parks the run if its definition needs an approval.
func AwaitApproval(ctx context.Context, l *ledger.Ledger, t *plan.Task) error {
	u, err := findUnapproved(ctx, l, t)
	if u == nil || err != nil {
		return err
	}

	return &plan.EarlyEnd{Result: ledger.Result{Wait: &inbox.Question{
		Kind: inbox.KindApproval, Title: cmp.Or(t.Run.Job, t.Run.Agent) + " asks to begin", Expires: inbox.ApprovalExpires,
		Message: fmt.Sprintf("It may use %s, and others than you can change its definition: %s. It begins once you approve the definition as it stands; a changed one is asked about again.", u.uses, u.foreign),
		Options: []string{inbox.ApprovalOnce, inbox.ApprovalDeny},
		Action:  inbox.Action{Description: t.Redactor().Replace(u.text), Hash: u.hash},
	}}}
}

// The following types write parts of a definition. They contain every field that changes a run,
// because the text is hashed.

type definedCall struct {
	Call    string         `json:"call"`
	With    map[string]any `json:"with,omitempty"`
	Save    string         `json:"save,omitempty"`
	If      string         `json:"if,omitempty"`
	Each    any            `json:"each,omitempty"`
	OnError string         `json:"on_error,omitempty"`

	MustSucceed *bool  `json:"must_succeed,omitempty"`
	Exit        []int  `json:"expect_exit,omitempty"`
	Status      []int  `json:"expect_status,omitempty"`
	That        string `json:"expect_that,omitempty"`
}

func definedCalls(calls []playbook.Call) (out []definedCall) {
	for _, c := range calls {
		out = append(out, definedCall{c.Name, c.With, c.Save, c.If, c.Each, c.OnError, c.MustSucceed, c.Expect.Exit, c.Expect.Status, c.Expect.That})
	}
	return out
}

type definedGate struct {
	plan.Condition
	Timeout string `json:"timeout,omitempty"`
}

func definedGates(gates []plan.Condition) (out []definedGate) {
	for _, g := range gates {
		d := definedGate{Condition: g}
		if g.Timeout != 0 {
			d.Timeout = g.Timeout.String()
		}
		out = append(out, d)
	}
	return out
}

type definedCheckout struct {
	Repo   string `json:"repo"`
	Ref    string `json:"ref,omitempty"`
	Branch string `json:"branch"`
}

type definedExecutor struct {
	Argv    []string         `json:"argv"`
	Output  string           `json:"output"`
	Env     []string         `json:"env,omitempty"` // names
	Read    []string         `json:"read,omitempty"`
	Login   []executor.Login `json:"login,omitempty"`
	Home    string           `json:"home"`
	Network bool             `json:"network,omitempty"`
	Memory  int64            `json:"memory,omitempty"`
	Public  bool             `json:"public,omitempty"`
}

func definedExecutorOf(s executor.Settings) *definedExecutor {
	d := &definedExecutor{Argv: s.Argv, Output: "text", Read: s.Read, Login: s.Login, Home: s.Home, Network: s.Network, Memory: s.Memory, Public: s.Public}
	if s.JSON {
		d.Output = "json"
	}
	for _, setting := range s.Env {
		name, _, _ := strings.Cut(setting, "=")
		d.Env = append(d.Env, name)
	}
	return d
}

type definedBounds struct {
	Steps   int     `json:"steps"`
	Calls   int     `json:"calls"`
	Wall    string  `json:"wall"`
	Idle    string  `json:"idle"`
	Tokens  int64   `json:"tokens,omitempty"`
	CostUSD float64 `json:"cost_usd,omitempty"`
	Output  int64   `json:"output"`
}

func definedBoundsOf(b loop.Bounds) definedBounds {
	return definedBounds{b.Steps, b.Calls, b.Wall.String(), b.Idle.String(), b.Tokens, float64(b.CostMicroUSD) / 1e6, b.Output}
}

type definedCommand struct {
	Argv    []string `json:"argv"`
	Network string   `json:"network,omitempty"`
}

func definedCommands(grants []shell.Grant) (out []definedCommand) {
	for _, g := range grants {
		d := definedCommand{Argv: g.Argv}
		if g.Network {
			d.Network = "host"
		}
		out = append(out, d)
	}
	return out
}

// Fingerprint returns a hash of a job's definition, expectations and models. A failed file is not
// tried again while the fingerprint stays the same. specs are the specs of the built-in tools. It
// returns "" if the job is not configured.
func Fingerprint(p plan.Plan, specs tool.Specs, job string) string {
	t, err := (&plan.Active{Plan: p, Specs: specs}).Resolve(ledger.Run{Job: job})
	if err != nil {
		return ""
	}

	text, err := definitionOf(t).text()
	if err != nil {
		return ""
	}
	var expected, asked strings.Builder
	for _, e := range t.Job.Expect {
		fmt.Fprintf(&expected, "%q %q %q,", e.File, e.SQL, e.Command)
	}
	for m := t.Model; m != nil; m = m.Fallback {
		fmt.Fprintf(&asked, "%q,", m.Name)
	}
	return tool.ActionHash(text, expected.String(), asked.String())[:16]
}

// serverLine describes an MCP server in a definition: its address or command, and its permissions.
func serverLine(s mcp.Server) string {
	line := s.Name + ": " + s.Where()
	if s.Files != "" && len(s.Argv) > 0 {
		line += ", files " + string(s.Files)
	}
	if s.Network {
		line += ", with a network"
	}
	for _, one := range []struct {
		what  string
		globs []string
	}{{"tools", s.Allow}, {"read only", s.ReadOnly}, {"asked about", s.Ask}} {
		if len(one.globs) > 0 {
			line += ", " + one.what + " " + strings.Join(one.globs, " ")
		}
	}
	return line
}

// Bounds returns the job's bounds, or else the agent's. A wake also stays within the bounds of the
// job that began its chain.
func Bounds(t *plan.Task) loop.Bounds {
	b := overrideBounds(t.Agent.Bounds, t.GoverningJob().Bounds)
	if t.Detail.Chat && (b.Steps == 0 || t.Agent.DefaultSteps) { // the owner's own bound is kept
		b.Steps = loop.ChatSteps
	}
	if t.Origin != nil {
		return t.Agent.Bounds.Within(b)
	}
	return b
}

func overrideBounds(b, j loop.Bounds) loop.Bounds {
	return loop.Bounds{
		Steps: cmp.Or(j.Steps, b.Steps), Calls: cmp.Or(j.Calls, b.Calls), Wall: cmp.Or(j.Wall, b.Wall), Idle: cmp.Or(j.Idle, b.Idle),
		Tokens: cmp.Or(j.Tokens, b.Tokens), CostMicroUSD: cmp.Or(j.CostMicroUSD, b.CostMicroUSD), Output: cmp.Or(j.Output, b.Output),
	}
}
