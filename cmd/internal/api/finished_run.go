package api

import (
	"rouse/agent/checkout"
	"rouse/agentdb/changelog"
	"rouse/internal/domain"
)

// The states of a checkout.
const (
	CheckoutOpen    = "open"    // its run has not ended, or its branch could not be brought back
	CheckoutEmpty   = "empty"   // the run has no commits
	CheckoutWaiting = "waiting" // the branch waits to be applied or discarded
	CheckoutApplied = "applied"
)

// Checkout is the private clone of a run, and what became of its branch. Subjects, authors and paths are the agent's words.
type Checkout struct {
	Run         string              `json:"run"`
	State       string              `json:"state"` // open, empty, waiting, applied
	Repo        string              `json:"repo"`
	Ref         string              `json:"ref"`              // at which the run began
	Target      string              `json:"target,omitempty"` // the branch that apply changes; "": the one that is checked out
	Branch      string              `json:"branch"`
	Base        string              `json:"base"`
	Head        string              `json:"head,omitempty"`
	Commits     []checkout.Commit   `json:"commits"` // newest first, at most 1,000
	Files       []checkout.FileStat `json:"files"`   // added and removed are lines, -1 for a file that is no text
	Uncommitted int                 `json:"uncommitted"`
	Notes       []string            `json:"notes"` // what the clone or its branch leaves out
	Applied     *checkout.Applied   `json:"applied,omitempty"`
	Pushed      string              `json:"pushed,omitempty"`       // the remote to which the branch was pushed
	PullRequest string              `json:"pull_request,omitempty"` // its address
	Clone       string              `json:"clone"`                  // the folder
	KeptUntil   Time                `json:"kept_until"`             // the clone; its branch stays
	Diff        string              `json:"diff,omitempty"`
	Taint       []string            `json:"taint"` // of the run: its labels hold for what it wrote
}

// ApplyRequest says how the branch of a run is applied.
type ApplyRequest struct {
	How  string `json:"how,omitempty"`  // merge (the default), cherry-pick
	Head string `json:"head,omitempty"` // the commit that was looked at; another one by now is refused
}

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
	Run      string           `json:"run"`
	Agent    string           `json:"agent"`
	Done     bool             `json:"done"`
	CanUndo  bool             `json:"can_undo"`
	Files    []UndoneFile     `json:"files"`
	Database changelog.Undone `json:"database"`
	Checkout string           `json:"checkout,omitempty"` // the branch of the run's clone, both of which are discarded
	Left     []string         `json:"left"`               // what the run did and what stays
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

// Replay is what came of playing a run again as its job is configured now.
type Replay struct {
	Run         string             `json:"run"`
	Job         string             `json:"job"`
	Agent       string             `json:"agent"`
	Exchanges   int                `json:"exchanges"` // with a model, that were recorded
	Calls       int                `json:"calls"`     // that were recorded
	Attempts    int                `json:"attempts"`
	Same        bool               `json:"same"`
	Unknown     string             `json:"unknown,omitempty"` // why it was not played to its end
	Differences []ReplayDifference `json:"differences"`
	Recorded    ReplayEnding       `json:"recorded"`
	Now         ReplayEnding       `json:"now"`
}

// ReplayDifference is one thing that is different now.
type ReplayDifference struct {
	Attempt  int    `json:"attempt,omitempty"`
	Step     int    `json:"step,omitempty"` // 0: the end
	What     string `json:"what"`
	Recorded string `json:"recorded"`
	Now      string `json:"now"`
}

// ReplayEnding is how a run ended, and what it took.
type ReplayEnding struct {
	Outcome      domain.Outcome `json:"outcome"`
	Exit         domain.Exit    `json:"exit"`
	Verified     bool           `json:"verified"`
	Summary      string         `json:"summary,omitempty"`
	Error        string         `json:"error,omitempty"`
	Steps        int            `json:"steps"`
	Calls        int            `json:"calls"`
	Tokens       int64          `json:"tokens"`
	CostMicroUSD int64          `json:"cost_micro_usd"`
}
