package moduleapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/ledger/inbox"
	"rouse/internal/text"
)

var (
	locateSpec = reading("host_bridge_locate_tools", "Says which programs there are for a module.", tool.Spec{})
	systemSpec = reading("host_bridge_system_info", "Tells a module the system of this machine.", tool.Spec{})
)

type locateArgs struct {
	ToolIDs []string `json:"toolIds"`
}

type program struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Status string `json:"status"` // installed, not_installed
}

func (h *Host) locate(_ context.Context, _ tool.Invocation, a locateArgs) (tool.Envelope, error) {
	out := []program{}
	for _, id := range a.ToolIDs {
		status := "not_installed"
		if shell.HasProgram(programOf(id)) {
			status = "installed"
		}
		out = append(out, program{id, id, status})
	}
	return tool.Success(map[string]any{"tools": out}), nil
}

// systemCommand is the name that modules pass to host.tools to run a program.
const systemCommand = "system_execute_command"

// commandRequest is the request of a module to run a program.
type commandRequest struct {
	Command          string            `json:"command"`
	Args             []string          `json:"args"`
	WorkingDirectory *string           `json:"workingDirectory"`
	TimeoutMs        int               `json:"timeoutMs"`
	Env              map[string]string `json:"env"`
	RequestID        string            `json:"requestId"` // id chosen by the module and returned in the response
}

// shellArgs returns the arguments of shell_run for a command of a module. A command is one program,
// never a script.
func (h *Host) shellArgs(q commandRequest) (json.RawMessage, error) {
	switch {
	case q.Command == "":
		return nil, argumentError("the command is missing: the program, with its arguments in args")
	case len(q.Env) > 0:
		return nil, argumentError("env is not taken: commands get the environment that every command has")
	case q.TimeoutMs < 0:
		return nil, argumentError("timeoutMs is below 0")
	}
	if q.WorkingDirectory != nil && *q.WorkingDirectory != "" && !h.isWorkdir(*q.WorkingDirectory) {
		return nil, argumentError(fmt.Sprintf("commands run in the agent's working folder, %s, and not in %s", h.o.Roots.Workdir(), *q.WorkingDirectory))
	}

	args, err := shell.RunArgs(append([]string{q.Command}, q.Args...), time.Duration(q.TimeoutMs)*time.Millisecond)
	if err != nil {
		return nil, argumentError(err.Error())
	}
	return args, nil
}

// readCommand parses the request to run a program.
func readCommand(raw json.RawMessage) (q commandRequest, err error) {
	if err := json.Unmarshal(raw, &q); err != nil {
		return q, argumentError("a command is {command, args, workingDirectory, timeoutMs}: " + err.Error())
	}
	return q, nil
}

// executeCommand translates a request to run a program. An invalid request gets a response with a
// code, not an error.
func (h *Host) executeCommand(c Call, _ map[string]json.RawMessage) (Call, error) {
	q, err := readCommand(c.Args)
	c.request = text.Truncate(q.RequestID, maxWord)
	if err == nil {
		c.Args, err = h.shellArgs(q)
	}
	if err != nil {
		return answered(c, refusedRequest(c.request, codeInvalid, err.Error()))
	}
	return c, nil
}

// waitForJob returns the result of a program. The program has already ended when its request is
// answered.
func (h *Host) waitForJob(c Call, named map[string]json.RawMessage) (Call, error) {
	var id string
	if json.Unmarshal(named["bridgeRunId"], &id) == nil {
		if done, ok := h.jobs[id]; ok {
			return answered(c, done)
		}
	}
	return c, argumentError("there is no job of this id; bridge.executeCommand gives it")
}

// isWorkdir reports whether a folder is the agent's working folder.
func (h *Host) isWorkdir(folder string) bool {
	workdir := h.o.Roots.Workdir()
	if !filepath.IsAbs(folder) {
		folder = filepath.Join(workdir, folder)
	}
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		folder = real
	}
	return filepath.Clean(folder) == workdir
}

// ran is the result of shell_run.
type ran struct {
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	ExitCode int    `json:"exit_code"`
	Signal   string `json:"signal"`
	KilledBy string `json:"killed_by"`
}

// commandResult is the result of a program that host.tools returns.
type commandResult struct {
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	ExitCode int    `json:"exitCode"`
}

// accepted is the response of host.bridge to a request.
type accepted struct {
	Accepted    bool      `json:"accepted"`
	RequestID   string    `json:"requestId,omitempty"`
	RunID       string    `json:"runId,omitempty"`
	BridgeRunID string    `json:"bridgeRunId,omitempty"` // argument of waitForJob
	Decision    *decision `json:"decision,omitempty"`
	// Set if the request was refused. Modules read the code here or in Reason.
	Code    string  `json:"code,omitempty"`
	Message string  `json:"message,omitempty"`
	Reason  *reason `json:"reason,omitempty"`
}

// decision is the reason why a request was accepted.
type decision struct {
	Source  string `json:"source"` // user, whitelist
	Message string `json:"message"`
}

type reason struct {
	Code    string `json:"code"` // rejected_by_user, bridge_policy_denied, invalid_request
	Message string `json:"message"`
}

func refusedRequest(request, code, message string) accepted {
	return accepted{RequestID: request, Code: code, Message: message, Reason: &reason{code, message}}
}

// acceptedRequest returns the response to an accepted request. key is the key of its call.
func (h *Host) acceptedRequest(request, key string, d decision) accepted {
	return accepted{Accepted: true, RequestID: request, RunID: fmt.Sprint(h.o.Run), BridgeRunID: key, Decision: &d}
}

// decisionOn returns the reason why a call was allowed: the owner's approval or the rules.
func (h *Host) decisionOn(ctx context.Context, key string) (decision, error) {
	if h.o.Ledger != nil {
		items, err := h.o.Ledger.Inbox.OfRun(ctx, h.o.Run)
		if err != nil || slices.ContainsFunc(items, func(i inbox.Item) bool { return i.Kind == inbox.KindApproval && i.Used == key }) {
			return decision{"user", "the owner of the agent approved it"}, err
		}
	}
	return decision{"whitelist", "the rules of the agent allow it"}, nil
}

// Values of the status of a program.
const (
	jobCompleted  = "completed"
	jobFailed     = "failed"
	jobTerminated = "terminated" // by a limit or a signal
)

// job is a program that has ended.
type job struct {
	Status   string `json:"status"` // completed, failed, terminated
	ExitCode int    `json:"exitCode"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	Reason   string `json:"reason,omitempty"`
}

func newJob(r ran) job {
	j := job{Status: jobCompleted, ExitCode: r.ExitCode, Stdout: r.Stdout, Stderr: r.Stderr}
	switch {
	case r.KilledBy != "" || r.Signal != "":
		j.Status, j.Reason = jobTerminated, cmp.Or(r.KilledBy, r.Signal)
	case r.ExitCode != 0:
		j.Status, j.Reason = jobFailed, fmt.Sprintf("exit code %d", r.ExitCode)
	}
	return j
}
