package api

import (
	"encoding/json"

	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// Workspace is state of one skill for one agent that outlives runs.
type Workspace struct {
	ID            string                 `json:"id"`
	Agent         string                 `json:"agent"`
	Skill         string                 `json:"skill"`
	Name          string                 `json:"name"`
	Status        ledger.WorkspaceStatus `json:"status"`
	StatusBy      string                 `json:"status_by"` // user, agent
	Phase         string                 `json:"phase"`
	Role          string                 `json:"role"`
	SchemaVersion string                 `json:"schema_version"`
	LockVersion   int64                  `json:"lock_version"`
	Review        string                 `json:"review"` // the run that left it half changed; "": none
	Run           string                 `json:"run"`    // that works in it now; "": none
	WaitingFor    domain.Wait            `json:"waiting_for"`
	CreatedAt     Time                   `json:"created_at"`
	UpdatedAt     Time                   `json:"updated_at"`
}

// WorkspaceDetail is a workspace with what it holds, and who works in it (OSL-38).
type WorkspaceDetail struct {
	Workspace
	State     json.RawMessage     `json:"state"`
	Active    []WorkspaceRun      `json:"active"` // the newest first; mostly one
	Artifacts []WorkspaceArtifact `json:"artifacts"`
	Runs      []Run               `json:"runs"` // that are over, the newest first
	Events    []WorkspaceEvent    `json:"events"`
}

// WorkspaceRun is a run that works in a workspace.
type WorkspaceRun struct {
	Run      Run             `json:"run"`
	Step     string          `json:"step"`     // of its last checkpoint
	Progress json.RawMessage `json:"progress"` // as its skill last said it; null: it has not
	Inbox    []Item          `json:"inbox"`    // what it waits for
}

// WorkspaceArtifact is a version of an artifact of a workspace, the latest one.
type WorkspaceArtifact struct {
	Artifact
	Title       string `json:"title"`
	Type        string `json:"type"`
	Status      string `json:"status"`   // as the skill says
	Approval    string `json:"approval"` // as the owner has decided: approved, rejected, ""
	ApprovalRef string `json:"approval_ref"`
	Role        string `json:"role"`
	Run         string `json:"run"` // that made it
}

// WorkspaceEvent is one thing that happened to a workspace.
type WorkspaceEvent struct {
	At          Time            `json:"at"`
	Kind        string          `json:"kind"`
	Run         string          `json:"run"` // "": its owner
	LockVersion int64           `json:"lock_version"`
	Data        json.RawMessage `json:"data"`
}

// RetriedWorkspace is a workspace that was put back to a checkpoint, and the run that begins from it.
type RetriedWorkspace struct {
	Workspace
	Retry Run `json:"retry"`
}
