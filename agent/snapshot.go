package agent

import (
	"context"
	"time"

	"rouse/agent/tool/host"
	"rouse/agent/tool/mcp"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// snapshot is what an attempt finds beside its task: what the ledger, the database and the
// folders said when it began. A replay takes it from the recording, since all of it has
// changed meanwhile.
type snapshot struct {
	LastSuccess time.Time `json:"last_success,omitzero"`
	LastRun     time.Time `json:"last_run,omitzero"`
	Tables      string    `json:"tables,omitempty"`     // of the agent's database, as its model is told of them
	Prompt      string    `json:"prompt,omitempty"`     // of a wake: the host's words
	Undone      time.Time `json:"undone,omitzero"`      // when what the run had written into the database was undone
	Rewrites    []string  `json:"rewrites,omitempty"`   // keys of the calls whose changes of files were undone
	Discarded   []string  `json:"discarded,omitempty"`  // keys of the calls whose writes to a workspace were discarded
	Views       string    `json:"views,omitempty"`      // the saved views that the task asked for, with their rows
	Workspaces  string    `json:"workspaces,omitempty"` // of the agent's skills, those that are active
	// What is told of skills, and those that the task asked for.
	Skills    string           `json:"skills,omitempty"`
	Activated []activatedSkill `json:"activated,omitempty"`
	// The tools that modules of skills have registered, by skill.
	Registered map[string][]host.Offer `json:"registered,omitempty"`
	// The MCP servers, with the tools of them that are approved.
	Servers []mcp.Given `json:"servers,omitempty"`
	// What is left of the files that started the run.
	File     *ledger.File   `json:"file,omitempty"`
	Files    []snapshotFile `json:"files,omitempty"`
	Manifest string         `json:"manifest,omitempty"`
	Body     string         `json:"body,omitempty"` // of the request that started the run

	run        ledger.Run     // as templates know it
	workspaces []ledger.Place // that the model is told of
	registered []ledger.Place // where the registered tools lie that it is told of
}

type snapshotFile struct {
	ledger.File
	Gone bool `json:"gone,omitempty"`
}

// takeSnapshot reads what an attempt begins with.
func (r *Runner) takeSnapshot(ctx context.Context, run ledger.Run, t task) (s snapshot, err error) {
	s = snapshot{run: run, File: t.detail.File, Manifest: t.manifest}
	if s.LastSuccess, s.LastRun, err = r.times(ctx, run); err != nil {
		return s, err
	}

	if t.detail.Webhook != nil {
		if s.Body, err = r.ledger.DeliveryBody(ctx, run.ID); err != nil {
			return s, err
		}
	}

	// What the agent did last has changed by the time of a replay, so its wording is kept.
	if t.detail.Wake != nil {
		s.Prompt = t.job.Prompt
	}

	for _, f := range t.files {
		s.Files = append(s.Files, snapshotFile{f.File, f.gone})
	}

	if t.agent.Database && (t.needsModel() || t.executes()) {
		if t.needsModel() {
			s.Tables, err = r.tables(ctx, t)
		}
		if err == nil {
			s.Views, err = r.contextViews(ctx, t)
		}
	}

	if err == nil && t.needsModel() {
		s.Workspaces, s.workspaces, err = r.promptWorkspaces(ctx, run, t)
	}

	s.Servers = r.givenServers(t)
	s.Registered = r.registeredOffers(ctx, t)
	s.registered = r.registeredPlaces(t, s.Registered)
	if err == nil {
		err = s.readSkills(t)
	}

	return s, err
}

// apply gives a task what a recorded attempt began with.
func (s snapshot) apply(t *task) {
	t.manifest = s.Manifest
	if s.Prompt != "" {
		t.job.Prompt = s.Prompt
	}

	if s.File != nil {
		t.detail.File = s.File
	}

	for _, f := range s.Files {
		t.files = append(t.files, batchFile{f.File, f.Gone})
	}
}

// templateData is what templates can name.
func (s snapshot) templateData(a ledger.Attempt, t task) map[string]any {
	data := templateData(s.run, a.Number, t.detail, s.LastSuccess, s.LastRun)
	if len(t.files) > 0 {
		data["Files"], data["Manifest"] = t.files, t.manifest
	}
	if t.detail.Webhook != nil {
		addBody(data, s.Body)
	}
	return data
}

// times are when the run's job last succeeded, and when it last ended at all. A run that
// was skipped did nothing: if it counted, a job whose condition asks for six hours since the
// last run would never run again.
func (r *Runner) times(ctx context.Context, run ledger.Run) (lastSuccess, lastRun time.Time, err error) {
	if run.Job == "" {
		return lastSuccess, lastRun, nil
	}

	good, ok, err := r.ledger.LastSuccess(ctx, run.Job)
	if err != nil {
		return lastSuccess, lastRun, err
	}

	if ok {
		lastSuccess = good.FinishedAt
	}

	// Mostly the run before is the one; after a row of skipped ones the pages grow.
	f := ledger.RunFilter{Job: run.Job, State: domain.StateFinished, Before: run.ID, Limit: 1}
	for ; ; f.Limit = min(2*f.Limit, 1000) {
		before, err := r.ledger.Runs(ctx, f)
		if err != nil || len(before) == 0 {
			return lastSuccess, lastRun, err
		}

		for _, b := range before {
			if b.Outcome != domain.OutcomeSkipped {
				return lastSuccess, b.FinishedAt, nil
			}
			f.Before = b.ID
		}
	}
}
