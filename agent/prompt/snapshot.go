package prompt

import (
	"context"

	"rouse/agent/plan"
	"rouse/agent/programs"
	"rouse/agentdb/pool"
	"rouse/internal/ledger"
	"rouse/internal/ledger/label"
)

// Snapshot holds everything that a prompt contains besides the task, as it was when the attempt
// began. It is stored in recordings.
type Snapshot struct {
	Tables     string `json:"tables,omitempty"`     // tables of the agent's database, as described to the model
	Prompt     string `json:"prompt,omitempty"`     // host's text for a wake
	Views      string `json:"views,omitempty"`      // requested saved views with their rows
	Workspaces string `json:"workspaces,omitempty"` // active workspaces of the agent's skills
	Soul       *soul  `json:"soul,omitempty"`       // owner's description of the agent; nil if there is none
	Folder     string `json:"folder,omitempty"`     // description of the working folder
	Session    string `json:"session,omitempty"`    // earlier runs of the session
	Clock      string `json:"clock,omitempty"`      // start time and trigger of the run
	// List of skills in the prompt, and the skills that the task names.
	Skills    string           `json:"skills,omitempty"`
	Activated []activatedSkill `json:"activated,omitempty"`

	WorkspacePlaces []label.Place `json:"-"` // places of Workspaces
	Met             string        `json:"-"` // labels of the runs in Session
}

// Sources holds the stores from which a Snapshot is read.
type Sources struct {
	Ledger    *ledger.Ledger
	Databases *pool.Pool
	Programs  *programs.Hosts
}

// Read returns the snapshot of an attempt, without skills. It is empty if the run uses neither a
// model nor an agent program.
func (r Sources) Read(ctx context.Context, t *plan.Attempt) (s Snapshot, err error) {
	if !t.NeedsModel() && !t.Executes() {
		return s, nil
	}
	err = r.readInto(ctx, t, &s)
	return s, err
}

// readInto reads the snapshot of an attempt into s.
func (r Sources) readInto(ctx context.Context, t *plan.Attempt, s *Snapshot) (err error) {
	s.Soul, s.Clock = NewSoul(&t.Task), Clock(&t.Task)
	// The text of a wake mentions the last run, which is a different one at the time of a replay.
	// So the text is stored.
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
