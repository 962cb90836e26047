package skills

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// Feature is a value of compatibilityRequirements (OSL-04, OSL-37).
type Feature struct {
	Name string // as manifests write it
	What string // what it means
	Here bool   // whether rouse has it
}

// FeatureSystemTools is the feature that a skill with bridgeRequirement: required has to ask for.
const FeatureSystemTools = "system_tools"

// FeatureSystemInfo is the feature that a skill asks for to learn on which machine it is.
const FeatureSystemInfo = "system_info"

// FeatureAwake is the feature that a skill asks for while whose runs the machine is kept awake.
const FeatureAwake = "awake"

// features are those that are known: of the program's host first, then those of a browser, of which some
// have their like here.
var features = []Feature{
	{FeatureSystemTools, "running programs of this machine", true},
	{FeatureSystemInfo, "asking what machine this is", true},
	{"filesystem", "reading and writing files", true},
	{"command_permissions", "rules for commands, which the grants of an agent are", true},
	{"tool_install_recipes", "how to install programs, which you do yourself", true},
	{"mcp_proxy", "tools of MCP servers, which the agent has to have", true},
	{FeatureAwake, "keeping the machine awake while a run is on", canBeAwake},
	{"web-crypto", "random numbers, digests, HMAC and AES-GCM", true},
	{"fetch", "asking servers, by the rules of the manifest", true},
	{"local-storage", "a small store of its own, as a browser has it", false},
	{"indexeddb", "a database of its own, as a browser has it", false},
	{"web-workers", "threads of its own, as a browser has them", false},
}

// canBeAwake says whether a system has a way to be kept awake; whether it is granted shows when it is asked for.
const canBeAwake = runtime.GOOS == "linux" || runtime.GOOS == "darwin" || runtime.GOOS == "windows"

// Features are the values of compatibilityRequirements that are known.
func Features() []Feature { return slices.Clone(features) }

// feature is the feature of a name.
func feature(name string) (Feature, bool) {
	i := slices.IndexFunc(features, func(f Feature) bool { return f.Name == name })
	if i < 0 {
		return Feature{Name: name, What: "nobody here knows what that is"}, false
	}
	return features[i], true
}

func featureNames() []string {
	var out []string
	for _, f := range features {
		out = append(out, f.Name)
	}
	return out
}

// Lacks are the features that a program requires and this host does not have, in the order of the
// manifest; what nobody knows is among them (OSL-37).
func (m *Manifest) Lacks() (out []Feature) {
	for _, name := range m.CompatibilityRequirements {
		if f, _ := feature(name); !f.Here {
			out = append(out, f)
		}
	}
	return out
}

// goosOf are the names that Go has for platforms.
var goosOf = map[Platform]string{PlatformMacOS: "darwin", PlatformWindows: "windows", PlatformLinux: "linux"}

// NeedsWorkspace reports whether a run of a program needs a workspace, by itself or to go on for long (OSL-28, OSL-37).
func (m *Manifest) NeedsWorkspace() bool {
	return m.WorkspaceSupport == SupportRequired || m.LongRunningSupport == SupportRequired
}

// StaysAwake says whether a program asks for the machine to be kept awake while it runs (OSL-37).
func (m *Manifest) StaysAwake() bool {
	return slices.Contains(m.CompatibilityRequirements, FeatureAwake)
}

// Supports says whether a program is for an operating system, by the name that Go has for it: one that
// names no platform is for all (OSL-04). What is not for this one is neither installed nor run (OSL-21).
func (m *Manifest) Supports(goos string) bool {
	return len(m.SupportedPlatforms) == 0 || slices.ContainsFunc(m.SupportedPlatforms, func(p Platform) bool { return goosOf[p] == goos })
}

// Refusals say why a program is not even installed, a sentence each: it is for another system (OSL-21).
func (m *Manifest) Refusals(goos string) (out []string) {
	if !m.Supports(goos) {
		out = append(out, fmt.Sprintf("it is for %s, and this is %s", words(m.SupportedPlatforms), PlatformOf(goos)))
	}

	return out
}

// Obstacles say why a program cannot run on a machine, a sentence each; none means that nothing of the
// machine is in its way (OSL-21, OSL-37).
func (m *Manifest) Obstacles(goos string) []string {
	out := m.Refusals(goos)
	for _, f := range m.Lacks() {
		out = append(out, fmt.Sprintf("it needs %s (%s), which is not there", f.Name, f.What))
	}
	if m.LongRunningSupport == SupportRequired {
		if m.ExecutionMode == ModeDeclarative {
			out = append(out, "it needs long runs (longRunningSupport: required), and a declarative skill makes no checkpoints")
		}
		if m.WorkspaceSupport == SupportNone {
			out = append(out, "it needs long runs (longRunningSupport: required), and keeps no workspace (workspaceSupport: none)")
		}
	}
	for _, w := range m.WASM {
		if w.Remote() {
			out = append(out, fmt.Sprintf("it takes its WebAssembly module %s from %s, and rouse takes those alone that lie in the folder of a skill", w.ModuleID, w.SourceURL))
		}
	}
	return out
}

// PlatformOf is an operating system as manifests call it.
func PlatformOf(goos string) string {
	for platform, name := range goosOf {
		if name == goos {
			return string(platform)
		}
	}
	return goos
}

func words[T ~string](list []T) string {
	var out []string
	for _, one := range list {
		out = append(out, string(one))
	}
	return strings.Join(out, ", ")
}
