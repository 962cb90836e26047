package workspace

import (
	"context"
	_ "embed"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"

	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/label"
	"rouse/internal/ledger/workspace"
)

//go:embed workspace_manage.md
var workspaceText string

//go:embed run_manage.md
var runText string

// The specs of the tools. A repeated call has no further effect, because the ledger stores each
// call once.
var (
	workspaceSpec = tool.Spec{
		Name: "workspace_manage", Description: workspaceText, Effect: domain.EffectDatabase, Class: tool.ClassOther, Scope: tool.ScopeAgent,
		Example: `{"action":"list"}`, Args: reflect.TypeFor[workspaceArgs](), Requires: tool.RequiresWorkspaces, ReadsOnly: reads(workspaceReads),
		Enum: map[string][]string{"action": {"create", "get", "list", "update", "pause", "resume", "archive", "set_phase", "set_role", "create_artifact", "update_artifact", "list_artifacts"}},
	}
	runSpec = tool.Spec{
		Name: "run_manage", Description: runText, Effect: domain.EffectDatabase, Class: tool.ClassOther, Scope: tool.ScopeAgent,
		Example: `{"action":"answer","item":"7","answer":"yes"}`, Args: reflect.TypeFor[runArgs](), Requires: tool.RequiresWorkspaces, ReadsOnly: reads(runReads),
		Enum: map[string][]string{"action": {"list", "get", "events", "continue", "pause", "cancel", "retry", "answer", "acknowledge", "discard"}},
	}
)

// The actions that only read.
var (
	workspaceReads = []string{"get", "list", "list_artifacts"}
	runReads       = []string{"list", "get", "events"}
)

// reads returns a function that reports whether a call has one of the actions.
func reads(actions []string) func(json.RawMessage) bool {
	return func(args json.RawMessage) bool {
		var a struct {
			Action string `json:"action"`
		}
		return json.Unmarshal(args, &a) == nil && slices.Contains(actions, a.Action)
	}
}

// Specs returns the specs of all tools in this package.
func Specs() tool.Specs { return tool.Specs{workspaceSpec, runSpec} }

// Options configures the tools of one run.
type Options struct {
	Ledger    *ledger.Ledger
	Skills    []string                                // the agent's skills that have workspaces
	Redact    func(text string) string                // removes secrets from stored data; optional
	Cancelled func(ctx context.Context, _ ledger.Run) // called after a waiting run was cancelled; optional
}

// Tools returns the tools of one run.
func Tools(o Options) ([]tool.Tool, error) {
	if o.Redact == nil {
		o.Redact = func(text string) string { return text }
	}
	if o.Cancelled == nil {
		o.Cancelled = func(context.Context, ledger.Run) {}
	}

	spec := workspaceSpec
	spec.Access = tool.AccessOf(o.workspaceNeed)
	manage, err := tool.Define(spec, o.manageWorkspace)
	if err != nil {
		return nil, err
	}

	spec = runSpec
	spec.Access = tool.AccessOf(o.runNeed)
	runs, err := tool.Define(spec, o.manageRun)
	if err != nil {
		return nil, err
	}
	return []tool.Tool{manage, runs}, nil
}

// result returns the envelope of a call.
func result(value any, err error) (tool.Envelope, error) {
	if err != nil {
		return tool.Envelope{}, tool.LedgerRefusal(err)
	}
	return tool.Success(value), nil
}

func wrong(field, message string) error {
	return &workspace.Error{Field: field, Message: message}
}

// number parses an id. It returns 0 for an empty text.
func number(field, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, wrong(field, strconv.Quote(text)+" is no number")
	}
	return n, nil
}

// optionalID formats an id. It returns "" for 0.
func optionalID(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// find returns the named workspace, or the workspace of the run if text is empty. It returns an
// error if the workspace belongs to another agent, or to a skill that the agent does not have.
func (o Options) find(ctx context.Context, in tool.Invocation, text string) (workspace.Workspace, error) {
	id, err := number("workspaceId", text)
	if err != nil {
		return workspace.Workspace{}, err
	}

	if id == 0 {
		run, err := o.Ledger.Runs.Get(ctx, in.Run)
		if err != nil {
			return workspace.Workspace{}, err
		}
		if id = run.Workspace; id == 0 {
			return workspace.Workspace{}, wrong("workspaceId", "this run works in no workspace yet, so say in which one: the action list has them")
		}
	}

	w, err := o.Ledger.Workspaces.Get(ctx, id)
	if err == nil && (w.Agent != in.Agent || !slices.Contains(o.Skills, w.Skill)) {
		return workspace.Workspace{}, wrong("workspaceId", "there is no workspace "+strconv.FormatInt(id, 10)+" of your skills")
	}
	return w, err
}

// all returns the workspaces of the agent's skills.
func (o Options) all(ctx context.Context, in tool.Invocation, status workspace.Status) ([]workspace.Workspace, error) {
	all, err := o.Ledger.Workspaces.List(ctx, workspace.Filter{Agent: in.Agent, Status: status, Limit: maxListed})
	return slices.DeleteFunc(all, func(w workspace.Workspace) bool { return !slices.Contains(o.Skills, w.Skill) }), err
}

// maxListed limits the workspaces, runs or events that a call lists.
const maxListed = 100

func place(w workspace.Workspace) label.Place { return label.WorkspacePlace(w.Agent, w.Skill, w.Name) }

// places returns the places where workspaces store their labels.
func places(all []workspace.Workspace) []label.Place {
	out := make([]label.Place, len(all))
	for i, w := range all {
		out[i] = place(w)
	}
	return out
}
