package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// The tools of host.workspace (OSL-26). What a run has read of its workspace stands in its later attempts with what it wrote
// there, as with its storage.
var (
	getStateSpec       = remembered(reading("host_workspace_get_state", "Reads the state of a module's workspace.", reflect.TypeFor[struct{}]()))
	setStateSpec       = changing("host_workspace_set_state", "Replaces the state of a module's workspace.", domain.EffectDatabase, reflect.TypeFor[stateArgs]())
	createArtifactSpec = changing("host_workspace_create_artifact", "Adds an artifact to a module's workspace.", domain.EffectDatabase, reflect.TypeFor[newArtifactArgs]())
	updateArtifactSpec = changing("host_workspace_update_artifact", "Changes an artifact of a module's workspace.", domain.EffectDatabase, reflect.TypeFor[artifactArgs]())
	listArtifactsSpec  = remembered(reading("host_workspace_list_artifacts", "Lists the artifacts of a module's workspace.", reflect.TypeFor[struct{}]()))
	setPhaseSpec       = changing("host_workspace_set_phase", "Says which phase a module's workspace is in.", domain.EffectDatabase, reflect.TypeFor[phaseArgs]())
	setRoleSpec        = changing("host_workspace_set_role", "Says in which role a module works.", domain.EffectDatabase, reflect.TypeFor[roleArgs]())
	attachApprovalSpec = changing("host_workspace_attach_approval", "Notes what a module calls an approval.", domain.EffectDatabase, reflect.TypeFor[approvalArgs]())
)

type stateArgs struct {
	State map[string]any `json:"state"`
	// Version is the lock version with which the module has read the workspace; 0: it has not.
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

// stateResult is what a module reads of its workspace, with the lock version that it has then.
type stateResult struct {
	Value   json.RawMessage `json:"value"` // null where nobody has written a state yet
	Version int64           `json:"version"`
}

// artifactResult is an artifact as a module sees it.
type artifactResult struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   string `json:"status"`
	Approval string `json:"approval,omitempty"` // of the owner, whatever the status says (C-6)
	Version  int    `json:"version"`
	Parent   string `json:"parentArtifactId,omitempty"`
}

func newArtifactResult(a ledger.Artifact) artifactResult {
	return artifactResult{ID: strconv.FormatInt(a.ID, 10), Type: a.Type, Title: a.Title, Status: a.Status, Approval: a.Approval, Version: a.Version, Parent: optional(a.Parent)}
}

func optional(id int64) string {
	if id == 0 {
		return ""
	}
	return strconv.FormatInt(id, 10)
}

func author(in tool.Invocation) ledger.Author {
	return ledger.Author{Attempt: ledger.Attempt{Run: in.Run, Number: in.Attempt}, Key: in.Key}
}

// ledgerRefusal is what the ledger says against a call, as its answer; the error is one of the host.
func ledgerRefusal(err error) (*tool.Envelope, error) {
	var wrong *ledger.WorkspaceError
	var e tool.Envelope
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &wrong):
		e = tool.Failure(tool.KindInvalidArgs, "%s", wrong.Message)
		if wrong.Field != "" {
			e = e.WithField(wrong.Field, "")
		}
	case errors.As(err, new(*ledger.ConflictError)):
		e = tool.Failure(tool.KindConflict, "%v", err)
	case errors.As(err, new(*ledger.BlockedError)):
		e = tool.Failure(tool.KindRejected, "%v", err)
	case errors.Is(err, ledger.ErrNotFound):
		e = tool.Failure(tool.KindNotFound, "%v", err)
	default:
		return &tool.Envelope{}, err
	}
	return &e, nil
}

// answerOf is the answer of a call to the ledger.
func answerOf(result any, err error) (tool.Envelope, error) {
	if refused, err := ledgerRefusal(err); refused != nil || err != nil {
		return *refused, err
	}
	return tool.Success(result), nil
}

// workspaceReads says which labels come with what is read of the workspace.
func (h *Host) workspaceReads(context.Context, tool.Invocation, json.RawMessage) (tool.Need, error) {
	return tool.Need{Reads: h.workspacePlaces()}, nil
}

// workspaceWrites says where a call leaves the labels of its run.
func (h *Host) workspaceWrites(context.Context, tool.Invocation, json.RawMessage) (tool.Need, error) {
	return tool.Need{Writes: h.workspacePlaces()}, nil
}

func (h *Host) workspacePlaces() []ledger.Place {
	w := h.o.Workspace
	if w == nil {
		return nil
	}
	return []ledger.Place{ledger.WorkspacePlace(w.Agent, w.Skill, w.Name)}
}

func (h *Host) getState() (tool.Tool, error) {
	s := getStateSpec
	s.Needs = h.workspaceReads
	return tool.Define(s, func(ctx context.Context, _ tool.Invocation, _ struct{}) (tool.Envelope, error) {
		w, err := h.o.Ledger.Workspace(ctx, h.o.Workspace.ID)
		out := stateResult{w.State, w.LockVersion}
		if strings.TrimSpace(string(w.State)) == "{}" { // nobody has written one
			out.Value = json.RawMessage("null")
		}
		return answerOf(out, err)
	})
}

func (h *Host) setState() (tool.Tool, error) {
	s := setStateSpec
	s.Needs = h.workspaceWrites
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a stateArgs) (tool.Envelope, error) {
		if a.State == nil {
			return tool.Failure(tool.KindInvalidArgs, "the state of a workspace is an object").WithField("state", "an object"), nil
		}
		raw, err := json.Marshal(a.State)
		if err != nil {
			return tool.Failure(tool.KindInvalidArgs, "the state cannot be written as JSON: %v", err).WithField("state", "an object"), nil
		}

		c := ledger.WorkspaceChange{Since: a.Version, State: json.RawMessage(h.o.Redact(string(raw)))}
		if v := h.o.Manifest.WorkspaceSchemaVersion; v != nil {
			c.SchemaVersion = v
		}
		return h.change(ctx, in, c)
	})
}

func (h *Host) change(ctx context.Context, in tool.Invocation, c ledger.WorkspaceChange) (tool.Envelope, error) {
	_, err := h.o.Ledger.ChangeWorkspace(ctx, author(in), h.o.Workspace.ID, c)
	return answerOf(value{}, err)
}

func (h *Host) setPhase() (tool.Tool, error) {
	s := setPhaseSpec
	s.Needs = h.workspaceWrites
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a phaseArgs) (tool.Envelope, error) {
		phase := h.o.Redact(a.Phase)
		return h.change(ctx, in, ledger.WorkspaceChange{Phase: &phase})
	})
}

func (h *Host) setRole() (tool.Tool, error) {
	s := setRoleSpec
	s.Needs = h.workspaceWrites
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a roleArgs) (tool.Envelope, error) {
		role := h.o.Redact(a.Role)
		return h.change(ctx, in, ledger.WorkspaceChange{Role: &role})
	})
}

func (h *Host) attachApproval() (tool.Tool, error) {
	s := attachApprovalSpec
	s.Needs = h.workspaceWrites
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a approvalArgs) (tool.Envelope, error) {
		err := h.o.Ledger.AddWorkspaceEvent(ctx, author(in), h.o.Workspace.ID, "approval", map[string]any{"approval": h.o.Redact(a.Approval), "kind": h.o.Redact(a.Kind)})
		return answerOf(value{}, err)
	})
}

func (h *Host) listArtifacts() (tool.Tool, error) {
	s := listArtifactsSpec
	s.Needs = h.workspaceReads
	return tool.Define(s, func(ctx context.Context, _ tool.Invocation, _ struct{}) (tool.Envelope, error) {
		all, err := h.o.Ledger.WorkspaceArtifacts(ctx, h.o.Workspace.ID, true)
		out := []artifactResult{}
		for _, a := range all {
			if !a.Discarded {
				out = append(out, newArtifactResult(a))
			}
		}
		return answerOf(value{out}, err)
	})
}

func (h *Host) createArtifact() (tool.Tool, error) {
	s := createArtifactSpec
	s.Needs = h.workspaceWrites
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a newArtifactArgs) (tool.Envelope, error) {
		parent, refused := artifactID("parentArtifactId", a.Parent)
		if refused != nil {
			return *refused, nil
		}
		return h.add(ctx, in, ledger.Artifact{Type: a.Type, Title: a.Title, Status: a.Status, Role: a.Role, Description: a.Describe, Parent: parent}, a.Content)
	})
}

// updateArtifact gives an artifact another status, or a version with another content or title, by which the module knows it from
// then on.
func (h *Host) updateArtifact() (tool.Tool, error) {
	s := updateArtifactSpec
	s.Needs = h.workspaceWrites
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a artifactArgs) (tool.Envelope, error) {
		id, refused := artifactID("artifactId", a.ID)
		switch {
		case refused != nil:
			return *refused, nil
		case id == 0:
			return tool.Failure(tool.KindInvalidArgs, "say which artifact: listArtifacts has them").WithField("artifactId", "an id"), nil
		case a.Update.Title == "" && a.Update.Content == nil && a.Update.Status == nil:
			return tool.Failure(tool.KindInvalidArgs, "nothing was given that could become different: {title, status, content}").WithField("update", "what is to change"), nil
		case a.Update.Title == "" && a.Update.Content == nil:
			changed, err := h.o.Ledger.ChangeArtifact(ctx, author(in), h.o.Workspace.ID, id, ledger.ArtifactChange{Status: a.Update.Status})
			return answerOf(newArtifactResult(changed), err)
		}
		return h.nextVersion(ctx, in, id, a.Update)
	})
}

// nextVersion adds the version after an artifact, which has of it what the update leaves out.
func (h *Host) nextVersion(ctx context.Context, in tool.Invocation, id int64, u artifactUpdate) (tool.Envelope, error) {
	chain, err := h.o.Ledger.ArtifactChain(ctx, h.o.Workspace.ID, id)
	if err != nil {
		return answerOf(nil, err)
	}

	var before ledger.Artifact
	for _, one := range chain {
		if one.ID == id {
			before = one
		}
	}
	next := ledger.Artifact{Type: before.Type, Title: u.Title, Parent: id}
	if next.Title == "" {
		next.Title = before.Title
	}
	if u.Status != nil {
		next.Status = *u.Status
	}

	if u.Content == nil {
		_, content, err := h.o.Ledger.ArtifactBytes(ctx, before.Run, before.ID)
		if err != nil {
			return answerOf(nil, err)
		}
		u.Content = string(content)
	}
	return h.add(ctx, in, next, u.Content)
}

// add adds an artifact, whose content is a text, or JSON.
func (h *Host) add(ctx context.Context, in tool.Invocation, a ledger.Artifact, content any) (tool.Envelope, error) {
	whole, isText := content.(string)
	if !isText && content != nil {
		raw, err := json.MarshalIndent(content, "", "  ")
		if err != nil {
			return tool.Failure(tool.KindInvalidArgs, "the content cannot be written as JSON: %v", err).WithField("content", "a text, or JSON"), nil
		}
		whole = string(raw)
	}

	a.Workspace = h.o.Workspace.ID
	a.Title, a.Status, a.Role, whole = strings.TrimSpace(h.o.Redact(a.Title)), h.o.Redact(a.Status), h.o.Redact(a.Role), h.o.Redact(whole)
	added, err := h.o.Ledger.AddWorkspaceArtifact(ctx, author(in), a, []byte(whole))
	return answerOf(newArtifactResult(added), err)
}

// artifactID is the number of an artifact, 0 where none is given.
func artifactID(field, id string) (int64, *tool.Envelope) {
	if id == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || n <= 0 {
		e := tool.Failure(tool.KindInvalidArgs, "%q is no id of an artifact", id).WithField(field, "an id of listArtifacts")
		return 0, &e
	}
	return n, nil
}

// workspaceCall is a call of host.workspace: a state goes with the lock version at which the module has read the last one, so that
// it overwrites nothing that it does not know (OSL-27), and artifacts go by the ids that they have by now.
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
		if !ok { // the arguments are as the module wrote them
			return c, nil
		}
		named["parentArtifactId"] = id
	}

	var err error
	c.Args, err = json.Marshal(named)
	return c, err
}

// newestArtifact is the id that an artifact has by now, of one that the module has given another content since it got the id.
func (h *Host) newestArtifact(id json.RawMessage) (json.RawMessage, bool) {
	var known string
	if json.Unmarshal(id, &known) != nil || h.renewed[known] == "" {
		return nil, false
	}
	for h.renewed[known] != "" { // each is newer than the one before
		known = h.renewed[known]
	}
	return fmt.Appendf(nil, "%q", known), true
}

// seen notes what the result of a call says of the workspace.
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
