package agent

import (
	"context"
	"time"

	"rouse/agentdb/ledger"
)

// scene is what an attempt finds beside its orders: what the ledger, the database and the
// folders said when it began. A replay takes it from the recording, since all of it has
// changed meanwhile.
type scene struct {
	LastSuccess time.Time `json:"last_success,omitzero"`
	LastRun     time.Time `json:"last_run,omitzero"`
	Tables      string    `json:"tables,omitempty"`   // of the agent's database, as its model is told of them
	Prompt      string    `json:"prompt,omitempty"`   // of a wake: the host's words
	Undone      time.Time `json:"undone,omitzero"`    // when what the run had written into the database was taken back
	Rewrites    []string  `json:"rewrites,omitempty"` // keys of the calls whose changes of files were taken back
	Views       string    `json:"views,omitempty"`    // the saved views that the task asked for, with their rows
	// What is told of skills, and those that the task asked for.
	Skills    string      `json:"skills,omitempty"`
	Activated []activated `json:"activated,omitempty"`
	// What is left of the files that started the run.
	File     *ledger.File `json:"file,omitempty"`
	Files    []sceneFile  `json:"files,omitempty"`
	Manifest string       `json:"manifest,omitempty"`

	run ledger.Run // as templates know it
}

type sceneFile struct {
	ledger.File
	Gone bool `json:"gone,omitempty"`
}

// scene looks around.
func (r *Runner) scene(ctx context.Context, run ledger.Run, t task) (s scene, err error) {
	s = scene{run: run, File: t.detail.File, Manifest: t.manifest}
	if s.LastSuccess, s.LastRun, err = r.times(ctx, run); err != nil {
		return s, err
	}

	if t.detail.Wake != nil {
		s.Prompt = t.job.Prompt
	}

	for _, f := range t.files {
		s.Files = append(s.Files, sceneFile{f.File, f.gone})
	}

	if t.agent.Database && t.needsModel() {
		s.Tables, err = r.tables(ctx, t.agent.Name)
		if err == nil {
			s.Views, err = r.contextViews(ctx, t)
		}
	}

	if err == nil {
		err = s.lookAtSkills(t)
	}

	return s, err
}

// set puts a task into the scene.
func (s scene) set(t *task) {
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

// data is what templates can name.
func (s scene) data(a ledger.Attempt, t task) map[string]any {
	data := templateData(s.run, a.Number, t.detail, s.LastSuccess, s.LastRun)
	if len(t.files) > 0 {
		data["Files"], data["Manifest"] = t.files, t.manifest
	}
	return data
}
