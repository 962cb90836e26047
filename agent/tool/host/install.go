package host

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// installSpec has the owner install a program: nothing is installed for a module, whatever it says of its recipe (OSL-18).
var installSpec = waiting(changing("host_bridge_install", "Asks the owner of a module's run to install a program.", domain.EffectDatabase, reflect.TypeFor[installArgs]()))

type installArgs struct {
	ToolID string `json:"toolId"`
	Reason string `json:"reason,omitempty"`
}

// What an owner can say of a program that they are asked to install.
const (
	installDone = "installed"
	installNot  = "no"
)

// install asks until the program is there, or its owner does not want it.
func (h *Host) install() (tool.Tool, error) {
	s := installSpec
	s.Needs = tool.RefusingFirst(h.wrongInstall, tool.NoNeeds)
	return tool.Define(s, func(_ context.Context, _ tool.Invocation, a installArgs) (tool.Envelope, error) {
		if refused := h.wrongInstall(a); refused != nil {
			return *refused, nil
		}
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
			Kind: ledger.KindInput, Title: "install " + a.ToolID, Options: []string{installDone, installNot},
			Question: fmt.Sprintf("The skill %s wants the program %s, which is not on this machine.%s rouse installs nothing by itself: %s, if you want to, and answer %q.", h.o.Skill, program, said, how, installDone),
		}), nil
	})
}

// wrongInstall answers a request for what is no program by its name, nil where the owner can be asked.
func (h *Host) wrongInstall(a installArgs) *tool.Envelope {
	var e tool.Envelope
	switch {
	case a.ToolID == "" || a.ToolID != word(a.ToolID) || strings.ContainsAny(a.ToolID, "/\\ "):
		e = tool.Failure(tool.KindInvalidArgs, "%q is no name of a program", text.OneLine(a.ToolID)).WithField("toolId", "a name, as git")
	case h.o.Capabilities.Within:
		e = tool.Failure(tool.KindRejected, "whoever called the skill waits for its answer, and nobody can be asked to install %s meanwhile", a.ToolID)
	default:
		return nil
	}
	return &e
}

// Heard is what a module gets for what its owner has answered to a call. again: the call is made again, and finds out by itself.
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

// JobState is what became of a program that a module has asked for with a call: completed, failed, terminated; "" where the call asked
// for none.
func (h *Host) JobState(c Call, key string) string {
	if c.method.name != "bridge.executeCommand" {
		return ""
	}
	if done, ok := h.jobs[key]; ok {
		return done.Status
	}
	return "refused"
}

// acceptInstall is the answer to a request for a program: it is there, or why it will not be.
func (h *Host) acceptInstall(key string, e tool.Envelope) (json.RawMessage, error) {
	if !e.OK {
		return json.Marshal(refusedRequest("", commandCode(e.Kind), e.Message))
	}
	h.jobs[key] = job{Status: jobCompleted}
	return json.Marshal(h.acceptedRequest("", key, decision{"whitelist", "the program is on this machine"}))
}
