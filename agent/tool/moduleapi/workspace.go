package moduleapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/label"
	"rouse/internal/ledger/workspace"
)

// The tools of host.workspace. Like reads of the storage, reads are recorded as database effects.
var (
	getStateSpec       = reading("host_workspace_get_state", "Reads the state of a module's workspace.", tool.Spec{Effect: domain.EffectDatabase})
	setStateSpec       = changing("host_workspace_set_state", "Replaces the state of a module's workspace.", tool.Spec{})
	createArtifactSpec = changing("host_workspace_create_artifact", "Adds an artifact to a module's workspace.", tool.Spec{})
	updateArtifactSpec = changing("host_workspace_update_artifact", "Changes an artifact of a module's workspace.", tool.Spec{})
	listArtifactsSpec  = reading("host_workspace_list_artifacts", "Lists the artifacts of a module's workspace.", tool.Spec{Effect: domain.EffectDatabase})
	setPhaseSpec       = changing("host_workspace_set_phase", "Says which phase a module's workspace is in.", tool.Spec{})
	setRoleSpec        = changing("host_workspace_set_role", "Says in which role a module works.", tool.Spec{})
	attachApprovalSpec = changing("host_workspace_attach_approval", "Notes what a module calls an approval.", tool.Spec{})
)

type stateArgs struct {
	State map[string]any `json:"state"`
	// Version is the lock version of the workspace that the module has read, or 0.
	Version int64 `json:"version,omitempty"`
}

type newArtifactArgs struct {
	Type     string `json:"type,omitempty"`
	Title    string `json:"title"`
	Content  any    `json:"content,omitempty" jsonschema:"a text, or any JSON"`
	Status   string `json:"status,omitempty"`
	Parent   string `json:"parentArtifactId,omitempty" jsonschema:"the version before it"`
	Role     string `json:"createdByRole,omitempty"`
	Describe string `json:"description,omitempty"`
}

type artifactArgs struct {
	ID     string         `json:"artifactId"`
	Update artifactUpdate `json:"update"`
}

type artifactUpdate struct {
	Title   string  `json:"title,omitempty"`
	Status  *string `json:"status,omitempty"`
	Content any     `json:"content,omitempty"`
}

type phaseArgs struct {
	Phase string `json:"phase"`
}

type roleArgs struct {
	Role string `json:"role"`
}

type approvalArgs struct {
	Approval string `json:"approvalId"`
	Kind     string `json:"kind,omitempty"`
}

// stateResult is the state of a workspace, and its lock version at the time of reading.
type stateResult struct {
	Value   json.RawMessage `json:"value"` // null if no state was written yet
	Version int64           `json:"version"`
}

// artifactResult is an artifact in the form returned to a module.
type artifactResult struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   string `json:"status"`
	Approval string `json:"approval,omitempty"` // approval by the owner, independent of Status
	Version  int    `json:"version"`
	Parent   string `json:"parentArtifactId,omitempty"`
}

func newArtifactResult(a artifact.Artifact) artifactResult {
	return artifactResult{ID: strconv.FormatInt(a.ID, 10), Type: a.Type, Title: a.Title, Status: a.Status, Approval: a.Approval, Version: a.Version, Parent: optional(a.Parent)}
}

func optional(id int64) string {
	if id == 0 {
		return ""
	}
	return strconv.FormatInt(id, 10)
}

// answerOf returns the result of a call that uses the ledger.
func answerOf(result any, err error) (tool.Envelope, error) {
	if err != nil {
		return tool.Envelope{}, tool.LedgerRefusal(err)
	}
	return tool.Success(result), nil
}

func (h *Host) workspaceReads(context.Context, tool.Invocation, json.RawMessage) (tool.Access, error) {
	return tool.Access{Reads: h.workspacePlaces()}, nil
}

func (h *Host) workspaceWrites(context.Context, tool.Invocation, json.RawMessage) (tool.Access, error) {
	return tool.Access{Writes: h.workspacePlaces()}, nil
}
func (h *Host) workspacePlaces() []label.Place {
	w := h.o.Workspace
	if w == nil {
		return nil
	}
	return []label.Place{label.WorkspacePlace(w.Agent, w.Skill, w.Name)}
}

func (h *Host) getState(ctx context.Context, _ tool.Invocation, _ struct{}) (tool.Envelope, error) {
	w, err := h.o.Ledger.Workspaces.Get(ctx, h.o.Workspace.ID)
	out := stateResult{w.State, w.LockVersion}
	if strings.TrimSpace(string(w.State)) == "{}" { // no state was written yet
		out.Value = json.RawMessage("null")
	}
	return answerOf(out, err)
}

func (h *Host) setState(ctx context.Context, in tool.Invocation, a stateArgs) (tool.Envelope, error) {
	if a.State == nil {
		return tool.Envelope{}, tool.Refuse(tool.KindInvalidArgs, "the state of a workspace is an object").WithField("state", "an object")
	}
	raw, err := json.Marshal(a.State)
	if err != nil {
		return tool.Envelope{}, tool.Refuse(tool.KindInvalidArgs, "the state cannot be written as JSON: %v", err).WithField("state", "an object")
	}
	return h.change(ctx, in, workspace.Change{Since: a.Version, State: json.RawMessage(h.o.Redact(string(raw))), SchemaVersion: h.o.Manifest.WorkspaceSchemaVersion})
}

func (h *Host) change(ctx context.Context, in tool.Invocation, c workspace.Change) (tool.Envelope, error) {
	_, err := h.o.Ledger.Workspaces.Change(ctx, in.Author(), h.o.Workspace.ID, c)
	return answerOf(value{}, err)
}

func (h *Host) setPhase(ctx context.Context, in tool.Invocation, a phaseArgs) (tool.Envelope, error) {
	phase := h.o.Redact(a.Phase)
	return h.change(ctx, in, workspace.Change{Phase: &phase})
}

func (h *Host) setRole(ctx context.Context, in tool.Invocation, a roleArgs) (tool.Envelope, error) {
	role := h.o.Redact(a.Role)
	return h.change(ctx, in, workspace.Change{Role: &role})
}

func (h *Host) attachApproval(ctx context.Context, in tool.Invocation, a approvalArgs) (tool.Envelope, error) {
	err := h.o.Ledger.Workspaces.AddEvent(ctx, in.Author(), h.o.Workspace.ID, "approval", map[string]any{"approval": h.o.Redact(a.Approval), "kind": h.o.Redact(a.Kind)})
	return answerOf(value{}, err)
}

func (h *Host) listArtifacts(ctx context.Context, _ tool.Invocation, _ struct{}) (tool.Envelope, error) {
	all, err := h.o.Ledger.Workspaces.Artifacts(ctx, h.o.Workspace.ID, true)
	out := []artifactResult{}
	for _, a := range all {
		if !a.Discarded {
			out = append(out, newArtifactResult(a))
		}
	}
	return answerOf(value{out}, err)
}

func (h *Host) createArtifact(ctx context.Context, in tool.Invocation, a newArtifactArgs) (tool.Envelope, error) {
	parent, err := artifactID("parentArtifactId", a.Parent)
	if err != nil {
		return tool.Envelope{}, err
	}
	return h.add(ctx, in, artifact.Artifact{Type: a.Type, Title: a.Title, Status: a.Status, Role: a.Role, Description: a.Describe, Parent: parent}, a.Content)
}

// updateArtifact changes the status of an artifact, or adds a version with another content or
// title. From then on, the module's old id refers to the new version.
func (h *Host) updateArtifact(ctx context.Context, in tool.Invocation, a artifactArgs) (tool.Envelope, error) {
	id, err := artifactID("artifactId", a.ID)
	switch {
	case err != nil:
		return tool.Envelope{}, err
	case id == 0:
		return tool.Envelope{}, tool.Refuse(tool.KindInvalidArgs, "say which artifact: listArtifacts has them").WithField("artifactId", "an id")
	case a.Update.Title == "" && a.Update.Content == nil && a.Update.Status == nil:
		return tool.Envelope{}, tool.Refuse(tool.KindInvalidArgs, "nothing was given that could become different: {title, status, content}").WithField("update", "what is to change")
	case a.Update.Title == "" && a.Update.Content == nil:
		changed, err := h.o.Ledger.Workspaces.ChangeArtifact(ctx, in.Author(), h.o.Workspace.ID, id, workspace.ArtifactChange{Status: a.Update.Status})
		return answerOf(newArtifactResult(changed), err)
	}
	return h.nextVersion(ctx, in, id, a.Update)
}

// nextVersion adds the next version of an artifact. If the update has no title or content, the
// previous ones are used.
func (h *Host) nextVersion(ctx context.Context, in tool.Invocation, id int64, u artifactUpdate) (tool.Envelope, error) {
	chain, err := h.o.Ledger.Workspaces.ArtifactChain(ctx, h.o.Workspace.ID, id)
	if err != nil {
		return answerOf(nil, err)
	}

	var before artifact.Artifact
	for _, one := range chain {
		if one.ID == id {
			before = one
		}
	}
	next := artifact.Artifact{Type: before.Type, Title: cmp.Or(u.Title, before.Title), Parent: id}
	if u.Status != nil {
		next.Status = *u.Status
	}

	if u.Content == nil {
		_, content, err := h.o.Ledger.Artifacts.Bytes(ctx, before.Run, before.ID)
		if err != nil {
			return answerOf(nil, err)
		}
		u.Content = string(content)
	}
	return h.add(ctx, in, next, u.Content)
}

// add adds an artifact. Its content is a text, or is encoded as JSON.
func (h *Host) add(ctx context.Context, in tool.Invocation, a artifact.Artifact, content any) (tool.Envelope, error) {
	whole, isText := content.(string)
	if !isText && content != nil {
		raw, err := json.MarshalIndent(content, "", "  ")
		if err != nil {
			return tool.Envelope{}, tool.Refuse(tool.KindInvalidArgs, "the content cannot be written as JSON: %v", err).WithField("content", "a text, or JSON")
		}
		whole = string(raw)
	}

	a.Workspace = h.o.Workspace.ID
	a.Title, a.Status, a.Role, whole = strings.TrimSpace(h.o.Redact(a.Title)), h.o.Redact(a.Status), h.o.Redact(a.Role), h.o.Redact(whole)
	added, err := h.o.Ledger.Workspaces.AddArtifact(ctx, in.Author(), a, []byte(whole))
	return answerOf(newArtifactResult(added), err)
}

// artifactID parses the id of an artifact. It returns 0 if id is empty.
func artifactID(field, id string) (int64, error) {
	if id == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || n <= 0 {
		return 0, tool.Refuse(tool.KindInvalidArgs, "%q is no id of an artifact", id).WithField(field, "an id of listArtifacts")
	}
	return n, nil
}

// workspaceCall adds the lock version of the last read to a new state, so that the module cannot
// overwrite changes that it has not read. It also replaces ids of artifacts with those of the
// newest versions.
func (h *Host) workspaceCall(c Call, named map[string]json.RawMessage) (Call, error) {
	switch c.method.name {
	case "workspace.setState":
		if h.version != 0 {
			named["version"] = strconv.AppendInt(nil, h.version, 10)
		}
	case "workspace.updateArtifact":
		if id, ok := h.newestArtifact(named["artifactId"]); ok {
			named["artifactId"] = id
		}
	case "workspace.createArtifact":
		if err := json.Unmarshal(c.Args, &named); err != nil {
			return c, argumentError("the argument is an object: " + err.Error())
		}
		id, ok := h.newestArtifact(named["parentArtifactId"])
		if !ok { // the arguments stay unchanged
			return c, nil
		}
		named["parentArtifactId"] = id
	}

	var err error
	c.Args, err = json.Marshal(named)
	return c, err
}

// newestArtifact returns the id of the newest version of an artifact, if the module has changed the
// artifact.
func (h *Host) newestArtifact(id json.RawMessage) (json.RawMessage, bool) {
	var known string
	if json.Unmarshal(id, &known) != nil || h.renewed[known] == "" {
		return nil, false
	}
	for h.renewed[known] != "" { // follows each version to the next
		known = h.renewed[known]
	}
	return fmt.Appendf(nil, "%q", known), true
}

// seen records the lock version or the new artifact id in the result of a call.
func (h *Host) seen(c Call, fields map[string]json.RawMessage) {
	switch c.method.name {
	case "workspace.getState":
		var version int64
		if json.Unmarshal(fields["version"], &version) == nil {
			h.version = version
		}
	case "workspace.updateArtifact":
		var asked artifactArgs
		var id string
		if json.Unmarshal(c.Args, &asked) == nil && json.Unmarshal(fields["id"], &id) == nil && id != asked.ID {
			h.renewed[asked.ID] = id
		}
	}
}
