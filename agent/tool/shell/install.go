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
	"npm": {"install", "i", "in", "add", "ci", "clean-install", "install-test", "it", "exec", "x", "init", "create"}, "npx": nil, "pnpm": {"install", "i", "add", "dlx"}, "yarn": {"install", "add", "dlx"}, "bun": {"install", "i", "add"}, "bunx": nil,
	"gem": {"install"}, "bundle": {"install"}, "cargo": {"install", "add"}, "go": {"install", "get"}, "composer": {"install", "require"}, "luarocks": {"install"}, "cpan": nil, "cpanm": nil,
}

// installsSoftware reports whether a command line installs software (OSL-18). It sees what is written
// plainly, also behind wrappers (env, xargs, find -exec) and in scripts that a shell is given (bash -c '…');
// what a file holds, a variable, or code of another language is up to the sandbox and the grants.
func installsSoftware(tree *syntax.File) bool { return installsWithin(tree, maxNested) }

func installsWithin(tree *syntax.File, depth int) (yes bool) {
	syntax.Walk(tree, func(n syntax.Node) bool {
		if yes {
			return false
		}

		scripts := scriptsFedTo(n)
		if call, ok := n.(*syntax.CallExpr); ok {
			for _, argv := range starts(staticWords(call.Args)) {
				yes = yes || isInstall(argv)
				scripts = append(scripts, scriptsOf(argv)...)
			}
		}

		for _, script := range scripts {
			if inner := parseScript(script); inner != nil && depth > 0 {
				yes = yes || installsWithin(inner, depth-1)
			}
		}
		return !yes
	})
	return yes
}

// isInstall reports whether a program, without wrappers, is an installer that installs something. An argument
// that happens to be called "go" is none.
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
