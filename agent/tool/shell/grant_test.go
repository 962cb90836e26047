package shell_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"mvdan.cc/sh/v3/syntax"
	"pgregory.net/rapid"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
)

// TestGrants: UNI-06, a grant covers exactly the argv in its pattern.
func TestGrants(t *testing.T) {
	for _, c := range []struct {
		grant, argv string // words
		want        bool
	}{
		{"pandoc *", "pandoc", true},
		{"pandoc *", "pandoc a.md -o b.html", true},
		{"pandoc *", "./pandoc a.md", false},
		{"pandoc *", "/usr/bin/pandoc a.md", false},
		{"pandoc *", "PANDOC a.md", false},
		{"./pandoc *", "pandoc a.md", false},
		{"./pandoc *", "./pandoc a.md", true},
		{"ls", "ls", true},
		{"ls", "ls -l", false},
		{"ls -l", "ls", false},
		{"ls -l", "ls -l", true},
		{"cat *.md", "cat a.md", true},
		{"cat *.md", "cat a.md b.md", false},
		{"cat *.md", "cat sub/a.md", false},
		{"cat *.md", "cat ../a.md", false},
		{"cat *.md", "cat -A.md", false},
		{"cat ?A.md", "cat -A.md", false},
		{"cat [!a]A.md", "cat -A.md", false},
		{"cat -*", "cat -A", true},
		{"cat notes/*.md", "cat notes/a.md", true},
		{"cat notes/*.md", "cat notes/../../a.md", false},
		{"cat * out", "cat in out", true},
		{"cat * out", "cat a b out", false},
		{"git log *", "git log", true},
		{"git log *", "git -c x=y log", false},
		{"git log *", "git logs", false},
		{"x [ab]", "x b", true},
		{"x [ab]", "x [ab]", false},
		{`x \*`, `x *`, true},
		{`x \*`, `x a`, false},
		{"curl http://h/pub/*", "curl http://h/pub/a.txt?x=..%2f", true},
		{"curl http://h/pub/*", "curl http://h/pub/..", false},
		{"curl http://h/pub/*", "curl http://h/pub/%2e%2E", false},
		{"curl http://h/pub/*", "curl http://h/pub/..%2Fsecret", false},
		{"curl http://h/pub/*", "curl http://h/pub/%252e%252e%252fsecret", false},
		{"curl http://h/pub/*", `curl http://h/pub/..\secret`, false},
		{"curl http://h/pub/*", "curl http://h/pub/..;x", false},
		{"curl http://h/pub/*", "curl http://h/pub/{..,a}", false},
		{"curl http://h/pub/*", "curl http://h/pub/[.-.].", false},
		{"curl http://h/a%2Fb", "curl http://h/a%2Fb", true},
	} {
		g := shell.Grant{Argv: strings.Fields(c.grant)}
		if got := g.Covers(strings.Fields(c.argv)); got != c.want {
			t.Errorf("%q covers %q: %v", c.grant, c.argv, got)
		}
	}
	for _, bad := range [][]string{nil, {""}, {"*"}, {"py*", "x"}, {"cat", "[a"}} {
		g := shell.Grant{Argv: bad}
		if g.Check() == nil || g.Covers(bad) {
			t.Errorf("%q is a grant", bad)
		}
	}
}

// matched reports whether an argument matches an element. It compares by hand, without path.Match.
func matched(element, argument string) bool {
	switch {
	case element == "":
		return argument == ""
	case element[0] == '*':
		return matched(element[1:], argument) || argument != "" && argument[0] != '/' && matched(element, argument[1:])
	case argument == "":
		return false
	case element[0] == '?':
		return argument[0] != '/' && matched(element[1:], argument[1:])
	}
	return element[0] == argument[0] && matched(element[1:], argument[1:])
}

// FuzzGrants checks that a pattern never covers an argv that a second implementation of the rules
// rejects.
func FuzzGrants(f *testing.F) {
	f.Add("tool\x00a*\x00*", "tool\x00ab\x00-x")
	f.Add("tool\x00*\x00b", "tool\x00-x\x00b")
	f.Fuzz(func(t *testing.T, grant, command string) {
		if strings.ContainsAny(grant, `[\`) || strings.ContainsFunc(grant+command, func(r rune) bool { return r > 0x7e }) {
			t.Skip("the second reading knows no classes")
		}
		if strings.Contains(command, "://") {
			t.Skip("nor URLs")
		}

		pattern, argv := strings.Split(grant, "\x00"), strings.Split(command, "\x00")
		g := shell.Grant{Argv: pattern}
		want := pattern[0] != "" && !strings.ContainsAny(pattern[0], "*?") && argv[0] == pattern[0]
		if n := len(pattern); n > 1 && pattern[n-1] == "*" {
			pattern = pattern[:n-1]
			want = want && len(argv) >= len(pattern)
		} else {
			want = want && len(argv) == len(pattern)
		}

		for i := 1; want && i < len(pattern); i++ {
			option := strings.HasPrefix(argv[i], "-") && strings.ContainsAny(pattern[i][:min(1, len(pattern[i]))], "*?")
			want = matched(pattern[i], argv[i]) && !option
		}
		if got := g.Covers(argv); got != want {
			t.Errorf("%q covers %q: %v, by the rules %v", g.Argv, argv, got, want)
		}
	})
}

// TestWords checks that the words of a plain line are those that bash would pass, and that a line
// that needs bash is not plain.
func TestWords(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.options.Grants = []shell.Grant{{Argv: []string{"prog", "*"}}}
	for _, plain := range []string{`prog`, `prog a 'b c' "d e"`, `prog a\ b`, `prog "a\"b" 'it'\''s'`, `prog {} a{b`, `prog 'a*' "b?" \*`, `prog a # said`, `prog a=b`, `prog -- -x`, "prog a \\\n b", `prog ''`, `prog "a;b" 'c|d'`,
		`prog "__OSL_SECRET_[x]__"`} {
		if n := b.need(plain); n.MissingGrant != "" || n.Refused != nil {
			t.Errorf("%s: %+v", plain, n)
		}
	}

	for _, more := range []string{`prog a | prog b`, `prog a; prog b`, "prog a\nprog b", `prog $HOME`, `prog "$HOME"`, `prog $(prog)`, "prog `prog`", `prog *`, `prog ~`, `prog x=~/a`, `prog {a,b}`, `prog {1..3}`,
		`prog > out`, `prog < in`, `prog &`, `! prog`, `A=b prog`, `prog <<< x`, "prog <<E\nx\nE", `(prog)`, `{ prog; }`, `prog $'a'`, `prog $"a"`, `prog <(prog)`, `time prog`, `if prog; then prog; fi`, `f() { prog; }`, `prog && prog`,
		`prog $((1))`, `prog [a]`, `prog a?`, `[[ a ]]`, `prog @(a)`} {
		if n := b.need(more); n.MissingGrant == "" || n.Refused != nil {
			t.Errorf("%s: %+v", more, n)
		}
	}

	for _, bad := range []string{``, ` `, `# nothing`, `prog 'a`, `prog )`, "prog \x00", strings.Repeat("x", 20_000)} {
		if n := b.need(bad); n.Refused == nil || n.Refused.Kind != tool.KindInvalidArgs {
			t.Errorf("%q: %+v", bad, n)
		}
	}
}

// TestWordsAsBash compares the words of plain lines of quotes and backslashes with those of bash.
// The lines cannot run programs: they contain no expansions, no command separators, and no program
// names that exist.
func TestWordsAsBash(t *testing.T) {
	t.Parallel()
	inOrder(t)
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}

	b := newBench(t)
	empty := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		rest := rapid.StringOfN(rapid.SampledFrom([]rune("ab '\"\\{},.=-#:~*?[]!^%@+/\tü")), 0, 14, -1).Draw(rt, "line")
		line := "prog " + rest
		n := b.need(line)
		if n.Refused != nil {
			return
		}

		var a struct{ Argv []string }
		if err := json.Unmarshal([]byte(n.Action), &a); err != nil {
			rt.Fatal(err)
		}
		if a.Argv == nil {
			return
		}

		cmd := exec.CommandContext(t.Context(), bash, "--norc", "--noprofile", "-c", "prog() { printf '%s\\0' prog \"$@\"; }\n"+line)
		cmd.Dir, cmd.Env = empty, []string{"PATH=" + empty, "HOME=/home/of/nobody", "LC_ALL=C.UTF-8"}
		out, err := cmd.Output()
		if err != nil {
			rt.Fatalf("%q: %v", line, err)
		}
		if words := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(words, a.Argv) {
			rt.Fatalf("%q is %q for bash, and %q here", line, words, a.Argv)
		}
	})
}

// FuzzNeeds checks that the need shows the whole command line, and that a single program parses the
// same when it is written as shown.
func FuzzNeeds(f *testing.F) {
	for _, line := range []string{`prog 'a b' "c" d\ e`, "a | b", "rm -rf /", ":(){ :|:& };:", "x $'\\x1b' \x1b\u202e", "<<A\nb\nA", "a\\\nb", "prog __OSL_SECRET[x]__", "__OSL_S''ECRET[0]__"} {
		f.Add(line)
	}

	b := newBench(f)
	run, _ := b.registry().Lookup("shell_run")
	need := func(t *testing.T, line string) (n tool.Access, argv []string) {
		args, err := json.Marshal(map[string]string{"command": line})
		if err != nil {
			t.Fatal(err)
		}
		if n, err = run.Access(t.Context(), b.in, args); err != nil {
			t.Fatal(err)
		}

		var a struct{ Argv []string }
		if n.Refused == nil {
			err = json.Unmarshal([]byte(n.Action), &a)
		}
		if err != nil {
			t.Fatal(err)
		}

		return n, a.Argv
	}

	f.Fuzz(func(t *testing.T, line string) {
		n, argv := need(t, strings.ToValidUTF8(line, "?"))
		if n.Refused != nil {
			return
		}

		if n.MissingGrant == "" || strings.ContainsFunc(n.Shown, func(r rune) bool {
			return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
		}) {
			t.Errorf("%q: %+v", line, n)
		}

		if argv == nil {
			return
		}

		var words []string
		for _, a := range argv {
			words = append(words, "'"+strings.ReplaceAll(a, "'", `'\''`)+"'")
		}
		if _, again := need(t, strings.Join(words, " ")); !slices.Equal(again, argv) {
			t.Errorf("%q is %q, and that is %q", line, argv, again)
		}
	})
}

// TestExecutedAsMatched checks that the program gets the argv that was compared with the grants.
func TestExecutedAsMatched(t *testing.T) {
	t.Parallel()
	inOrder(t)
	b := newBench(t).confined()
	b.options.Grants = []shell.Grant{{Argv: []string{b.me, "as", "argv", "*"}}}
	nasty := rapid.Custom(func(t *rapid.T) string { // 200 words of characters that are special in a shell
		var words []string
		for range 200 {
			word := rapid.StringOfN(rapid.SampledFrom([]rune("ab $`'\"\\|&;<>(){}[]*?~#!=-%\n\tü\x1b\u202e")), 0, 12, -1).Draw(t, "word")
			quoted, err := syntax.Quote(word, syntax.LangMirBSDKorn)
			if err != nil || strings.HasPrefix(quoted, "$") { // that is an expansion, which needs an approval
				quoted = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
			}
			words = append(words, quoted)
		}

		return strings.Join(words, " ")
	})
	for _, line := range []string{nasty.Example(1), nasty.Example(2), `a 'b c' "d;e" f\ g`, `'$(touch canary)' '> canary' "a'b" '' '*'`, `-- --help 'ü
two lines'`, `'__OSL_SECRET[x]'`} {
		command := "'" + b.me + "' as argv " + line
		n := b.need(command)
		if n.MissingGrant != "" || n.Refused != nil {
			t.Fatalf("%s: %+v", line, n)
		}

		var a struct{ Argv []string }
		if err := json.Unmarshal([]byte(n.Action), &a); err != nil {
			t.Fatal(err)
		}

		_, got := b.run(command)
		var given []string
		if err := json.Unmarshal([]byte(got["stdout"].(string)), &given); err != nil || !slices.Equal(given, a.Argv[3:]) {
			t.Errorf("%s: given %q, matched %q (%v)", line, given, a.Argv[3:], err)
		}
	}

	if _, err := os.Stat(filepath.Join(b.dir, "canary")); err == nil {
		t.Error("a shell was in between")
	}
}

// TestGrantAsWritten checks that a command may use the paths of the configured grant. It runs the
// program that the grant names.
func TestGrantAsWritten(t *testing.T) {
	t.Parallel()
	g := shell.Grant{Argv: []string{"/conf/backup.sh", "*"}, Written: []string{"./backup.sh", "*"}}
	for _, argv := range [][]string{{"./backup.sh", "a", "-b"}, {"/conf/backup.sh"}} {
		if !g.Covers(argv) {
			t.Errorf("%q is not covered", argv)
		}
	}
	if g.Covers([]string{"backup.sh"}) || g.Covers([]string{"./other.sh"}) || (shell.Grant{Argv: []string{"x"}}).Covers(nil) {
		t.Error("another program is covered")
	}
}
