package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"rouse/agentdb"
	"rouse/agentdb/ledger"
)

// UndoAsk asks that a run be taken back.
type UndoAsk struct {
	Force  bool `json:"force"`   // what came later and stands in the way is lost
	DryRun bool `json:"dry_run"` // only say what would become of it
}

// Undo is what was taken back of a run, or would be.
type Undo struct {
	Run      string         `json:"run"`
	Agent    string         `json:"agent"`
	Done     bool           `json:"done"`
	CanUndo  bool           `json:"can_undo"`
	Database agentdb.Undone `json:"database"`
	Left     []string       `json:"left"` // what the run did and what stays
}

// undo takes back what a finished run wrote into the database.
func (s *server) undo(r *http.Request) (any, error) {
	id, err := runID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	var ask UndoAsk
	if err := read(r, &ask); err != nil {
		return nil, err
	}
	run, err := s.ledger.Run(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if run.State != ledger.StateFinished {
		return nil, &Error{Status: http.StatusConflict, Message: fmt.Sprintf("run %d has not finished (%s); cancel it first, or wait", id, run.State)}
	}
	db, release, err := s.engine.Database(r.Context(), run.Agent)
	if err != nil {
		return nil, err
	}
	defer release()
	done, err := db.Undo(r.Context(), owner, agentdb.UndoSpec{Run: id, Force: ask.Force, DryRun: ask.DryRun})
	if err != nil {
		return nil, err
	}
	out := Undo{Run: strconv.FormatInt(id, 10), Agent: run.Agent, Done: done.Done, CanUndo: done.CanUndo, Database: done, Left: done.Left}
	files, err := s.ledger.FileOps(r.Context(), ledger.FileOpFilter{Run: id, Limit: -1})
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.UndoneAt.IsZero() {
			out.Left = append(out.Left, "the file "+f.Path+" stays as the run left it")
		}
	}
	if !done.Done || done.Changes == 0 {
		return out, nil
	}
	data, err := json.Marshal(map[string]any{"by": "user", "done": true, "forced": ask.Force, "changes": done.Changes, "conflicts": done.InTheWay})
	if err != nil {
		return nil, err
	}
	return out, s.ledger.AppendEvents(r.Context(), ledger.Event{Run: id, Job: run.Job, Kind: "run.undone", Data: data})
}
