package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"

	"rouse/agent/loop"
	"rouse/agent/model/playbook"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/agent/tool/web"
	"rouse/agentdb/ledger"
)

// definition is what a run is told and may do, as its owner approves it (OSL-19): another one
// has another hash. Values of secrets are not in it.
type definition struct {
	Job          string          `json:"job,omitempty"`
	Prompt       string          `json:"prompt,omitempty"`
	Playbook     []playbook.Call `json:"playbook,omitempty"`
	When         []Gate          `json:"when,omitempty"`
	Watched      string          `json:"watched,omitempty"`
	Bounds       loop.Bounds     `json:"bounds"`
	Agent        string          `json:"agent"`
	Instructions string          `json:"instructions,omitempty"`
	Workdir      string          `json:"workdir"`
	Database     bool            `json:"database"`
	Tools        toolNames       `json:"tools"`
	Read         []string        `json:"read,omitempty"`
	Public       []string        `json:"public,omitempty"`
	Write        []string        `json:"write,omitempty"`
	Commands     []shell.Grant   `json:"commands,omitempty"`
	Skills       []string        `json:"skill_commands,omitempty"` // that skills may allow
	Network      []web.Grant     `json:"network,omitempty"`
	Secrets      []string        `json:"secrets,omitempty"`
	OnDenied     string          `json:"on_denied,omitempty"`
	MinTier      string          `json:"min_tier,omitempty"`
	Unconfined   string          `json:"unconfined,omitempty"`
}

type toolNames struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

func define(t task) definition {
	a, j := t.agent, t.job
	d := definition{
		Job: j.Name, Prompt: j.Prompt, Playbook: slices.Clone(j.Playbook), When: slices.Clone(j.When), Watched: j.Watched.Folder, Bounds: bounds(t),
		Agent: a.Name, Instructions: a.Instructions, Workdir: a.Workdir, Database: a.Database, Tools: toolNames{a.Allow, a.Deny},
		Read: a.Read, Public: a.Public, Write: a.Write, Commands: a.Commands, Network: a.Network,
		OnDenied: a.OnDenied, MinTier: t.minTier(), Unconfined: a.Unconfined,
	}
	for i := range d.Playbook {
		d.Playbook[i].Line = 0 // where it stands is no part of what it does
	}
	for i := range d.When {
		d.When[i].Where = ""
	}
	for _, s := range t.allowing() {
		for _, g := range s.grants {
			d.Skills = append(d.Skills, fmt.Sprintf("%s: %q", s.Name, g.Argv))
		}
	}
	for _, s := range a.Secrets {
		d.Secrets = append(d.Secrets, s.Name+" to "+cmp.Or(s.OnlyTo, "commands"))
	}
	if t.detail.Tool != "" || t.detail.Wake != nil || (t.detail.Prompt != "" && j.Name == "") {
		d.Prompt = "" // it is of one run
	}
	return d
}

// systemTools are the tools that reach beyond the agent's folders and its database.
var systemTools = []string{"shell_run", "bash", "git_status", "git_diff", "git_commit", "web_fetch"}

// usesSystem says what of a task reaches beyond the agent's own places, "" when nothing does.
func (t task) usesSystem() string {
	switch a := t.agent; {
	case slices.ContainsFunc(t.job.When, func(g Gate) bool { return len(g.Command) > 0 }):
		return "commands in its gates"
	case a.Unconfined != "":
		return "programs without confinement"
	case len(a.Commands) > 0:
		return "programs"
	case len(t.allowing()) > 0:
		return "programs that skills allow"
	case len(a.Network) > 0:
		return "the network"
	case len(a.Secrets) > 0:
		return "secrets"
	}
	for _, glob := range t.agent.Allow {
		for _, name := range systemTools {
			if ok, err := path.Match(glob, name); ok && err == nil && glob != "*" {
				return name
			}
		}
	}
	return ""
}

// held parks a run that uses system tools and whose definition somebody else than its owner
// could have written, until the owner has approved the definition as it stands.
func (r *Runner) held(ctx context.Context, run ledger.Run, t task) (res ledger.Result, held bool, err error) {
	foreign, uses := cmp.Or(t.job.Foreign, t.agent.Foreign), t.usesSystem()
	if foreign == "" || uses == "" {
		return res, false, nil
	}
	text, err := json.MarshalIndent(define(t), "", "  ")
	if err != nil {
		return res, false, fmt.Errorf("the definition of %s cannot be written down: %w", cmp.Or(run.Job, run.Agent), err)
	}
	hash := tool.ActionHash(t.agent.Name, "", string(text))
	if stands, err := r.ledger.Stands(ctx, run.Agent, hash); stands || err != nil {
		return res, false, err
	}
	clean := redactor(t.secrets).Replace
	return ledger.Result{Wait: &ledger.Question{
		Kind: ledger.KindApproval, Title: cmp.Or(run.Job, run.Agent) + " asks to begin", Expires: ledger.ApprovalExpires,
		Message: fmt.Sprintf("It may use %s, and others than you can change its definition: %s. It begins once you approve the definition as it stands; a changed one is asked about again.", uses, foreign),
		Options: []string{ledger.ApprovalOnce, ledger.ApprovalDeny},
		Action:  ledger.Action{Shown: clean(string(text)), Hash: hash},
	}}, true, nil
}
