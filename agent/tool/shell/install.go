package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// installers are the package managers with the words by which they install software of others, which then
// runs with the agent's rights. nil: every call of them does.
var installers = map[string][]string{
	"apt": {"install"}, "apt-get": {"install"}, "dnf": {"install"}, "yum": {"install"}, "zypper": {"install", "in"},
	"apk": {"add"}, "brew": {"install"}, "port": {"install"}, "snap": {"install"}, "flatpak": {"install"}, "choco": {"install"}, "winget": {"install"},
	"pip": {"install"}, "pip3": {"install"}, "pipx": {"install", "run"}, "uv": {"add", "install", "sync"}, "uvx": nil, "poetry": {"add", "install"}, "conda": {"install"}, "mamba": {"install"},
	"npm": {"install", "i", "add", "ci", "exec"}, "npx": nil, "pnpm": {"install", "i", "add", "dlx"}, "yarn": {"install", "add", "dlx"}, "bun": {"install", "i", "add"}, "bunx": nil,
	"gem": {"install"}, "bundle": {"install"}, "cargo": {"install", "add"}, "go": {"install", "get"}, "composer": {"install", "require"}, "luarocks": {"install"}, "cpan": nil, "cpanm": nil,
}

// installsSoftware reports whether a command line installs software (OSL-18). It sees what is written
// plainly; the rest is up to the sandbox and the grants.
func installsSoftware(tree *syntax.File) (yes bool) {
	syntax.Walk(tree, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok && isInstall(staticWords(call.Args)) {
			yes = true
		}
		return !yes
	})
	return yes
}

func isInstall(argv []string) bool {
	for i, name := range argv {
		// Only the program itself, one behind a wrapper (sudo pip …), or a Python module counts: an argument
		// that happens to be called "go" is no installer.
		name = path.Base(name)
		if i > 0 && !slices.Contains(wrappers, path.Base(argv[0])) && argv[i-1] != "-m" { // python -m pip
			continue
		}

		words, known := installers[name]
		if !known && name != "pacman" {
			continue
		}

		rest := argv[i+1:]
		switch {
		case name == "pacman":
			return slices.ContainsFunc(rest, func(a string) bool { return strings.HasPrefix(a, "-S") || a == "--sync" })
		case words == nil:
			return true
		}

		return slices.ContainsFunc(rest, func(a string) bool { return slices.Contains(words, a) })
	}
	return false
}
