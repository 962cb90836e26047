package api

import "rouse/agentdb"

// The parts of a run that can be undone alone.
const (
	UndoFiles    = "files"
	UndoDatabase = "database"
)

// UndoRequest asks that a run be undone.
type UndoRequest struct {
	Force  bool `json:"force"`   // what came later and stands in the way is lost
	DryRun bool `json:"dry_run"` // only say what would become of it
	// Only is UndoFiles or UndoDatabase; "" is both.
	Only string `json:"only,omitempty"`
	// Agent, when it is not "", is whose run it has to be.
	Agent string `json:"agent,omitempty"`
}

// Undo is what was undone of a run, or would be.
type Undo struct {
	Run      string         `json:"run"`
	Agent    string         `json:"agent"`
	Done     bool           `json:"done"`
	CanUndo  bool           `json:"can_undo"`
	Files    []UndoneFile   `json:"files"`
	Database agentdb.Undone `json:"database"`
	Checkout string         `json:"checkout,omitempty"` // the branch of the run's clone, both of which are discarded
	Left     []string       `json:"left"`               // what the run did and what stays
}

// UndoneFile is a change of a file by a run.
type UndoneFile struct {
	Path   string `json:"path"`
	Type   string `json:"type"`   // create, write, fileEdit, move, moveAway, copy, delete, dirCreate, dirDelete
	Before bool   `json:"before"` // something was there before it
	After  bool   `json:"after"`  // something is there since
	// Why it was not, or cannot be, undone; "" when it was or can.
	Why string `json:"why_not,omitempty"`
}
