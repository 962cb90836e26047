package api

import (
	"rouse/agent/checkout"
	"rouse/agentdb/changelog"
	"rouse/internal/domain"
)

// States of a checkout.
const (
	CheckoutOpen    = "open"    // the run has not ended, or its branch could not be fetched
	CheckoutEmpty   = "empty"   // the run has no commits
	CheckoutWaiting = "waiting" // the branch has not been applied or discarded yet
	CheckoutApplied = "applied"
)

// Checkout is the private clone of a run and the state of its branch. Subjects, authors and paths
// are chosen by the agent.
type Checkout struct {
	Run         string              `json:"run"`
	State       string              `json:"state"` // open, empty, waiting or applied
	Repo        string              `json:"repo"`
	Ref         string              `json:"ref"`              // ref the run started from
	Target      string              `json:"target,omitempty"` // branch that apply changes; empty means the one checked out
	Branch      string              `json:"branch"`
	Base        string              `json:"base"`
	Head        string              `json:"head,omitempty"`
	Commits     []checkout.Commit   `json:"commits"` // newest first, at most 1,000
	Files       []checkout.FileStat `json:"files"`   // lines added and removed; -1 if the file is not text
	Uncommitted int                 `json:"uncommitted"`
	Notes       []string            `json:"notes"` // content missing from the clone or its branch
	Applied     *checkout.Applied   `json:"applied,omitempty"`
	Pushed      string              `json:"pushed,omitempty"`       // remote the branch was pushed to
	PullRequest string              `json:"pull_request,omitempty"` // URL of the pull request
	Clone       string              `json:"clone"`                  // directory of the clone
	KeptUntil   Time                `json:"kept_until"`             // time the clone is removed; the branch stays
	Diff        string              `json:"diff,omitempty"`
	Taint       []string            `json:"taint"` // labels of the run, which apply to the branch too
}

// ApplyRequest requests that a run's branch be applied.
type ApplyRequest struct {
	How  string `json:"how,omitempty"`  // merge (default) or cherry-pick
	Head string `json:"head,omitempty"` // reviewed commit; apply fails if the head has changed
}

// Parts of a run that can be undone separately.
const (
	UndoFiles    = "files"
	UndoDatabase = "database"
)

// UndoRequest requests that a run be undone.
type UndoRequest struct {
	Force  bool `json:"force"`   // overwrite later changes that are in the way
	DryRun bool `json:"dry_run"` // only report the result
	// Only is UndoFiles or UndoDatabase. Empty means both.
	Only string `json:"only,omitempty"`
	// Agent is the agent the run must belong to. Optional.
	Agent string `json:"agent,omitempty"`
}

// Undo is the result of undoing a run, or the expected result of a dry run.
type Undo struct {
	Run      string           `json:"run"`
	Agent    string           `json:"agent"`
	Done     bool             `json:"done"`
	CanUndo  bool             `json:"can_undo"`
	Files    []UndoneFile     `json:"files"`
	Database changelog.Undone `json:"database"`
	Checkout string           `json:"checkout,omitempty"` // branch and clone of the run that are discarded
	Left     []string         `json:"left"`               // effects of the run that remain
}

// UndoneFile is a file change made by a run.
type UndoneFile struct {
	Path   string `json:"path"`
	Type   string `json:"type"`   // create, write, fileEdit, move, moveAway, copy, delete, dirCreate or dirDelete
	Before bool   `json:"before"` // the path existed before the change
	After  bool   `json:"after"`  // the path exists since the change
	// Why is the reason why the change was not or cannot be undone. Empty if it was or can be.
	Why string `json:"why_not,omitempty"`
}

// Replay is the result of replaying a run with its job's current configuration.
type Replay struct {
	Run         string             `json:"run"`
	Job         string             `json:"job"`
	Agent       string             `json:"agent"`
	Exchanges   int                `json:"exchanges"` // recorded exchanges with a model
	Calls       int                `json:"calls"`     // recorded calls
	Attempts    int                `json:"attempts"`
	Same        bool               `json:"same"`
	Unknown     string             `json:"unknown,omitempty"` // why the replay did not reach the end
	Differences []ReplayDifference `json:"differences"`
	Recorded    ReplayEnding       `json:"recorded"`
	Now         ReplayEnding       `json:"now"`
}

// ReplayDifference is a difference between the recording and the replay.
type ReplayDifference struct {
	Attempt  int    `json:"attempt,omitempty"`
	Step     int    `json:"step,omitempty"` // 0 for the end of the run
	What     string `json:"what"`
	Recorded string `json:"recorded"`
	Now      string `json:"now"`
}

// ReplayEnding holds the outcome and the usage of a run.
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
