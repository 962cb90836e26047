package prompt

import (
	"context"

	"rouse/agent/plan"
	"rouse/agent/programs"
	"rouse/agentdb/pool"
	"rouse/internal/ledger"
	"rouse/internal/ledger/label"
)

// Snapshot is what a model or an agent program is told beside its task, as an attempt found it
// when it began. It is kept in recordings.
type Snapshot struct {
	Tables     string `json:"tables,omitempty"`     // of the agent's database, as its model is told of them
	Prompt     string `json:"prompt,omitempty"`     // of a wake: the host's words
	Views      string `json:"views,omitempty"`      // the saved views that the task asked for, with their rows
	Workspaces string `json:"workspaces,omitempty"` // of the agent's skills, those that are active
	Soul       *soul  `json:"soul,omitempty"`       // who the agent is, as its model is told; nil: its owner says nothing
	Folder     string `json:"folder,omitempty"`     // the working folder, as its model is told of it
	Session    string `json:"session,omitempty"`    // what was said in the earlier runs of the job
	Clock      string `json:"clock,omitempty"`      // when the run started, and its trigger
	// What is told of skills, and those that the task asked for.
	Skills    string           `json:"skills,omitempty"`
	Activated []activatedSkill `json:"activated,omitempty"`

	WorkspacePlaces []label.Place `json:"-"` // of Workspaces
	Met             string        `json:"-"` // letters of the labels of the runs in Session
}

// Sources are where the snapshot of a prompt is read.
type Sources struct {
	Ledger    *ledger.Ledger
	Databases *pool.Pool
	Programs  *programs.Hosts
}

// Read returns what a model or an agent program is told beside its task, without skills. It is empty
// for other runs.
func (r Sources) Read(ctx context.Context, t *plan.Attempt) (s Snapshot, err error) {
	if !t.NeedsModel() && !t.Executes() {
		return s, nil
	}
	err = r.readInto(ctx, t, &s)
	return s, err
}

// readInto reads what a model or an agent program is told beside its task.
func (r Sources) readInto(ctx context.Context, t *plan.Attempt, s *Snapshot) (err error) {
	s.Soul, s.Clock = NewSoul(&t.Task), Clock(&t.Task)
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
	if s.Session, s.Met = told.text, told.taint; err != nil || !t.NeedsModel() {
		return err
	}

	if t.Agent.Database {
		if s.Tables, err = r.tables(ctx, t); err != nil {
			return err
		}
	}
	s.Folder = r.describeFolder(ctx, t)
	s.Workspaces, s.WorkspacePlaces, err = r.workspaces(ctx, t)
	return err
}
