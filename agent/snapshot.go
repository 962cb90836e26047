package agent

import (
	"context"
	"slices"
	"time"

	"rouse/agent/plan"
	"rouse/agent/tool"

	"rouse/agent/history"
	"rouse/agent/permit"
	"rouse/agent/plan/vars"
	"rouse/agent/prompt"
	"rouse/agent/tool/mcp"
	"rouse/agent/tool/moduleapi"
	"rouse/internal/ledger"
	"rouse/internal/ledger/label"
)

// snapshot holds the state of the ledger, the database and the folders at the start of an attempt.
// A replay reads it from the recording.
type snapshot struct {
	prompt.Snapshot
	history.Reverted

	LastSuccess time.Time `json:"last_success,omitzero"`
	LastRun     time.Time `json:"last_run,omitzero"`
	Mode        string    `json:"mode,omitempty"` // mode of the agent
	// Tools registered by modules of skills, by skill.
	Registered map[string][]moduleapi.Offer `json:"registered,omitempty"`
	// MCP servers with their approved tools.
	Servers []mcp.Given `json:"servers,omitempty"`
	// Files that started the run. Gone marks removed files.
	File     *ledger.File   `json:"file,omitempty"`
	Files    []snapshotFile `json:"files,omitempty"`
	Manifest string         `json:"manifest,omitempty"`
	Body     string         `json:"body,omitempty"` // body of the webhook request that started the run

	run        ledger.Run    // run for template data
	registered []label.Place // storage of the registered tools; the prompt gets its labels
}

type snapshotFile struct {
	ledger.File
	Gone bool `json:"gone,omitempty"`
}

func (r *Runner) takeSnapshot(ctx context.Context, t *attempt) (s snapshot, err error) {
	s = snapshot{run: t.Run, File: t.Detail.File, Manifest: t.Manifest, Mode: t.Agent.Mode}
	last, err := vars.LastTimes(ctx, r.ledger, t.Run)
	if err != nil {
		return s, err
	}
	s.LastSuccess, s.LastRun = last.SuccessStart, last.End
	if t.Detail.Webhook != nil {
		if s.Body, err = r.ledger.Runs.DeliveryBody(ctx, t.Run.ID); err != nil {
			return s, err
		}
	}
	for _, f := range t.Files {
		s.Files = append(s.Files, snapshotFile{f.File, f.Removed()})
	}

	if s.Snapshot, err = r.Prompts().Read(ctx, &t.Attempt); err != nil {
		return s, err
	}
	s.Servers = r.Servers.Given(&t.Task)
	s.Registered = r.modules.registeredOffers(ctx, t)
	for name := range s.Registered {
		s.registered = append(s.registered, moduleapi.StoragePlace(r.modules.storageOf(t.Agent.Name, name)))
	}
	return s, s.ReadSkills(&t.Task)
}

// Prompts returns the sources of prompts.
func (r *Runner) Prompts() prompt.Sources {
	return prompt.Sources{Ledger: r.ledger, Databases: r.databases, Programs: r.programs}
}

func (s snapshot) apply(t *attempt) {
	t.Manifest = s.Manifest
	if s.Prompt != "" {
		t.Job.Prompt = s.Prompt
	}

	if s.File != nil {
		t.Detail.File = s.File
	}

	for _, f := range s.Files {
		t.Files = append(t.Files, plan.NewBatchFile(f.File, f.Gone))
	}
}

func (s snapshot) templateData(t *attempt) map[string]any {
	data := vars.Of(s.run, t.Try.Number, t.Detail, s.LastSuccess, s.LastRun)
	if len(t.Files) > 0 {
		data["Files"], data["Manifest"] = t.Files, t.Manifest
	}
	if t.Detail.Webhook != nil {
		vars.AddBody(data, s.Body)
	}
	return data
}

// admitPrompt records the labels of the content in the attempt's prompt.
func (t *attempt) admitPrompt(ctx context.Context) error {
	if t.wrapTool != nil { // a replay does not read new content
		return nil
	}
	s := t.found
	return t.authorizer.AdmitPrompt(ctx, &t.Attempt, permit.Shown{
		Folder: s.Folder != "", Tables: s.Tables != "", Rows: s.Views != "",
		Labels: tool.ParseTaint(s.Met), Places: slices.Concat(s.WorkspacePlaces, s.registered),
	})
}
