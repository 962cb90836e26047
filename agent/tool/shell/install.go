package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// installers are package managers with the words by which they install software; nil: every call
// does.
var installers = map[string][]string{
	"apt": {"install"}, "apt-get": {"install"}, "dnf": {"install"}, "yum": {"install"}, "zypper": {"install", "in"},
	"apk": {"add"}, "brew": {"install"}, "port": {"install"}, "snap": {"install"}, "flatpak": {"install"}, "choco": {"install"}, "winget": {"install"},
	"pip": {"install"}, "pip3": {"install"}, "pipx": {"install", "run"}, "uv": {"add", "install", "sync"}, "uvx": nil, "poetry": {"add", "install"}, "conda": {"install"}, "mamba": {"install"},
	"npm": {"install", "i", "in", "add", "ci", "clean-install", "install-test", "it", "exec", "x", "init", "create"}, "npx": nil, "pnpm": {"install", "i", "add", "dlx"}, "yarn": {"install", "add", "dlx"}, "bun": {"install", "i", "add"}, "bunx": nil,
	"gem": {"install"}, "bundle": {"install"}, "cargo": {"install", "add"}, "go": {"install", "get"}, "composer": {"install", "require"}, "luarocks": {"install"}, "cpan": nil, "cpanm": nil,
}

// installsSoftware reports whether a command line installs software (OSL-18), as far as it is
// written plainly: also behind wrappers (env, xargs, find -exec) and in scripts for a shell (bash
// -c '…'). The rest is up to the sandbox and the grants.
func installsSoftware(tree *syntax.File, depth int) (yes bool) {
	syntax.Walk(tree, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok && !yes {
			yes = slices.ContainsFunc(starts(staticWords(call.Args)), isInstall)
		}
		for _, inner := range nestedIn(n, depth) {
			yes = yes || installsSoftware(inner, depth-1)
		}
		return !yes
	})
	return yes
}

// isInstall reports whether a program, without wrappers, is an installer that installs something.
func isInstall(argv []string) bool {
	name, rest := path.Base(argv[0]), argv[1:]
	if i := slices.Index(rest, "-m"); i >= 0 && i+1 < len(rest) && strings.HasPrefix(name, "py") { // python -m pip
		name, rest = rest[i+1], rest[i+2:]
	}
	if name == "pacman" {
		return slices.ContainsFunc(rest, func(a string) bool { return strings.HasPrefix(a, "-S") || a == "--sync" })
	}

	words, known := installers[name]
	if !known { // pip3.12
		words, known = installers[strings.TrimRight(name, "0123456789.")]
	}
	return known && (words == nil || slices.ContainsFunc(rest, func(a string) bool { return slices.Contains(words, a) }))
}
