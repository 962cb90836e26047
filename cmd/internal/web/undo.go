package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"rouse/agentdb"
	"rouse/agentdb/ledger"
)

// UndoAsk asks that a run be taken back.
type UndoAsk struct {
	Force  bool `json:"force"`   // what came later and stands in the way is lost
	DryRun bool `json:"dry_run"` // only say what would become of it
	// Agent, when it is not "", is whose run it has to be.
	Agent string `json:"agent,omitempty"`
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

// undoRun takes back what a finished run wrote into the database, and says meanwhile how many
// entries of the changelog are done.
func (s *server) undoRun(w http.ResponseWriter, r *http.Request) {
	var ask UndoAsk
	if err := read(r, &ask); err != nil {
		s.fail(w, r, err)
		return
	}
	var progress atomic.Pointer[workLine[Undo]]
	sendWork(s, w, r, &progress, func() (Undo, error) {
		return s.undo(r, ask, func(done, of int64) { progress.Store(&workLine[Undo]{Done: done, Of: of}) })
	})
}

func (s *server) undo(r *http.Request, ask UndoAsk, progress func(done, of int64)) (out Undo, err error) {
	id, err := runID(r.PathValue("id"))
	if err != nil {
		return out, err
	}
	run, err := s.ledger.Run(r.Context(), id)
	if err != nil {
		return out, err
	}
	if ask.Agent != "" && !strings.EqualFold(ask.Agent, run.Agent) {
		return out, usage("run %d is one of agent %s, not of %s", id, run.Agent, ask.Agent)
	}
	if run.State != ledger.StateFinished {
		return out, &Error{Status: http.StatusConflict, Message: fmt.Sprintf("run %d has not finished (%s); cancel it first, or wait", id, run.State)}
	}
	db, release, err := s.engine.Database(r.Context(), run.Agent)
	if err != nil {
		return out, err
	}
	defer release()
	done, err := db.Undo(r.Context(), owner, agentdb.UndoSpec{Run: id, Force: ask.Force, DryRun: ask.DryRun, Progress: progress})
	if err != nil {
		return out, err
	}
	out = Undo{Run: strconv.FormatInt(id, 10), Agent: run.Agent, Done: done.Done, CanUndo: done.CanUndo, Database: done, Left: done.Left}
	files, err := s.ledger.FileOps(r.Context(), ledger.FileOpFilter{Run: id, Limit: -1})
	if err != nil {
		return out, err
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
		return out, err
	}
	return out, s.ledger.AppendEvents(r.Context(), ledger.Event{Run: id, Job: run.Job, Kind: "run.undone", Data: data})
}

// Undo takes a run back and hears how many entries of the changelog are done.
func (c *Client) Undo(ctx context.Context, run string, ask UndoAsk, progress func(done, of int64)) (Undo, error) {
	path := "/v1/runs/" + url.PathEscape(run) + "/undo"
	resp, err := c.send(ctx, http.MethodPost, path, nil, ask)
	if err != nil {
		return Undo{}, err
	}
	return readWork[Undo](resp, path, progress, "the daemon ended before it said what became of the undo; repeat it: what is taken back already is not taken back twice")
}
