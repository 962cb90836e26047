package workspace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/label"
	"rouse/internal/ledger/workspace"
	"rouse/internal/text"
)

type workspaceArgs struct {
	Action      string         `json:"action"`
	WorkspaceID string         `json:"workspaceId,omitempty" jsonschema:"default: the one that this run works in"`
	Skill       string         `json:"skill,omitempty" jsonschema:"of create; default: the only one of yours that keeps workspaces"`
	Name        string         `json:"name,omitempty" jsonschema:"of create: one line"`
	State       map[string]any `json:"state,omitempty" jsonschema:"the whole state"`
	LockVersion int64          `json:"lockVersion,omitempty" jsonschema:"as it was read; refused when somebody wrote meanwhile"`
	Phase       string         `json:"phase,omitempty"`
	Role        string         `json:"role,omitempty"`
	Status      string         `json:"status,omitempty" jsonschema:"of list: active, paused or archived; of an artifact: any word"`
	ArtifactID  string         `json:"artifactId,omitempty"`
	Title       string         `json:"title,omitempty"`
	Type        string         `json:"type,omitempty" jsonschema:"of an artifact, such as markdown"`
	Content     string         `json:"content,omitempty" jsonschema:"of an artifact"`
}

// workspaceNeed returns the places that a call reads labels from and the places it writes labels
// to.
func (o Options) workspaceNeed(ctx context.Context, in tool.Invocation, a workspaceArgs) (tool.Access, error) {
	switch a.Action {
	case "create":
		return tool.Access{Writes: []label.Place{label.WorkspacePlace(in.Agent, o.skill(a), o.newName(a))}}, nil
	case "list":
		all, err := o.all(ctx, in, "")
		return tool.Access{Reads: places(all)}, err
	}

	w, err := o.find(ctx, in, a.WorkspaceID)
	if err != nil {
		if err = tool.LedgerRefusal(err); errors.As(err, new(*tool.Refusal)) {
			err = nil // the call itself reports the error
		}
		return tool.Access{}, err
	}

	// The result of a write contains the current workspace, so writes also read.
	need := tool.Access{Reads: []label.Place{place(w)}}
	if !slices.Contains(workspaceReads, a.Action) {
		need.Writes = need.Reads
	}
	return need, nil
}

// newName returns the name of a workspace to create.
func (o Options) newName(a workspaceArgs) string { return strings.TrimSpace(o.Redact(a.Name)) }

// skill returns the skill of a workspace to create.
func (o Options) skill(a workspaceArgs) string {
	if a.Skill == "" && len(o.Skills) == 1 {
		return o.Skills[0]
	}
	return a.Skill
}

type workspaceResult struct {
	ID          string           `json:"id"`
	Skill       string           `json:"skill"`
	Name        string           `json:"name"`
	Status      workspace.Status `json:"status"`
	Phase       string           `json:"phase,omitempty"`
	Role        string           `json:"role,omitempty"`
	Review      string           `json:"review_of_run,omitempty"`
	LockVersion int64            `json:"lock_version"`
	State       json.RawMessage  `json:"state,omitempty"`
}

func newResult(w workspace.Workspace) workspaceResult {
	return workspaceResult{ID: optionalID(w.ID), Skill: w.Skill, Name: w.Name, Status: w.Status, Phase: w.Phase, Role: w.Role, Review: optionalID(w.Review), LockVersion: w.LockVersion}
}

type artifactResult struct {
	ID       string `json:"id"`
	Title    string `json:"title"`
	Type     string `json:"type,omitempty"`
	Status   string `json:"status"`
	Approval string `json:"approval,omitempty"`
	Version  int    `json:"version"`
	Size     int64  `json:"size"`
	Parent   string `json:"parent,omitempty"`
}

func newArtifactResult(a artifact.Artifact) artifactResult {
	return artifactResult{optionalID(a.ID), a.Title, a.Type, a.Status, a.Approval, a.Version, a.Size, optionalID(a.Parent)}
}

// manageWorkspace implements workspace_manage.
func (o Options) manageWorkspace(ctx context.Context, in tool.Invocation, a workspaceArgs) (tool.Envelope, error) {
	a.Phase, a.Role, a.Title, a.Content, a.Status = o.Redact(a.Phase), o.Redact(a.Role), o.Redact(a.Title), o.Redact(a.Content), o.Redact(a.Status)
	switch a.Action {
	case "create":
		return o.create(ctx, in, a)
	case "list":
		all, err := o.all(ctx, in, workspace.Status(a.Status))
		out := []workspaceResult{}
		for _, w := range all {
			out = append(out, newResult(w))
		}
		return result(map[string]any{"workspaces": out}, err)
	}

	w, err := o.find(ctx, in, a.WorkspaceID)
	if err != nil {
		return result(nil, err)
	}

	switch a.Action {
	case "get":
		out := newResult(w)
		out.State = w.State
		return result(out, nil)
	case "list_artifacts":
		return o.listArtifacts(ctx, w)
	case "create_artifact", "update_artifact":
		return o.writeArtifact(ctx, in, w, a)
	}

	c, err := o.change(a)
	if err != nil {
		return result(nil, err)
	}
	w, err = o.Ledger.Workspaces.Change(ctx, in.Author(), w.ID, c)
	return result(newResult(w), err)
}

func (o Options) create(ctx context.Context, in tool.Invocation, a workspaceArgs) (tool.Envelope, error) {
	skill := o.skill(a)
	if !slices.Contains(o.Skills, skill) {
		return result(nil, wrong("skill", "say for which skill: "+strings.Join(o.Skills, ", ")))
	}

	state, err := o.state(a.State)
	if err != nil {
		return result(nil, err)
	}
	w, err := o.Ledger.Workspaces.Create(ctx, in.Author(), workspace.Workspace{Agent: in.Agent, Skill: skill, Name: o.newName(a), Phase: a.Phase, Role: a.Role, State: state})
	return result(newResult(w), err)
}

// state returns a state in its stored form, or nil if state is nil.
func (o Options) state(state map[string]any) (json.RawMessage, error) {
	if state == nil {
		return nil, nil
	}

	raw, err := json.Marshal(state)
	if err != nil {
		return nil, wrong("state", "the state cannot be stored: "+err.Error())
	}
	return json.RawMessage(o.Redact(string(raw))), nil
}

// change returns the change that a call requests.
func (o Options) change(a workspaceArgs) (c workspace.Change, err error) {
	c.LockVersion = a.LockVersion
	switch a.Action {
	case "pause":
		c.Status = workspace.Paused
	case "resume":
		c.Status = workspace.Active
	case "archive":
		c.Status = workspace.Archived
	case "set_phase":
		c.Phase = &a.Phase
	case "set_role":
		c.Role = &a.Role
	case "update":
		if c.State, err = o.state(a.State); err != nil {
			return c, err
		}
		if a.Phase != "" {
			c.Phase = &a.Phase
		}
		if a.Role != "" {
			c.Role = &a.Role
		}
		if c.State == nil && c.Phase == nil && c.Role == nil {
			return c, wrong("state", "nothing was given that could become different: state, phase or role")
		}
	}
	return c, nil
}

func (o Options) listArtifacts(ctx context.Context, w workspace.Workspace) (tool.Envelope, error) {
	all, err := o.Ledger.Workspaces.Artifacts(ctx, w.ID, false)
	out := []artifactResult{}
	for _, one := range all {
		out = append(out, newArtifactResult(one))
	}
	return result(map[string]any{"artifacts": out}, err)
}

// writeArtifact adds an artifact or a new version of one, or changes the status of one.
func (o Options) writeArtifact(ctx context.Context, in tool.Invocation, w workspace.Workspace, a workspaceArgs) (tool.Envelope, error) {
	parent, err := number("artifactId", a.ArtifactID)
	if err == nil {
		err = o.checkRoom(ctx, in, a)
	}
	if err != nil {
		return result(nil, err)
	}

	made := artifact.Artifact{Workspace: w.ID, Type: a.Type, Title: strings.TrimSpace(a.Title), Status: a.Status, Role: a.Role}
	if a.Action == "update_artifact" {
		switch {
		case parent == 0:
			return result(nil, wrong("artifactId", "say which artifact: the action list_artifacts has them"))
		case a.Content == "" && a.Title == "" && a.Status == "":
			return result(nil, wrong("content", "nothing was given that could become different: content or status"))
		case a.Content == "":
			changed, err := o.Ledger.Workspaces.ChangeArtifact(ctx, in.Author(), w.ID, parent, workspace.ArtifactChange{Status: &a.Status})
			return result(newArtifactResult(changed), err)
		}

		chain, err := o.Ledger.Workspaces.ArtifactChain(ctx, w.ID, parent)
		if err != nil {
			return result(nil, err)
		}
		before := chain[len(chain)-1]
		made.Parent, made.Title, made.Type = parent, cmp.Or(made.Title, before.Title), cmp.Or(made.Type, before.Type)
	}

	added, err := o.Ledger.Workspaces.AddArtifact(ctx, in.Author(), made, []byte(a.Content))
	return result(newArtifactResult(added), err)
}

// maxWrittenOfRun limits the bytes of artifacts that one run may create.
const maxWrittenOfRun = 256 << 20

// checkRoom returns an error if the artifacts of the run become too large. The limit exists because
// artifacts of a workspace are kept forever.
func (o Options) checkRoom(ctx context.Context, in tool.Invocation, a workspaceArgs) error {
	all, err := o.Ledger.Artifacts.List(ctx, in.Run)
	whole := int64(len(a.Content))
	for _, one := range all {
		if one.Key != in.Key { // skip an artifact that this call created before a crash
			whole += one.Size
		}
	}
	if err == nil && whole > maxWrittenOfRun {
		err = wrong("content", "this run has handed over "+text.Size(whole)+" with it, and at most "+text.Size(maxWrittenOfRun)+" are kept of one")
	}
	return err
}
