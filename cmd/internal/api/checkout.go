package api

import "rouse/agent/checkout"

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
