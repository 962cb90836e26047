package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"rouse/agentdb"
	"rouse/agentdb/ledger"
)

// The parts of a run that can be taken back alone.
const (
	UndoFiles    = "files"
	UndoDatabase = "database"
)

// UndoAsk asks that a run be taken back.
type UndoAsk struct {
	Force  bool `json:"force"`   // what came later and stands in the way is lost
	DryRun bool `json:"dry_run"` // only say what would become of it
	// Only is UndoFiles or UndoDatabase; "" is both.
	Only string `json:"only,omitempty"`
	// Agent, when it is not "", is whose run it has to be.
	Agent string `json:"agent,omitempty"`
}

// Undo is what was taken back of a run, or would be.
type Undo struct {
	Run      string         `json:"run"`
	Agent    string         `json:"agent"`
	Done     bool           `json:"done"`
	CanUndo  bool           `json:"can_undo"`
	Files    []UndoneFile   `json:"files"`
	Database agentdb.Undone `json:"database"`
	Left     []string       `json:"left"` // what the run did and what stays
}

// UndoneFile is a change of a file by a run.
type UndoneFile struct {
	Path   string `json:"path"`
	Type   string `json:"type"`   // create, write, fileEdit, move, copy, delete, dirCreate
	Before bool   `json:"before"` // something was there before it
	After  bool   `json:"after"`  // something is there since
	// Why it was not, or cannot be, taken back; "" when it was or can.
	Why string `json:"why_not,omitempty"`
}

// undoRun takes back what a finished run wrote, and says meanwhile how many entries of the
// changelog are done.
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
	if ask.Only != "" && ask.Only != UndoFiles && ask.Only != UndoDatabase {
		return out, usage("%q is none of files and database", ask.Only)
	}
	if err := s.engine.Known("", run.Agent); err != nil && ask.Only != UndoFiles {
		return out, err
	}
	return s.engine.Undo(r.Context(), run, ask, progress)
}

// Undo takes a run back and hears how many entries of the changelog are done.
func (c *Client) Undo(ctx context.Context, run string, ask UndoAsk, progress func(done, of int64)) (Undo, error) {
	path := "/v1/runs/" + url.PathEscape(run) + "/undo"
	resp, err := c.send(ctx, http.MethodPost, path, nil, ask)
	if err != nil {
		return Undo{}, err
	}
	defer resp.Body.Close()
	return readWork[Undo](resp, path, progress, "the daemon ended before it said what became of the undo; repeat it: what is taken back already is not taken back twice")
}
