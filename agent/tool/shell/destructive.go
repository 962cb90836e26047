package shell

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// destructive describes the damage a command line would do, or returns "". It only catches
// mistakes: the sandbox is the security boundary. depth limits scripts within scripts.
func destructive(tree *syntax.File, depth int) string {
	g := destructiveVisitor{depth: depth, inside: map[string][]int{}}
	syntax.Walk(tree, g.visit)
	return g.why
}

// destructiveVisitor visits each node of a command line once. It is not recursive, because a line
// may be nested as deep as it is long.
type destructiveVisitor struct {
	depth      int
	why        string
	path       []syntax.Node    // from the root to the current node
	inside     map[string][]int // functions on the path, each with the value of concurrent at its declarations
	concurrent int              // number of pipes and background jobs on the path
}

// visit is called with each node, and with nil after its children.
func (g *destructiveVisitor) visit(n syntax.Node) bool {
	if n == nil {
		last := len(g.path) - 1
		g.step(g.path[last], -1)
		g.path = g.path[:last]
		return true
	}

	switch n := n.(type) {
	case *syntax.CallExpr:
		argv := staticWords(n.Args)
		// A function that calls itself in a pipe or in the background doubles with each call.
		if begun := g.inside[program(argv)]; len(begun) > 0 && g.concurrent > begun[0] {
			g.why = "is a fork bomb: " + argv[0] + " starts itself again and again"
		}
		for _, started := range starts(argv) {
			g.why = cmp.Or(g.why, destructiveProgram(path.Base(started[0]), started[1:]))
		}
	case *syntax.Redirect:
		if n.Word != nil && isWrite(n.Op) && isDevice(staticWord(n.Word)) {
			g.why = "writes to the device " + staticWord(n.Word)
		}
	}
	for _, inner := range nestedIn(n, g.depth) {
		g.why = cmp.Or(g.why, destructive(inner, g.depth-1))
	}
	if g.why != "" {
		return false
	}

	g.path = append(g.path, n)
	g.step(n, 1)
	return true
}

// step updates the counts when the walk enters a node (1) or leaves it (-1).
func (g *destructiveVisitor) step(n syntax.Node, by int) {
	switch n := n.(type) {
	case *syntax.Stmt:
		if n.Background {
			g.concurrent += by
		}
	case *syntax.BinaryCmd:
		if n.Op == syntax.Pipe || n.Op == syntax.PipeAll {
			g.concurrent += by
		}
	case *syntax.FuncDecl:
		if n.Name == nil {
			return
		}
		if begun := g.inside[n.Name.Value]; by > 0 {
			g.inside[n.Name.Value] = append(begun, g.concurrent)
		} else {
			g.inside[n.Name.Value] = begun[:len(begun)-1]
		}
	}
}

func program(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	return argv[0]
}

// staticWord returns the static text of a word. $HOME becomes /~, which isEverything treats as a
// home.
func staticWord(w *syntax.Word) string { return unquoted(knownParts(w.Parts)) }

func knownParts(parts []syntax.WordPart) (out []syntax.WordPart) {
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.DblQuoted:
			out = append(out, &syntax.DblQuoted{Parts: knownParts(p.Parts)})
		case *syntax.ParamExp:
			if p.Param != nil && p.Param.Value == "HOME" {
				out = append(out, &syntax.Lit{Value: "/~"})
			}
		default:
			out = append(out, p)
		}
	}
	return out
}

func staticWords(words []*syntax.Word) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = staticWord(w)
	}
	return out
}

func destructiveProgram(name string, args []string) string {
	switch {
	case name == "rm" && slices.ContainsFunc(args, isRecursive) && slices.ContainsFunc(args, isEverything):
		return "removes everything"
	case name == "mkfs" || strings.HasPrefix(name, "mkfs."):
		return "makes a file system, over what is there"
	case name == "dd":
		for _, a := range args {
			if to, ok := strings.CutPrefix(a, "of="); ok && isDevice(to) {
				return "writes to the device " + to
			}
		}
	}
	return ""
}

func isRecursive(option string) bool {
	return option == "--recursive" || strings.HasPrefix(option, "-") && !strings.HasPrefix(option, "--") && strings.ContainsAny(option, "rR")
}

// isEverything reports whether a path is the root, a system folder or a home.
func isEverything(arg string) bool {
	if arg == "" || strings.HasPrefix(arg, "-") {
		return false
	}

	folder := strings.TrimSuffix(arg, "*")
	if strings.Trim(folder, "~/") == "" && folder != "" {
		return true
	}
	return slices.Contains([]string{"/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/opt", "/root", "/sbin", "/sys", "/usr", "/var", "/Users", "/System"}, path.Clean(folder))
}

// isDevice reports whether a path is a device on which data can be lost.
func isDevice(p string) bool {
	p = path.Clean(p)
	if !strings.HasPrefix(p, "/dev/") {
		return false
	}
	return !slices.Contains([]string{"null", "zero", "full", "stdin", "stdout", "stderr", "tty"}, p[5:]) && !strings.HasPrefix(p, "/dev/fd/") && !strings.HasPrefix(p, "/dev/shm/") && !strings.HasPrefix(p, "/dev/tcp/") && !strings.HasPrefix(p, "/dev/udp/")
}

func isWrite(op syntax.RedirOperator) bool {
	switch op {
	case syntax.RdrOut, syntax.AppOut, syntax.RdrInOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll:
		return true
	}
	return false
}

// installers maps package managers to the words by which they install software. Nil means that
// every call installs software.
var installers = map[string][]string{
	"apt": {"install"}, "apt-get": {"install"}, "dnf": {"install"}, "yum": {"install"}, "zypper": {"install", "in"},
	"apk": {"add"}, "brew": {"install"}, "port": {"install"}, "snap": {"install"}, "flatpak": {"install"}, "choco": {"install"}, "winget": {"install"},
	"pip": {"install"}, "pip3": {"install"}, "pipx": {"install", "run"}, "uv": {"add", "install", "sync"}, "uvx": nil, "poetry": {"add", "install"}, "conda": {"install"}, "mamba": {"install"},
	"npm": {"install", "i", "in", "add", "ci", "clean-install", "install-test", "it", "exec", "x", "init", "create"}, "npx": nil, "pnpm": {"install", "i", "add", "dlx"}, "yarn": {"install", "add", "dlx"}, "bun": {"install", "i", "add"}, "bunx": nil,
	"gem": {"install"}, "bundle": {"install"}, "cargo": {"install", "add"}, "go": {"install", "get"}, "composer": {"install", "require"}, "luarocks": {"install"}, "cpan": nil, "cpanm": nil,
}

// installsSoftware reports whether a command line plainly installs software. It also finds
// installers behind wrappers (env, xargs, find -exec) and in scripts (bash -c '…'). Other cases are
// left to the sandbox and the grants.
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

// isInstall reports whether a command without wrappers installs software.
func isInstall(argv []string) bool {
	name, rest := path.Base(argv[0]), argv[1:]
	if i := slices.Index(rest, "-m"); i >= 0 && i+1 < len(rest) && strings.HasPrefix(name, "py") { // python -m pip
		name, rest = rest[i+1], rest[i+2:]
	}
	if name == "pacman" {
		return slices.ContainsFunc(rest, func(a string) bool { return strings.HasPrefix(a, "-S") || a == "--sync" })
	}

	words, known := installers[name]
	if !known { // a name with a version, such as pip3.12
		words, known = installers[strings.TrimRight(name, "0123456789.")]
	}
	return known && (words == nil || slices.ContainsFunc(rest, func(a string) bool { return slices.Contains(words, a) }))
}
