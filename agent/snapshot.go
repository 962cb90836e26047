package agent

import (
	"context"
	"time"

	"rouse/agent/plan"

	"rouse/agent/tool/host"
	"rouse/agent/tool/mcp"
	"rouse/agent/vars"
	"rouse/internal/ledger"
)

// snapshot is what an attempt found in the ledger, the database and the folders when it began. A
// replay takes it from the recording.
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
	Mode        string    `json:"mode,omitempty"`       // in which the agent worked
	Soul        *soul     `json:"soul,omitempty"`       // who the agent is, as its model is told; nil: its owner says nothing
	Folder      string    `json:"folder,omitempty"`     // the working folder, as its model is told of it
	Session     string    `json:"session,omitempty"`    // what was said in the earlier runs of the job
	Clock       string    `json:"clock,omitempty"`      // when the run started, and its trigger
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
	met        string         // letters of the earlier runs that it is told of
}

type snapshotFile struct {
	ledger.File
	Gone bool `json:"gone,omitempty"`
}

func (r *Runner) takeSnapshot(ctx context.Context, t *attempt) (s snapshot, err error) {
	s = snapshot{run: t.Run, File: t.Detail.File, Manifest: t.Manifest, Mode: t.Agent.Mode}
	last, err := r.times(ctx, t.Run)
	if err != nil {
		return s, err
	}
	s.LastSuccess, s.LastRun = last.SuccessStart, last.End
	if t.Detail.Webhook != nil {
		if s.Body, err = r.ledger.DeliveryBody(ctx, t.Run.ID); err != nil {
			return s, err
		}
	}
	for _, f := range t.Files {
		s.Files = append(s.Files, snapshotFile{f.File, f.Removed()})
	}

	if t.NeedsModel() || t.Executes() {
		if err := r.snapshotPrompt(ctx, t, &s); err != nil {
			return s, err
		}
	}
	s.Servers = r.givenServers(t)
	s.Registered = r.registeredOffers(ctx, t)
	for name := range s.Registered {
		s.registered = append(s.registered, host.StoragePlace(r.storageOf(t.Agent.Name, name)))
	}
	return s, s.readSkills(t)
}

// snapshotPrompt reads what a model or an agent program is told beside its task.
func (r *Runner) snapshotPrompt(ctx context.Context, t *attempt, s *snapshot) (err error) {
	s.Soul, s.Clock = newSoul(&t.Task), clockPrompt(t)
	// What the agent did last has changed by the time of a replay, so its wording is kept.
	if t.Detail.Wake != nil {
		s.Prompt = t.Job.Prompt
	}
	if t.Agent.Database {
		if s.Views, err = r.contextViews(ctx, t); err != nil {
			return err
		}
	}
	told, err := r.readSession(ctx, t)
	if s.Session, s.met = told.text, told.taint; err != nil || !t.NeedsModel() {
		return err
	}

	if t.Agent.Database {
		if s.Tables, err = r.tables(ctx, t); err != nil {
			return err
		}
	}
	s.Folder = r.describeFolder(ctx, t)
	s.Workspaces, s.workspaces, err = r.promptWorkspaces(ctx, t)
	return err
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

// times returns the times of earlier runs of the job, without skipped runs: a job that must wait
// after its last run would otherwise be skipped forever.
func (r *Runner) times(ctx context.Context, run ledger.Run) (ledger.LastTimes, error) {
	if run.Job == "" {
		return ledger.LastTimes{}, nil
	}
	return r.ledger.LastTimes(ctx, run.Job, run.ID)
}
