package skills

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// Feature is a value of compatibilityRequirements in a manifest.
type Feature struct {
	Name string // name in the manifest
	What string // description
	Here bool   // rouse supports the feature
}

// FeatureSystemTools must be requested by a skill with bridgeRequirement: required.
const FeatureSystemTools = "system_tools"

// FeatureSystemInfo lets a skill read information about the machine.
const FeatureSystemInfo = "system_info"

// FeatureAwake keeps the machine awake during runs of the skill.
const FeatureAwake = "awake"

// features lists the known features: first features of the host, then features of a browser.
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

// canBeAwake is true on systems that can be kept awake. The request itself can still be denied.
const canBeAwake = runtime.GOOS == "linux" || runtime.GOOS == "darwin" || runtime.GOOS == "windows"

// Features returns the known values of compatibilityRequirements.
func Features() []Feature { return slices.Clone(features) }

// feature returns the feature with the given name, and whether it is known.
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

// Lacks returns the features that the program requires but this host does not have, in manifest
// order. Unknown features are included.
func (m *Manifest) Lacks() (out []Feature) {
	for _, name := range m.CompatibilityRequirements {
		if f, _ := feature(name); !f.Here {
			out = append(out, f)
		}
	}
	return out
}

// goosOf maps platforms to GOOS values.
var goosOf = map[Platform]string{PlatformMacOS: "darwin", PlatformWindows: "windows", PlatformLinux: "linux"}

// NeedsWorkspace reports whether a run of the program needs a workspace, either directly or because
// the program needs long runs.
func (m *Manifest) NeedsWorkspace() bool {
	return m.WorkspaceSupport == SupportRequired || m.LongRunningSupport == SupportRequired
}

// StaysAwake reports whether the program asks to keep the machine awake while it runs.
func (m *Manifest) StaysAwake() bool {
	return slices.Contains(m.CompatibilityRequirements, FeatureAwake)
}

// Supports reports whether the program supports the operating system goos. A program that names no
// platform supports all of them. An unsupported program is neither installed nor run.
func (m *Manifest) Supports(goos string) bool {
	return len(m.SupportedPlatforms) == 0 || slices.ContainsFunc(m.SupportedPlatforms, func(p Platform) bool { return goosOf[p] == goos })
}

// Refusals returns the reasons not to install the program on goos, one sentence each. The only
// possible reason is an unsupported operating system.
func (m *Manifest) Refusals(goos string) (out []string) {
	if !m.Supports(goos) {
		out = append(out, fmt.Sprintf("it is for %s, and this is %s", words(m.SupportedPlatforms), PlatformOf(goos)))
	}

	return out
}

// Obstacles returns the reasons why the program cannot run on this machine, one sentence each. It
// returns nil if the program can run.
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

// PlatformOf returns the name of an operating system in manifests.
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
