package moduleapi

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/skills"
)

type systemArgs struct{}

// system describes the machine to a module.
type system struct {
	Platform        string   `json:"platform"` // macos, windows, linux
	Arch            string   `json:"arch"`     // x64, arm64
	Shell           string   `json:"shell"`    // shell that runs scripts, or ""
	PackageManagers []string `json:"packageManagers"`
}

func (h *Host) systemInfo(context.Context, tool.Invocation, systemArgs) (tool.Envelope, error) {
	s := system{Platform: skills.PlatformOf(runtime.GOOS), Arch: runtime.GOARCH, PackageManagers: []string{}}
	if s.Arch == "amd64" {
		s.Arch = "x64"
	}
	shells := []string{"bash", "sh", "powershell"}
	if i := slices.IndexFunc(shells, shell.HasProgram); i >= 0 {
		s.Shell = shells[i]
	}
	for _, m := range packageManagers {
		if shell.HasProgram(m.program) {
			s.PackageManagers = append(s.PackageManagers, m.program)
		}
	}
	return tool.Success(s), nil
}

// requires reports whether a manifest declares a feature.
func requires(m *skills.Manifest, feature string) bool {
	return slices.Contains(m.CompatibilityRequirements, feature)
}

// packageManagers lists package managers with their install commands.
var packageManagers = []struct{ program, install string }{
	{"apt", "sudo apt install %s"},
	{"dnf", "sudo dnf install %s"},
	{"pacman", "sudo pacman -S %s"},
	{"zypper", "sudo zypper install %s"},
	{"apk", "sudo apk add %s"},
	{"brew", "brew install %s"},
	{"port", "sudo port install %s"},
	{"winget", "winget install %s"},
	{"npm", "npm install -g %s"},
	{"pipx", "pipx install %s"},
}

// recipe describes how to install a tool that modules request.
type recipe struct {
	program  string            // name of the program; "" means the id of the tool
	packages map[string]string // package names by package manager; "" is the default for system package managers
}

// recipes maps the ids that modules use to recipes. The id of any other tool is its program name.
var recipes = map[string]recipe{
	"claude-code": {"claude", map[string]string{"npm": "@anthropic-ai/claude-code"}},
	"codex":       {"", map[string]string{"npm": "@openai/codex"}},
	"gemini-cli":  {"gemini", map[string]string{"npm": "@google/gemini-cli"}},
	"git":         {"", map[string]string{"": "git", "winget": "Git.Git"}},
	"github-cli":  {"gh", map[string]string{"": "gh", "pacman": "github-cli", "apk": "github-cli", "winget": "GitHub.cli"}},
	"gh":          {"", map[string]string{"": "gh", "pacman": "github-cli", "apk": "github-cli", "winget": "GitHub.cli"}},
	"node":        {"", map[string]string{"": "nodejs", "brew": "node", "winget": "OpenJS.NodeJS.LTS"}},
	"nodejs":      {"node", map[string]string{"": "nodejs", "brew": "node", "winget": "OpenJS.NodeJS.LTS"}},
	"npm":         {"", map[string]string{"": "npm", "brew": "node", "winget": "OpenJS.NodeJS.LTS"}},
	"python":      {"python3", map[string]string{"": "python3", "pacman": "python", "brew": "python", "winget": "Python.Python.3.13"}},
	"python3":     {"", map[string]string{"": "python3", "pacman": "python", "brew": "python", "winget": "Python.Python.3.13"}},
	"ripgrep":     {"rg", map[string]string{"": "ripgrep", "winget": "BurntSushi.ripgrep.MSVC"}},
	"jq":          {"", map[string]string{"": "jq", "winget": "jqlang.jq"}},
	"curl":        {"", map[string]string{"": "curl", "winget": "cURL.cURL"}},
	"ffmpeg":      {"", map[string]string{"": "ffmpeg", "winget": "Gyan.FFmpeg"}},
	"pandoc":      {"", map[string]string{"": "pandoc", "winget": "JohnMacFarlane.Pandoc"}},
	"imagemagick": {"convert", map[string]string{"": "imagemagick", "dnf": "ImageMagick", "zypper": "ImageMagick", "winget": "ImageMagick.ImageMagick"}},
	"sqlite":      {"sqlite3", map[string]string{"": "sqlite3", "dnf": "sqlite", "pacman": "sqlite", "apk": "sqlite", "brew": "sqlite", "winget": "SQLite.SQLite"}},
}

// programOf returns the program of the tool with an id.
func programOf(id string) string { return cmp.Or(recipes[id].program, id) }

// installCommand returns the command that installs a tool on this machine, or "".
func installCommand(id string, has func(program string) bool) string {
	known := recipes[id].packages
	for _, m := range packageManagers {
		name := known[m.program]
		if name == "" && m.program != "winget" && m.program != "npm" && m.program != "pipx" {
			name = known[""]
		}
		if name != "" && has(m.program) {
			return fmt.Sprintf(m.install, name)
		}
	}
	return ""
}
