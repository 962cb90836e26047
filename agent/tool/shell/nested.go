package shell

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxNested limits the depth of scripts within scripts (bash -c '…') that are examined.
const maxNested = 4

// wrapper describes the words between a wrapper and the program it starts.
type wrapper struct {
	values  []string // options whose value is the next word
	operand bool     // a file or folder precedes the program
}

// wrappers are programs that start the program named in their arguments.
var wrappers = map[string]wrapper{
	"sudo":        {values: strings.Fields("-u --user -g --group -h --host -p --prompt -C -r -t -T -U -D --chdir -R --chroot")},
	"doas":        {values: strings.Fields("-u -C")},
	"pkexec":      {values: strings.Fields("--user")},
	"env":         {values: strings.Fields("-u --unset -C --chdir")},
	"nice":        {values: strings.Fields("-n --adjustment")},
	"ionice":      {values: strings.Fields("-c --class -n --classdata")},
	"timeout":     {values: strings.Fields("-k --kill-after -s --signal")},
	"time":        {values: strings.Fields("-f --format -o --output")},
	"stdbuf":      {values: strings.Fields("-i --input -o --output -e --error")},
	"xargs":       {values: strings.Fields("-I -n -P -L -d -E -s -a --max-args --max-procs --max-lines --max-chars --delimiter --arg-file --eof")},
	"parallel":    {values: strings.Fields("-j --jobs -I -n -N -a --arg-file")},
	"watch":       {values: strings.Fields("-n --interval")},
	"flock":       {values: strings.Fields("-w --timeout -E --conflict-exit-code"), operand: true},
	"chroot":      {operand: true},
	"exec":        {values: strings.Fields("-a")},
	"systemd-run": {values: strings.Fields("-p --property -u --unit -E --setenv --description")},
	"strace":      {values: strings.Fields("-e -o -p -s")},
	"nohup":       {}, "command": {}, "builtin": {}, "setsid": {}, "unshare": {}, "fakeroot": {}, "busybox": {}, "toybox": {},
}

// lengthOfTime requires a digit, because sh and dd are programs.
var lengthOfTime = regexp.MustCompile(`^[0-9.]+[smhd]?$`)

// isWrapperOption reports whether an argument of a wrapper precedes the program: an option, an
// assignment (env A=b), a duration (timeout 10s) or an unknown word.
func isWrapperOption(a string) bool {
	return a == "" || strings.HasPrefix(a, "-") || strings.Contains(a, "=") && !strings.ContainsAny(a, " \t\n") || lengthOfTime.MatchString(a)
}

// wrapperWords returns the number of words before the program of a command line, that is, wrappers
// with their arguments.
func wrapperWords(argv []string) (n int) {
	for n < len(argv) {
		w, ok := wrappers[path.Base(argv[n])]
		if !ok {
			break
		}
		options := func() {
			for n < len(argv) && isWrapperOption(argv[n]) {
				if slices.Contains(w.values, argv[n]) {
					n++
				}
				n++
			}
		}

		n++
		options()
		if w.operand {
			n++
			options() // flock FILE -c 'script'
		}
	}

	return min(n, len(argv))
}

// starts returns the command lines that a command line starts: itself without its wrappers, and
// those in the arguments of find.
func starts(argv []string) (out [][]string) {
	argv = argv[wrapperWords(argv):]
	if len(argv) == 0 {
		return nil
	}

	out = append(out, argv)
	if path.Base(argv[0]) != "find" {
		return out
	}

	for i, a := range argv {
		if slices.Contains([]string{"-exec", "-execdir", "-ok", "-okdir"}, a) {
			out = append(out, starts(argv[i+1:])...)
		}
	}
	return out
}

var (
	shellNames = []string{"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "hush"}
	// scriptTakers lists programs other than shells that run an argument as a script.
	scriptTakers = []string{"eval", "trap", "su", "runuser", "sg", "script"}
)

func isShell(program string) bool { return slices.Contains(shellNames, path.Base(program)) }

// scriptsOf returns the scripts that a program without wrappers passes to a shell. The result may
// contain words that are not scripts, which is harmless.
func scriptsOf(argv []string) []string {
	switch name := path.Base(argv[0]); {
	case name == "eval":
		return []string{strings.Join(argv[1:], " ")}
	case isShell(name) || slices.Contains(scriptTakers, name):
		return argv[1:]
	case strings.ContainsAny(argv[0], " \t\n"): // env -S 'a b', watch 'a b', flock FILE -c 'a b'
		return argv[:1]
	}
	return nil
}

// nestedIn parses the scripts that a node passes to a shell. depth limits scripts within scripts.
func nestedIn(n syntax.Node, depth int) (out []*syntax.File) {
	if depth == 0 {
		return nil
	}
	scripts := scriptsFedTo(n)
	if call, ok := n.(*syntax.CallExpr); ok {
		for _, argv := range starts(staticWords(call.Args)) {
			scripts = append(scripts, scriptsOf(argv)...)
		}
	}
	for _, script := range scripts {
		if tree := parseScript(script); tree != nil {
			out = append(out, tree)
		}
	}
	return out
}

// scriptsFedTo returns the scripts that a shell reads from its standard input, if they are visible
// in the node: redirected text, or the words of echo and printf.
func scriptsFedTo(n syntax.Node) (out []string) {
	switch n := n.(type) {
	case *syntax.Stmt:
		if !runsShell(n) {
			return nil
		}
		for _, r := range n.Redirs {
			switch {
			case r.Hdoc != nil:
				out = append(out, staticWord(r.Hdoc))
			case r.Op == syntax.WordHdoc && r.Word != nil:
				out = append(out, staticWord(r.Word))
			}
		}
	case *syntax.BinaryCmd:
		call, ok := n.X.Cmd.(*syntax.CallExpr)
		if n.Op != syntax.Pipe && n.Op != syntax.PipeAll || !ok || !runsShell(n.Y) {
			return nil
		}
		if words := staticWords(call.Args); slices.Contains([]string{"echo", "printf"}, program(words)) {
			out = append(out, strings.Join(words[1:], " "))
		}
	}
	return out
}

// runsShell reports whether a statement, or the first statement of a pipe, calls a shell.
func runsShell(s *syntax.Stmt) bool {
	switch cmd := s.Cmd.(type) {
	case *syntax.CallExpr:
		return slices.ContainsFunc(starts(staticWords(cmd.Args)), func(argv []string) bool { return isShell(argv[0]) })
	case *syntax.BinaryCmd:
		return (cmd.Op == syntax.Pipe || cmd.Op == syntax.PipeAll) && runsShell(cmd.X)
	}
	return false
}

// parseScript parses a script within a script. It returns nil if the text is not a valid script.
func parseScript(text string) *syntax.File {
	tree, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		return nil
	}
	return tree
}
