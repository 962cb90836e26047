package host

import (
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
	name   string   // below host, as a module calls it: storage.get
	params []string // names of its arguments, in their order; nil: its one argument is the object of all
	tool   string   // that answers it; "": the run itself does, without a call on record
	field  string   // of the result that the module gets; "": the whole result
	looks  bool     // it changes nothing, whatever the effect of its tool
	// has says whether a module has it, by its manifest and what its run can do.
	has func(m *skills.Manifest, c Capabilities) bool
}

// Capabilities are what the agent of a run can do, for the methods that need it.
type Capabilities struct {
	Network  bool // some host is granted
	Model    bool // there is one
	Commands bool // the tool that runs programs is among its tools
	Writing  bool // the tool that writes files is
	Tools    bool // some of its other tools may be called
}

// The methods. Those that are not here do not exist yet: docs/modules.md lists them.
var methods = []method{
	{name: "log", has: always}, // callable, and an object with debug, info, warn and error
	{name: "events.emitProgress", params: []string{"progress", "message"}, has: always},
	{name: "events.emitCustom", params: []string{"type", "payload"}, has: always},

	{name: "storage.get", params: []string{"key"}, tool: storageGetSpec.Name, field: "value", looks: true, has: permits(skills.PermissionStorage)},
	{name: "storage.set", params: []string{"key", "value"}, tool: storageSetSpec.Name, field: "value", has: permits(skills.PermissionStorage)},
	{name: "storage.delete", params: []string{"key"}, tool: storageDeleteSpec.Name, field: "value", has: permits(skills.PermissionStorage)},
	{name: "storage.list", params: []string{"prefix"}, tool: storageListSpec.Name, field: "value", looks: true, has: permits(skills.PermissionStorage)},

	{name: "network.fetch", params: []string{"url", "init"}, tool: fetchSpec.Name, has: func(m *skills.Manifest, c Capabilities) bool {
		return c.Network && permission(m, skills.PermissionNetwork)
	}},
	{name: "llm.complete", tool: completeSpec.Name, has: func(m *skills.Manifest, c Capabilities) bool { return c.Model && AsksModel(m) }},
	{name: "vault.resolveBinding", params: []string{"name"}, tool: resolveSpec.Name, field: "value", has: func(m *skills.Manifest, _ Capabilities) bool { return len(m.RequiredBindings) > 0 }},

	{name: "filesystem.openFile", params: []string{"path"}, tool: openFileSpec.Name, has: permits(skills.PermissionFilesystem)},
	{name: "filesystem.openDirectory", params: []string{"path"}, tool: openFolderSpec.Name, has: permits(skills.PermissionFilesystem)},
	{name: "filesystem.listHandles", has: permits(skills.PermissionFilesystem)},
	{name: "filesystem.listDirectory", params: []string{"path"}, tool: listSpec.Name, field: "value", has: permits(skills.PermissionFilesystem)},
	{name: "filesystem.readFile", params: []string{"path"}, tool: readSpec.Name, field: "value", has: permits(skills.PermissionFilesystem)},
	{name: "filesystem.writeFile", params: []string{"path", "data"}, tool: writeSpec.Name, field: "value", has: func(m *skills.Manifest, c Capabilities) bool { return c.Writing && writesFiles(m) }},

	{name: "tools.invoke", params: []string{"name", "args"}, tool: commandTool, has: calling},
	{name: "tools.callTool", params: []string{"name", "args"}, tool: commandTool, has: calling},
	{name: "bridge.executeCommand", tool: commandTool, has: commands},
	{name: "bridge.waitForJob", params: []string{"bridgeRunId"}, has: commands},
	{name: "bridge.locateTools", params: []string{"toolIds"}, tool: locateSpec.Name, has: commands},
	{name: "bridge.installTool", has: commands},
}

// commandTool is the tool that runs programs.
var commandTool = shell.RunName()

func always(*skills.Manifest, Capabilities) bool { return true }

func permits(kind skills.PermissionKind) func(*skills.Manifest, Capabilities) bool {
	return func(m *skills.Manifest, _ Capabilities) bool { return permission(m, kind) }
}

func permission(m *skills.Manifest, kind skills.PermissionKind) bool {
	return slices.ContainsFunc(m.Permissions, func(p skills.Permission) bool { return p.Kind == kind })
}

// writesFiles says whether a manifest asks to write files: a permission that is for reading alone does not.
func writesFiles(m *skills.Manifest) bool {
	return slices.ContainsFunc(m.Permissions, func(p skills.Permission) bool {
		return p.Kind == skills.PermissionFilesystem && !strings.EqualFold(p.Scope, "read")
	})
}

func commands(m *skills.Manifest, c Capabilities) bool { return c.Commands && UsesCommands(m) }

func calling(m *skills.Manifest, c Capabilities) bool { return c.Tools || commands(m, c) }

// AsksModel says whether a module may ask a model: it declares what for.
func AsksModel(m *skills.Manifest) bool { return len(m.LLMUsage) > 0 }

// UsesCommands says whether a module may ask for programs to be run.
func UsesCommands(m *skills.Manifest) bool { return m.BridgeRequirement != skills.BridgeNever }

// Methods are the methods that a module has, in a fixed order.
func Methods(m *skills.Manifest, c Capabilities) []string {
	var out []string
	for _, one := range methods {
		if one.has(m, c) {
			out = append(out, one.name)
		}
	}
	return out
}

// Looks says whether a call changes nothing, whatever the effect of its tool.
func (c Call) Looks() bool { return c.method.looks }

// reading is the spec of a method that changes nothing.
func reading(name, description string, args reflect.Type) tool.Spec {
	return tool.Spec{
		Name: name, Description: description, Effect: domain.EffectRead, Class: tool.ClassOther, Scope: tool.ScopeAgent, Writes: tool.WritesNothing,
		Args: args, Requires: tool.RequiresModule,
	}
}

// changing is reading for one that does.
func changing(name, description string, effect domain.Effect, args reflect.Type) tool.Spec {
	s := reading(name, description, args)
	s.Effect, s.Writes = effect, tool.WritesElsewhere
	return s
}

// Specs are the tools of the family.
func Specs() tool.Specs {
	return tool.Specs{
		storageGetSpec, storageSetSpec, storageDeleteSpec, storageListSpec, fetchSpec, completeSpec, resolveSpec,
		openFileSpec, openFolderSpec, listSpec, readSpec, writeSpec, locateSpec,
	}
}
