package moduleapi

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/ledger/inbox"
	"rouse/internal/text"
)

// installSpec is the spec of a tool that asks the owner to install a program. The tool never
// installs a program itself.
var installSpec = changing("host_bridge_install", "Asks the owner of a module's run to install a program.", tool.Spec{Ends: true, Waits: true})

type installArgs struct {
	ToolID string `json:"toolId"`
	Reason string `json:"reason,omitempty"`
}

// Options of the question to the owner.
const (
	installDone = "installed"
	installNot  = "no"
)

// install asks the owner to install a program, unless it is already installed.
func (h *Host) install(_ context.Context, _ tool.Invocation, a installArgs) (tool.Envelope, error) {
	program := programOf(a.ToolID)
	if shell.HasProgram(program) {
		return tool.Success(value{a.ToolID}), nil
	}
	said := ""
	if reason := strings.TrimSpace(text.Truncate(text.Collapse(a.Reason), maxTitle)); reason != "" {
		said = " It says: " + reason + "."
	}
	how := "install it"
	if command := installCommand(a.ToolID, shell.HasProgram); command != "" {
		how += " (" + command + ")"
	}
	return tool.Success(wait{
		Kind: inbox.KindInput, Title: "install " + a.ToolID, Options: []string{installDone, installNot},
		Question: fmt.Sprintf("The skill %s wants the program %s, which is not on this machine.%s rouse installs nothing by itself: %s, if you want to, and answer %q.", h.o.Skill, program, said, how, installDone),
	}), nil
}

// checkInstall returns an error if the owner cannot be asked.
func (h *Host) checkInstall(a installArgs) error {
	switch {
	case a.ToolID == "" || a.ToolID != word(a.ToolID) || strings.ContainsAny(a.ToolID, "/\\ "):
		return tool.Refuse(tool.KindInvalidArgs, "%q is no name of a program", text.OneLine(a.ToolID)).WithField("toolId", "a name, as git")
	case h.o.Capabilities.Within:
		return tool.Refuse(tool.KindRejected, "whoever called the skill waits for its answer, and nobody can be asked to install %s meanwhile", a.ToolID)
	}
	return nil
}

// Heard returns the value that a module gets for the owner's answer. If again is true, the caller
// must repeat the call instead.
func (h *Host) Heard(c Call, said json.RawMessage) (value json.RawMessage, again bool, err error) {
	if c.Tool != installSpec.Name {
		return said, false, nil
	}

	if string(said) != strconv.Quote(installNot) {
		return nil, true, nil
	}
	value, err = json.Marshal(refusedRequest("", codeDeniedByUser, "the owner of this machine does not install it"))
	return value, false, err
}

// JobState returns the state of a program that a module requested: completed, failed, terminated or
// refused. It returns "" if the call did not request a program.
func (h *Host) JobState(c Call, key string) string {
	if c.method.name != "bridge.executeCommand" {
		return ""
	}
	if done, ok := h.jobs[key]; ok {
		return done.Status
	}
	return "refused"
}

// acceptInstall returns the response to a request to install a program.
func (h *Host) acceptInstall(key string, e tool.Envelope) (json.RawMessage, error) {
	if !e.OK {
		return json.Marshal(refusedRequest("", commandCode(e.Kind), e.Message))
	}
	h.jobs[key] = job{Status: jobCompleted}
	return json.Marshal(h.acceptedRequest("", key, decision{"whitelist", "the program is on this machine"}))
}
