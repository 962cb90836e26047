package moduleapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/domain"
	"rouse/skills"
)

// method is one method of the object host.
type method struct {
	name string // name below host, such as storage.get
	// params has the names of the arguments in order. If nil, the only argument is an object with
	// all of them.
	params []string
	// tool is the tool that answers the call. If "", the run answers it without a recorded call.
	tool string
	// field is the field of the result that the module gets. If "", the module gets the whole
	// result.
	field string
	// looks is true if the method changes nothing, even if its tool has an effect.
	looks bool
	like  string // method that this one is an alias of, or ""
	// blocks is true if later code of the module waits for the answer, even without await.
	blocks bool
	// has reports whether a module has the method, given its manifest and the capabilities of its
	// run.
	has func(m *skills.Manifest, c Capabilities) bool
	// route translates a call to a tool call, or answers it. If nil, the arguments are passed to
	// the tool unchanged.
	route func(h *Host, c Call, named map[string]json.RawMessage) (Call, error)
}

// Capabilities describes the features available to a run that some methods need.
type Capabilities struct {
	Network  bool     // at least one host is granted
	Model    bool     // the agent has a model
	Commands bool     // the agent has the tool that runs programs
	Writing  bool     // the agent has the tool that writes files
	Tools    bool     // the module may call other tools of the agent
	SignIns  bool     // sign-ins can be stored
	Servers  []string // MCP servers of the agent
	// Workspace is true if the run works in a workspace.
	Workspace bool
	// Within is true if the module answers a call of another run, which cannot wait for the owner.
	Within bool
}

// methods lists the methods of host.
var methods = []method{
	{name: "log", has: always}, // a function and an object with debug, info, warn and error
	{name: "events.emitProgress", params: []string{"progress", "message"}, has: always, route: (*Host).emitProgress},
	{name: "events.emitCustom", params: []string{"type", "payload"}, has: always, route: (*Host).emitCustom},

	{name: "storage.get", params: []string{"key"}, tool: storageGetSpec.Name, field: "value", looks: true, has: permits(skills.PermissionStorage)},
	{name: "storage.set", params: []string{"key", "value"}, tool: storageSetSpec.Name, field: "value", has: permits(skills.PermissionStorage)},
	{name: "storage.delete", params: []string{"key"}, tool: storageDeleteSpec.Name, field: "value", has: permits(skills.PermissionStorage)},
	{name: "storage.list", params: []string{"prefix"}, tool: storageListSpec.Name, field: "value", looks: true, has: permits(skills.PermissionStorage)},

	{name: "network.fetch", params: []string{"url", "init"}, tool: fetchSpec.Name, route: (*Host).fetchRequest, has: func(m *skills.Manifest, c Capabilities) bool {
		return c.Network && UsesNetwork(m)
	}},
	{name: "llm.complete", tool: completeSpec.Name, has: func(m *skills.Manifest, c Capabilities) bool { return c.Model && AsksModel(m) }},
	{name: "vault.resolveBinding", params: []string{"name"}, tool: resolveSpec.Name, field: "value", has: func(m *skills.Manifest, _ Capabilities) bool { return len(m.RequiredBindings) > 0 }},

	{name: "oauth.authorize", params: []string{"providerId"}, tool: authorizeSpec.Name, field: "value", has: signsIn},
	{name: "oauth.getToken", params: []string{"providerId"}, tool: tokenSpec.Name, field: "value", has: signsIn},
	{name: "oauth.refresh", params: []string{"providerId"}, tool: refreshSpec.Name, field: "value", has: signsIn},
	{name: "oauth.authStatus", params: []string{"providerId"}, tool: statusSpec.Name, field: "value", has: signsIn},

	{name: "wasm.instantiate", has: func(m *skills.Manifest, _ Capabilities) bool {
		return len(m.WASM) > 0 && permission(m, skills.PermissionWASM)
	}}, // implemented in skills/module

	{name: "filesystem.openFile", params: []string{"path"}, tool: openFileSpec.Name, has: permits(skills.PermissionFilesystem)},
	{name: "filesystem.openDirectory", params: []string{"path"}, tool: openFolderSpec.Name, has: permits(skills.PermissionFilesystem)},
	{name: "filesystem.listHandles", has: permits(skills.PermissionFilesystem), route: (*Host).listHandles},
	{name: "filesystem.listDirectory", params: []string{"path"}, tool: listSpec.Name, field: "value", has: permits(skills.PermissionFilesystem)},
	{name: "filesystem.readFile", params: []string{"path"}, tool: readSpec.Name, field: "value", has: permits(skills.PermissionFilesystem)},
	{name: "filesystem.writeFile", params: []string{"path", "data"}, tool: writeSpec.Name, field: "value", has: func(m *skills.Manifest, c Capabilities) bool { return c.Writing && writesFiles(m) }},

	{name: "tools.invoke", params: []string{"name", "args"}, tool: commandTool, has: calling, route: (*Host).invoke},
	{name: "tools.callTool", params: []string{"name", "args"}, tool: commandTool, has: calling, route: (*Host).invoke},
	{name: "tools.registerTool", tool: registerSpec.Name, has: func(m *skills.Manifest, _ Capabilities) bool { return len(m.Tools) > 0 }},
	{name: "bridge.executeCommand", tool: commandTool, has: commands, route: (*Host).executeCommand},
	{name: "bridge.waitForJob", params: []string{"bridgeRunId"}, has: commands, route: (*Host).waitForJob},
	{name: "bridge.locateTools", params: []string{"toolIds"}, tool: locateSpec.Name, has: commands},
	{name: "bridge.systemInfo", params: []string{}, tool: systemSpec.Name, has: func(m *skills.Manifest, _ Capabilities) bool { return requires(m, skills.FeatureSystemInfo) }},
	{name: "bridge.installTool", tool: installSpec.Name, has: commands},

	{name: "run.checkpoint", params: []string{"state"}, tool: checkpointSpec.Name, field: "value", has: steps, route: (*Host).runCall},
	{name: "run.createCheckpoint", like: "run.checkpoint", has: steps},
	{name: "run.reportStep", blocks: true, params: []string{"label", "role"}, tool: checkpointSpec.Name, field: "value", has: steps, route: (*Host).reportStep},
	{name: "run.updateProgress", has: steps, route: (*Host).updateProgress},
	{name: "run.pause", blocks: true, params: []string{"reason"}, tool: pauseSpec.Name, has: pauses, route: (*Host).runCall},
	{name: "run.requestInput", blocks: true, tool: inputSpec.Name, has: asks, route: (*Host).runCall},
	{name: "run.requestUserInput", blocks: true, like: "run.requestInput", has: asks},

	{name: "workspace.getState", params: []string{}, tool: getStateSpec.Name, field: "value", looks: true, has: inWorkspace},
	{name: "workspace.setState", params: []string{"state"}, tool: setStateSpec.Name, field: "value", has: inWorkspace, route: (*Host).workspaceCall},
	{name: "workspace.createArtifact", tool: createArtifactSpec.Name, has: inWorkspace, route: (*Host).workspaceCall},
	{name: "workspace.updateArtifact", params: []string{"artifactId", "update"}, tool: updateArtifactSpec.Name, has: inWorkspace, route: (*Host).workspaceCall},
	{name: "workspace.listArtifacts", params: []string{}, tool: listArtifactsSpec.Name, field: "value", looks: true, has: inWorkspace},
	{name: "workspace.setPhase", params: []string{"phase"}, tool: setPhaseSpec.Name, field: "value", has: inWorkspace},
	{name: "workspace.setRole", params: []string{"role"}, tool: setRoleSpec.Name, field: "value", has: inWorkspace},
	{name: "workspace.attachApprovalRef", params: []string{"approvalId", "kind"}, tool: attachApprovalSpec.Name, field: "value", has: inWorkspace},
}

// commandTool is the name of the tool that runs programs.
var commandTool = shell.RunName()

func always(*skills.Manifest, Capabilities) bool { return true }

func permits(kind skills.PermissionKind) func(*skills.Manifest, Capabilities) bool {
	return func(m *skills.Manifest, _ Capabilities) bool { return permission(m, kind) }
}

func permission(m *skills.Manifest, kind skills.PermissionKind) bool {
	return slices.ContainsFunc(m.Permissions, func(p skills.Permission) bool { return p.Kind == kind })
}

// writesFiles reports whether a manifest requests to write files. A read permission is not enough.
func writesFiles(m *skills.Manifest) bool {
	return slices.ContainsFunc(m.Permissions, func(p skills.Permission) bool {
		return p.Kind == skills.PermissionFilesystem && !strings.EqualFold(p.Scope, "read")
	})
}

func commands(m *skills.Manifest, c Capabilities) bool { return c.Commands && UsesCommands(m) }

func calling(m *skills.Manifest, c Capabilities) bool { return c.Tools || commands(m, c) }

// steps reports whether a module has host.run. Modules that answer a single call do not have it.
func steps(m *skills.Manifest, c Capabilities) bool {
	return !c.Within && (m.ExecutionMode == skills.ModeFlow || m.ExecutionMode == skills.ModeAgentic)
}

// pauses reports whether a run of a module may pause until its owner continues it.
func pauses(m *skills.Manifest, c Capabilities) bool {
	return steps(m, c) && m.LongRunningSupport != skills.SupportNone
}

func asks(m *skills.Manifest, c Capabilities) bool { return steps(m, c) && m.UserInputSupport }

func inWorkspace(m *skills.Manifest, c Capabilities) bool { return c.Workspace && KeepsWorkspace(m) }

// KeepsWorkspace reports whether a run of a skill may work in a workspace.
func KeepsWorkspace(m *skills.Manifest) bool {
	return m.WorkspaceSupport == skills.SupportOptional || m.WorkspaceSupport == skills.SupportRequired
}

// AsksModel reports whether a module may ask a model.
func AsksModel(m *skills.Manifest) bool { return len(m.LLMUsage) > 0 }

// UsesNetwork reports whether a module may send requests to servers.
func UsesNetwork(m *skills.Manifest) bool { return permission(m, skills.PermissionNetwork) }

// UsesCommands reports whether a module may request programs to be run.
func UsesCommands(m *skills.Manifest) bool { return m.BridgeRequirement != skills.BridgeNever }

// Methods returns the names of the methods that a module has, in a fixed order.
func Methods(m *skills.Manifest, c Capabilities) []string {
	var out []string
	for _, one := range methods {
		if one.has(m, c) {
			out = append(out, one.name)
		}
	}
	return out
}

// Looks reports whether a call changes nothing, even if its tool has an effect.
func (c Call) Looks() bool { return c.method.looks }

// reading adds the properties of a read-only method to a spec.
func reading(name, description string, s tool.Spec) tool.Spec {
	s.Name, s.Description, s.Effect, s.Class = name, description, cmp.Or(s.Effect, domain.EffectRead), cmp.Or(s.Class, tool.ClassOther)
	s.Scope, s.Writes, s.Requires = tool.ScopeAgent, cmp.Or(s.Writes, tool.WritesNothing), tool.RequiresModule
	return s
}

// changing adds the properties of a method with an effect to a spec. The default effect is a
// database effect.
func changing(name, description string, s tool.Spec) tool.Spec {
	writes := s.Writes
	s.Effect = cmp.Or(s.Effect, domain.EffectDatabase)
	s = reading(name, description, s)
	s.Writes = writes
	return s
}

// member is a tool of the package, and the function that creates it for a run.
type member struct {
	spec   tool.Spec
	define func(*Host, tool.Spec) (tool.Tool, error)
}

type needs = func(*Host, context.Context, tool.Invocation, json.RawMessage) (tool.Access, error)

// serve returns a member that is implemented by the function run. need and check are optional.
func serve[A any](s tool.Spec, need needs, check func(*Host, A) error, run func(*Host, context.Context, tool.Invocation, A) (tool.Envelope, error)) member {
	s.Args = reflect.TypeFor[A]()
	return member{s, func(h *Host, s tool.Spec) (tool.Tool, error) {
		call := func(ctx context.Context, in tool.Invocation, a A) (tool.Envelope, error) { return run(h, ctx, in, a) }
		if need != nil {
			s.Access = func(ctx context.Context, in tool.Invocation, args json.RawMessage) (tool.Access, error) {
				return need(h, ctx, in, args)
			}
		}
		if check != nil {
			return tool.DefineChecked(s, func(a A) error { return check(h, a) }, call)
		}
		return tool.Define(s, call)
	}}
}

func noNeeds(*Host, context.Context, tool.Invocation, json.RawMessage) (tool.Access, error) {
	return tool.Access{}, nil
}

var members = []member{
	serve(storageGetSpec, (*Host).readsStorage, nil, (*Host).storageGet),
	serve(storageSetSpec, (*Host).writesStorage, nil, (*Host).storageSet),
	serve(storageDeleteSpec, (*Host).writesStorage, nil, (*Host).storageDelete),
	serve(storageListSpec, (*Host).readsStorage, nil, (*Host).storageList),
	{fetchSpec, (*Host).fetch},
	serve(completeSpec, noNeeds, (*Host).checkQuestion, (*Host).complete),
	{resolveSpec, (*Host).resolve},
	oauthTool(authorizeSpec, (*Host).authorize),
	oauthTool(tokenSpec, (*Host).token),
	oauthTool(refreshSpec, (*Host).refresh),
	oauthTool(statusSpec, (*Host).status),
	placeTool(openFileSpec, func(h *Host) string { return h.o.File }, (*Host).openFile),
	placeTool(openFolderSpec, func(*Host) string { return "." }, (*Host).openFolder),
	placeTool(listSpec, func(*Host) string { return "." }, (*Host).listFolder),
	placeTool(readSpec, func(*Host) string { return "" }, (*Host).readFile),
	{writeSpec, (*Host).writeFile},
	serve(locateSpec, nil, nil, (*Host).locate),
	serve(systemSpec, nil, nil, (*Host).systemInfo),
	serve(installSpec, noNeeds, (*Host).checkInstall, (*Host).install),
	serve(registerSpec, (*Host).writesStorage, (*Host).checkTool, (*Host).register),

	serve(checkpointSpec, (*Host).workspaceWrites, nil, (*Host).checkpoint),
	serve(pauseSpec, (*Host).workspaceWrites, nil, (*Host).pause),
	serve(inputSpec, (*Host).workspaceWrites, (*Host).checkInput, (*Host).requestInput),
	serve(getStateSpec, (*Host).workspaceReads, nil, (*Host).getState),
	serve(setStateSpec, (*Host).workspaceWrites, nil, (*Host).setState),
	serve(createArtifactSpec, (*Host).workspaceWrites, nil, (*Host).createArtifact),
	serve(updateArtifactSpec, (*Host).workspaceWrites, nil, (*Host).updateArtifact),
	serve(listArtifactsSpec, (*Host).workspaceReads, nil, (*Host).listArtifacts),
	serve(setPhaseSpec, (*Host).workspaceWrites, nil, (*Host).setPhase),
	serve(setRoleSpec, (*Host).workspaceWrites, nil, (*Host).setRole),
	serve(attachApprovalSpec, (*Host).workspaceWrites, nil, (*Host).attachApproval),
}

// Specs returns the specs of the tools of the module API.
func Specs() tool.Specs {
	out := make(tool.Specs, len(members))
	for i, m := range members {
		out[i] = m.spec
	}
	return out
}

// lackedPermissions has the permissions for methods that are not implemented.
var lackedPermissions = []skills.PermissionKind{skills.PermissionConversation, skills.PermissionBrowser}

// Missing returns the features of a skill that are not supported. A skill with such a feature is
// not run. Optional features are not included.
func Missing(m *skills.Manifest) (out []string) {
	add := func(missing bool, format string, args ...any) {
		if missing {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}

	for _, p := range m.Permissions {
		add(slices.Contains(lackedPermissions, p.Kind), "the permission %s", p.Kind)
	}
	for _, f := range m.Lacks() {
		add(true, "%s (%s)", f.Name, f.What)
	}
	return slices.Compact(out)
}

// Ungranted returns the requests of a manifest that the agent's grants do not cover. needed has the
// required ones and wanted the optional ones.
func Ungranted(m *skills.Manifest, c Capabilities, secrets []string) (needed, wanted []string) {
	add := func(missing, required bool, what string) {
		switch {
		case missing && required:
			needed = append(needed, what)
		case missing:
			wanted = append(wanted, what)
		}
	}

	add(UsesNetwork(m) && !c.Network, false, "the network, and the agent may ask no host (grants: network)")
	add(AsksModel(m) && !c.Model, false, "a model, and the agent has none")
	add(UsesCommands(m) && !c.Commands, m.BridgeRequirement == skills.BridgeRequired, "programs, and the agent may run none (grants: commands)")
	add(writesFiles(m) && !c.Writing, false, "to write files, and the agent's tools leave that out")
	for _, server := range RequiredServers(m) {
		add(!slices.Contains(c.Servers, server), true, fmt.Sprintf("the MCP server %s, and the agent does not have it (agents: mcp)", server))
	}
	for _, b := range m.RequiredBindings {
		if standsForToken(m, b) { // the owner signs in when the token is needed
			continue
		}
		add(!slices.Contains(secrets, b.Name), b.Required, fmt.Sprintf("the secret %s, and the agent is not granted it (grants: secrets)", b.Name))
	}
	return needed, wanted
}

// RequiredServers returns the names of the MCP servers that a skill requires, each once.
func RequiredServers(m *skills.Manifest) (out []string) {
	for _, s := range m.RequiredMCPServers {
		out = append(out, s.Name)
	}
	for _, t := range m.RequiredMCPTools {
		if !slices.Contains(out, t.ServerName) {
			out = append(out, t.ServerName)
		}
	}
	return out
}
