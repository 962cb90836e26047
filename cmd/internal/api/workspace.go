package api

import (
	"encoding/json"

	"rouse/internal/domain"
	"rouse/internal/ledger/workspace"
)

// Workspace is the persistent state of a skill for one agent.
type Workspace struct {
	ID            string           `json:"id"`
	Agent         string           `json:"agent"`
	Skill         string           `json:"skill"`
	Name          string           `json:"name"`
	Status        workspace.Status `json:"status"`
	StatusBy      string           `json:"status_by"` // user or agent
	Phase         string           `json:"phase"`
	Role          string           `json:"role"`
	SchemaVersion string           `json:"schema_version"`
	LockVersion   int64            `json:"lock_version"`
	Review        string           `json:"review"` // run that left the workspace in an inconsistent state; empty if it is consistent
	Run           string           `json:"run"`    // run that uses the workspace now; empty if it is idle
	WaitingFor    domain.Wait      `json:"waiting_for"`
	CreatedAt     Time             `json:"created_at"`
	UpdatedAt     Time             `json:"updated_at"`
}

// WorkspaceDetail is a workspace with its contents and its runs.
type WorkspaceDetail struct {
	Workspace
	State     json.RawMessage     `json:"state"`
	Active    []WorkspaceRun      `json:"active"` // newest first; usually one
	Artifacts []WorkspaceArtifact `json:"artifacts"`
	Runs      []Run               `json:"runs"` // finished runs, newest first
	Events    []WorkspaceEvent    `json:"events"`
}

// WorkspaceRun is a run that uses a workspace.
type WorkspaceRun struct {
	Run      Run             `json:"run"`
	Step     string          `json:"step"`     // step of the last checkpoint
	Progress json.RawMessage `json:"progress"` // last progress reported by the skill; null before the first report
	Inbox    []Item          `json:"inbox"`    // items the run waits for
}

// WorkspaceArtifact is the latest version of an artifact of a workspace.
type WorkspaceArtifact struct {
	Artifact
	Title       string `json:"title"`
	Type        string `json:"type"`
	Status      string `json:"status"`   // status set by the skill
	Approval    string `json:"approval"` // decision of the owner: approved, rejected or empty
	ApprovalRef string `json:"approval_ref"`
	Role        string `json:"role"`
	Run         string `json:"run"` // run that created it
}

// WorkspaceEvent is an event of a workspace.
type WorkspaceEvent struct {
	At          Time            `json:"at"`
	Kind        string          `json:"kind"`
	Run         string          `json:"run"` // empty if the owner caused it
	LockVersion int64           `json:"lock_version"`
	Data        json.RawMessage `json:"data"`
}

// RetriedWorkspace is a workspace that was reset to a checkpoint, and the run that continues from
// there.
type RetriedWorkspace struct {
	Workspace
	Retry Run `json:"retry"`
}
