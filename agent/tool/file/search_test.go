package file_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/internal/contract"
)

func formatMatches(got map[string]any) string {
	var out []string
	for _, it := range got["matches"].([]any) {
		m := it.(map[string]any)
		if m["line"] == nil {
			out = append(out, m["path"].(string))
			continue
		}
		out = append(out, fmt.Sprintf("%v:%v:%v", m["path"], m["line"], m["text"]))
	}

	return strings.Join(out, "|")
}

// TestSearchDefault checks that a search returns at most 50 matches by default, and reports that
// there are more (OSA-34).
func TestSearchDefault(t *testing.T) {
	t.Parallel()
	_, call := setup(t, map[string]string{"few.txt": strings.Repeat("few\n", 50), "many.txt": strings.Repeat("many\n", 51)})
	for pattern, truncated := range map[string]bool{"few": false, "many": true} {
		e, got := call("file_search", map[string]any{"pattern": pattern})
		if n := strings.Count(formatMatches(got), ":"+pattern); !e.OK || n != 50 || got["truncated"] != truncated {
			t.Errorf("%s: %d matches, truncated: %v, %+v", pattern, n, got["truncated"], e)
		}
	}
}

// TestSearch checks that lines and names are found regardless of case. Ignored files are omitted,
// and files that could not be searched are reported (OSA-34, UNI-03).
func TestSearch(t *testing.T) {
	t.Parallel()
	dir, call := setup(t, map[string]string{
		"a.txt": "Needle one\nnothing\nhay NEEDLE\r\n", "sub/b.go": "// needle", "sub/c.md": "no", ".hidden": "needle", "node_modules/x.js": "needle", ".git/config": "needle",
		"bin": "needle\x00", "large": "needle" + strings.Repeat("x", 5<<20), "server.pem": "needle",
		".gitignore": "*.log\n!keep.log\n/build\nout/\n# note\n", "x.log": "needle", "keep.log": "needle", "build/x": "needle", "sub/build/x": "needle", "out/x": "needle", "sub/out": "needle",
		"rust/Cargo.toml": "", "rust/target/x": "needle", "target/x": "needle", "sub/.gitignore": "!x.log\n", "sub/x.log": "needle", "umlaut": "N\u00c4HE\n", "kelvin": "20 \u212a\n",
		"odd": "a\xffneedle\n",
	})

	e, got := call("file_search", map[string]any{"pattern": "nEEdle"})
	want := "a.txt:1:Needle one|a.txt:3:hay NEEDLE|keep.log:1:needle|odd:1:aÿneedle|sub/b.go:1:// needle|sub/build/x:1:needle|sub/out:1:needle|sub/x.log:1:needle|target/x:1:needle"
	if !e.OK || formatMatches(got) != want || got["total_matches"] != 9.0 || got["truncated"] != false {
		t.Errorf("%+v\n%s\nwant\n%s", e, formatMatches(got), want)
	}
	if sk := got["skipped"].(map[string]any); sk["binary"] != 1.0 || sk["larger_than_5_mib"] != 1.0 || sk["secret"] != 1.0 || fmt.Sprint(sk["some"]) != "[large server.pem]" {
		t.Errorf("%v", sk)
	}

	for name, c := range map[string]struct {
		args map[string]any
		want string
	}{
		"in a folder":       {map[string]any{"pattern": "needle", "path": "sub/build"}, "sub/build/x:1:needle"},
		"rules from above":  {map[string]any{"pattern": "needle", "path": "sub", "file_pattern": "*.log"}, "sub/x.log:1:needle"},
		"in a file":         {map[string]any{"pattern": "needle", "path": "a.txt"}, "a.txt:1:Needle one|a.txt:3:hay NEEDLE"},
		"absolute":          {map[string]any{"pattern": "needle", "path": filepath.Join(dir, "sub", "b.go")}, filepath.ToSlash(filepath.Join(dir, "sub", "b.go")) + ":1:// needle"},
		"some files":        {map[string]any{"pattern": "needle", "file_pattern": "*.GO"}, "sub/b.go:1:// needle"},
		"the first":         {map[string]any{"pattern": "needle", "max_results": 2}, "a.txt:1:Needle one|a.txt:3:hay NEEDLE"},
		"no expression":     {map[string]any{"pattern": "n.edle"}, ""},
		"names":             {map[string]any{"pattern": "B.G", "target": "files"}, "sub/b.go"},
		"names in capitals": {map[string]any{"pattern": "cargo.TOML", "target": "files"}, "rust/Cargo.toml"},
		"names by a glob":   {map[string]any{"pattern": "sub/**/x", "target": "files"}, "sub/build/x"},
		"beyond ASCII":      {map[string]any{"pattern": "n\u00e4he"}, "umlaut:1:N\u00c4HE"},
		"kin of a letter":   {map[string]any{"pattern": "20 k"}, "kelvin:1:20 \u212a"},
		"punctuation alone": {map[string]any{"pattern": "// "}, "sub/b.go:1:// needle"},
	} {
		if e, got := call("file_search", c.args); !e.OK || formatMatches(got) != c.want {
			t.Errorf("%s: %+v\n%s\nwant\n%s", name, e, formatMatches(got), c.want)
		}
	}

	// Both tools omit the same files and have limits.
	_, many := setup(t, map[string]string{"many": strings.Repeat("needle\n", 600), ".gitignore": "*.log\n", "x.log": "needle", "node_modules/x": "needle"})
	if e, got := many("file_search", map[string]any{"pattern": "needle", "max_results": 1000}); !e.OK || got["truncated"] != true || strings.Count(formatMatches(got), "many:") != 500 {
		t.Errorf("%d matches, truncated: %v, %+v", strings.Count(formatMatches(got), "many:"), got["truncated"], e.Kind)
	}
	if e, got := many("search", map[string]any{"pattern": "need+le"}); !e.OK || got["truncated"] != true || strings.Count(got["text"].(string), "many:") != 50 || strings.Contains(got["text"].(string), "x.log") || strings.Contains(got["text"].(string), "node_modules") {
		t.Errorf("by an expression: %v, %+v", got["text"], e.Kind)
	}

	for name, c := range map[string]struct {
		args map[string]any
		kind tool.Kind
	}{
		"empty": {map[string]any{"pattern": " "}, tool.KindInvalidArgs}, "lines": {map[string]any{"pattern": "a\nb"}, tool.KindInvalidArgs}, "glob": {map[string]any{"pattern": "a", "file_pattern": "[a"}, tool.KindInvalidArgs},
		"outside": {map[string]any{"pattern": "a", "path": "../x"}, tool.KindInvalidArgs}, "nowhere": {map[string]any{"pattern": "a", "path": "nowhere"}, tool.KindNotFound},
	} {
		if e, _ := call("file_search", c.args); e.Kind != c.kind {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// TestSearchExpression checks regular expressions, with at most 50 lines (YOA-04).
func TestSearchExpression(t *testing.T) {
	t.Parallel()
	_, call := setup(t, map[string]string{"a.go": "func One() {}\nfunc two() {}\n", "b.txt": "func three", "c.txt": strings.Repeat("many\n", 51)})
	for pattern, want := range map[string]string{
		`func \w+\(`: "a.go:1:func One() {}\na.go:2:func two() {}\n", `^FUNC o`: "a.go:1:func One() {}\n", `three$`: "b.txt:1:func three\n", `(one|three)`: "a.go:1:func One() {}\nb.txt:1:func three\n", `zzz`: "no matches\n",
	} {
		if e, got := call("search", map[string]any{"pattern": pattern}); !e.OK || got["text"] != want {
			t.Errorf("%s: %+v %v", pattern, e, got)
		}
	}

	if _, got := call("search", map[string]any{"pattern": "func O", "case_sensitive": true, "include": "*.go"}); got["text"] != "a.go:1:func One() {}\n" || got["matches"] != 1.0 {
		t.Errorf("%v", got)
	}
	if _, got := call("search", map[string]any{"pattern": "func", "include": "*.txt"}); got["text"] != "b.txt:1:func three\n" {
		t.Errorf("%v", got)
	}
	if e, got := call("search", map[string]any{"pattern": "^many$"}); !e.OK || got["matches"] != 51.0 || got["truncated"] != true || !strings.HasSuffix(got["text"].(string), "c.txt:50:many\n[50 of 51 matches]\n") {
		t.Errorf("%+v", e)
	}
	if e, _ := call("search", map[string]any{"pattern": "(a"}); e.Kind != tool.KindInvalidArgs || e.Field != "pattern" {
		t.Errorf("%+v", e)
	}
}

// TestSearchLikeOthers compares a search with a slow implementation, and with ripgrep if it is
// installed, for many patterns and files.
func TestSearchLikeOthers(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	words := []string{"alpha", "Beta", "KELVIN", "straße", "x", "", " ", "Zoë", "10%", "a.b", "sun", "SUN", "\u017fun", "\t", "ab\xffcd", "\r"}
	content := map[string]string{}
	for i := range 300 {
		var text strings.Builder
		for range r.IntN(30) {
			text.WriteString(words[r.IntN(len(words))])
			text.WriteString([]string{" ", "\n", "", "\r\n"}[r.IntN(4)])
		}
		content[fmt.Sprintf("d%d/e%d/%03d.txt", i%7, i%3, i)] = text.String()
	}

	dir, call := setup(t, content)
	rg, _ := exec.LookPath("rg")
	for _, pattern := range []string{"alpha", "ALPHA", "beta", "sun", "k", "stra(ss|ß)e", "^a", "x$", `\d+%`, "a.b", "zo[eë]", "[ak]l", "(alpha|beta) ?x", "x+", "b", `\bsun\b`, "l.*n"} {
		for _, sensitive := range []bool{false, true} {
			expression := pattern
			if !sensitive {
				expression = "(?i)" + pattern
			}

			re, names, total := regexp.MustCompile(expression), []string(nil), 0
			for name, text := range content {
				for line := range strings.Lines(text) {
					if line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"); re.MatchString(line) {
						names, total = append(names, name), total+1
					}
				}
			}

			e, got := call("search", map[string]any{"pattern": pattern, "case_sensitive": sensitive})
			if !e.OK || got["matches"] != float64(total) {
				t.Errorf("%q, case sensitive %v: %v lines, want %d", pattern, sensitive, got["matches"], total)
			}

			slices.Sort(names)
			if lines := strings.Split(strings.TrimSpace(got["text"].(string)), "\n"); total > 0 && !strings.HasPrefix(lines[0], names[0]+":") {
				t.Errorf("%q: the first is %s, want one of %s", pattern, lines[0], names[0])
			}
			if rg == "" || slices.Contains([]string{"x$", `\bsun\b`, "l.*n"}, pattern) {
				continue // ripgrep treats line ends, word ends and invalid bytes differently
			}

			args := []string{"--no-config", "--no-require-git", "--count", "--no-filename", "--crlf", "-a", pattern, dir}
			if !sensitive {
				args = append([]string{"-i"}, args...)
			}

			out, err := exec.Command(rg, args...).Output()
			if err != nil && len(out) > 0 {
				t.Fatal(err)
			}

			n := 0
			for _, line := range strings.Fields(string(out)) {
				var one int
				fmt.Sscan(line, &one)
				n += one
			}
			if n != total {
				t.Errorf("%q, case sensitive %v: ripgrep finds %d lines, want %d", pattern, sensitive, n, total)
			}
		}
	}
}

// TestSearchLikeRipgrep compares a search with ripgrep if it is installed, on many files and
// folders (YOA-04). They include hidden and ignored files, negated rules, invalid bytes, line ends,
// capitals and odd names. The programs differ in how a pattern treats a single invalid byte, or a
// \r within a line.
func TestSearchLikeRipgrep(t *testing.T) {
	t.Parallel()
	rg, err := exec.LookPath("rg")
	if err != nil {
		t.Skip("ripgrep is not installed")
	}

	dir, call := setup(t, map[string]string{
		"plain.txt": "needle\nno\nneedle", "crlf.txt": "one needle\r\nneedle\r\n\r\n", "cr.txt": "needle\rneedle\rx", "empty.txt": "", "blank.txt": "\n\n\n",
		"CAPS.TXT": "NEEDLE Needle nEEDLE\n", "umlaut.txt": "N\u00c4DEL n\u00e4del\n", "latin1.txt": "caf\xe9 needle\nneedle \xff\xfe\n", "cut.txt": "needle \xe2\x82\n",
		"bom.txt": "\ufeffneedle\n", "nul.bin": "needle\x00\nneedle\n", "long.txt": strings.Repeat("x", 100_000) + "needle\nneedle\n",
		".hidden.txt": "needle", ".hidden/a.txt": "needle", "a/.hid/b.txt": "needle", "a/b/c/d/e.txt": "needle\n",
		".gitignore": "*.log\n!keep.log\n/only-top\nbuilt/\n\\#odd\ndoc/*.tmp\n**/deep/*.x\n", "x.log": "needle", "keep.log": "needle\n", "only-top": "needle", "a/only-top": "needle\n", "built/x.txt": "needle",
		"a/built/x.txt": "needle", "#odd": "needle", "doc/a.tmp": "needle", "doc/sub/a.tmp": "needle\n", "q/deep/a.x": "needle", "q/deep/a.y": "needle\n",
		"a/.gitignore": "b/*\n!b/c\n*.md\n", "a/b/gone.txt": "needle", "a/read.md": "needle", "read.md": "needle\n", "sp ace.txt": "needle\n", "-dash.txt": "needle\n", "[a].txt": "needle\n", "uml\u00e4ut.txt": "needle\n",
	})

	for _, c := range []struct {
		pattern   string
		sensitive bool
	}{{"needle", false}, {"needle", true}, {"^needle$", true}, {"needle$", false}, {"n.*e", true}, {"n\u00e4del", false}, {"^$", true}, {`\bneedle\b`, true}, {`[^a-z\r]needle`, false}} {
		args := []string{"--no-config", "--no-require-git", "--no-ignore-global", "--no-ignore-parent", "--crlf", "--line-number", "--no-heading", "--with-filename", "--null", c.pattern, "."}
		if !c.sensitive {
			args = append([]string{"-i"}, args...)
		}

		cmd := exec.Command(rg, args...)
		cmd.Dir = dir
		out, _ := cmd.Output() // ripgrep exits with 1 if there is no match
		var want []string
		for line := range strings.Lines(string(out)) {
			if name, rest, ok := strings.Cut(line, "\x00"); ok {
				number, _, _ := strings.Cut(rest, ":")
				want = append(want, strings.TrimPrefix(name, "./")+":"+number)
			}
		}

		e, got := call("search", map[string]any{"pattern": c.pattern, "case_sensitive": c.sensitive})
		var have []string
		for line := range strings.Lines(got["text"].(string)) {
			if parts := strings.SplitN(line, ":", 3); len(parts) == 3 {
				have = append(have, parts[0]+":"+parts[1])
			}
		}

		slices.Sort(want)
		slices.Sort(have)
		if !e.OK || !slices.Equal(have, want) {
			t.Errorf("%q (case sensitive: %v) finds\n%q\nripgrep\n%q", c.pattern, c.sensitive, have, want)
		}
	}
}

// A search or a list that times out reports that there may be more (YOA-03, YOA-04).
func TestSearchEndsInTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("needle\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	roots, err := tool.NewRoots(dir, nil)
	if err != nil {
		t.Fatal(err)
	}

	tools, err := file.Tools(file.Options{Roots: roots, Allow: []string{"list_files", "search"}})
	if err != nil {
		t.Fatal(err)
	}

	r, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}

	late, cancel := context.WithCancel(t.Context())
	cancel()

	for name, args := range map[string]string{"file_search": `{"pattern":"needle"}`, "search": `{"pattern":"needle"}`, "list_files": `{}`} {
		e, err := r.Call(late, tool.Invocation{}, name, []byte(args))
		if err != nil || !e.OK || !strings.Contains(string(e.Result), `"truncated":true`) || len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "ended") {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

// Links, swapped folders and hard links are not searched, and do not lead out of the folder.
func TestSearchStays(t *testing.T) {
	t.Parallel()
	dir, call := setup(t, map[string]string{"in/a.txt": "needle", "work/b.txt": "needle"})
	b := newBench(t, filepath.Join(dir, "work"))
	b.grants = []tool.Grant{{Path: filepath.Join(dir, "in")}}

	for link, target := range map[string]string{"work/out": "..", "work/file": "../in/a.txt"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Skip("symbolic links cannot be made here")
		}
	}

	if err := os.Link(filepath.Join(dir, "in/a.txt"), filepath.Join(dir, "other")); err != nil {
		t.Skip("hard links cannot be made here")
	}

	inner := b.run(t)
	if _, got := inner("file_search", map[string]any{"pattern": "needle"}); formatMatches(got) != "b.txt:1:needle" {
		t.Errorf("%s", formatMatches(got))
	}

	_, got := inner("file_search", map[string]any{"pattern": "needle", "path": filepath.Join(dir, "in")})
	if sk, ok := got["skipped"].(map[string]any); formatMatches(got) != "" || !ok || sk["unreadable"] != 1.0 {
		t.Errorf("a hard link outside of the workdir: %v", got)
	}
	if _, got := call("list_files", map[string]any{"path": "."}); got["total"] != 3.0 {
		t.Errorf("%v", got)
	}
}

// TestListFiles checks that only files are listed, sorted, with the total number. The target folder
// of Cargo is omitted, but not another folder named target (YOA-03, UNI-02).
func TestListFiles(t *testing.T) {
	t.Parallel()
	content := map[string]string{"a/b/c/d.txt": "x", "a/b/c.txt": "x", "node_modules/x": "x", "line\nbreak": "x", "rust/Cargo.toml": "x", "rust/target/x": "x", "target/x": "x"}
	for i := range 250 {
		content[fmt.Sprintf("many/%03d.csv", i)] = "x"
	}

	_, call := setup(t, content)
	e, got := call("list_files", map[string]any{})
	if !e.OK || got["total"] != 254.0 || got["truncated"] != true || got["entry_count"] != 200.0 || !strings.HasPrefix(got["text"].(string), "a/b/c.txt\n\"line\\nbreak\"\nmany/000.csv\n") {
		t.Errorf("%+v", e)
	}
	if _, got := call("list_files", map[string]any{"pattern": "**/x"}); got["text"] != "target/x\n" {
		t.Errorf("%v", got)
	}
	if _, got := call("list_files", map[string]any{"pattern": "*.txt", "max_depth": 9}); got["text"] != "a/b/c.txt\na/b/c/d.txt\n" || got["truncated"] != false {
		t.Errorf("%v", got)
	}
	// Paths below another folder are usable as arguments, as in a listing of file_read.
	if _, got := call("list_files", map[string]any{"path": "a"}); got["text"] != "a/b/c.txt\na/b/c/d.txt\n" || !strings.Contains(fmt.Sprint(got["entries"]), "path:a/b/c/d.txt") {
		t.Errorf("%v", got)
	}
	if _, got := call("file_read", map[string]any{"path": "a"}); got["kind"] != "listing" || got["entry_count"] != 4.0 || !strings.Contains(fmt.Sprint(got["entries"]), "path:a/b/c.txt") {
		t.Errorf("%v", got)
	}
	if e, _ := call("list_files", map[string]any{"path": "nowhere"}); e.Kind != tool.KindNotFound {
		t.Errorf("%+v", e)
	}
}

// Names are compared in Unicode NFC, and returned as the file system has them.
func TestNamesOfMacs(t *testing.T) {
	t.Parallel()
	const composed, parts = "\u00dcbung.txt", "U\u0308bung.txt"
	_, call := setup(t, map[string]string{"sub/" + parts: "needle", "sub/a\u0308.log": "needle", "sub/.gitignore": "\u00e4.log\n"})
	for _, pattern := range []string{composed, "\u00fcb", "sub/\u00dc*", "?bung.txt"} {
		if e, got := call("file_search", map[string]any{"pattern": pattern, "target": "files"}); !e.OK || formatMatches(got) != "sub/"+parts {
			t.Errorf("%s: %+v %q", pattern, e, formatMatches(got))
		}
	}
	if e, got := call("file_search", map[string]any{"pattern": "needle"}); formatMatches(got) != "sub/"+parts+":1:needle" {
		t.Errorf("%+v %q", e, formatMatches(got))
	}
	if e, _ := call("file_read", map[string]any{"path": composed}); e.Kind != tool.KindNotFound || !strings.Contains(e.Message, "sub/"+parts) {
		t.Errorf("%+v", e)
	}
}

// TestReadFile checks the line numbers and the header of the alias (YOA-01, UNI-01).
func TestReadFile(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "YOA-01")
	q := row.Quote
	_, call := setup(t, map[string]string{"a.txt": "one\ntwo\nthree\n", "long": strings.Repeat("x\n", 1200), "empty": ""})
	for name, c := range map[string]struct {
		args map[string]any
		want string
	}{
		"all":      {map[string]any{"path": "a.txt"}, q("[3 lines]") + "\n   1 | one\n" + q("   2 | two") + "\n   3 | three\n"},
		"a page":   {map[string]any{q("path"): "a.txt", q("offset"): 2, q("limit"): 1}, q("[Lines 2-2 of 3; go on with offset 3]") + "\n   2 | two\n"},
		"the last": {map[string]any{"path": "a.txt", "tail_lines": 1}, "[Lines 3-3 of 3]\n   3 | three\n"},
		"behind":   {map[string]any{"path": "a.txt", "offset": 9}, "[No line 9: the file has 3]\n"},
		"empty":    {map[string]any{"path": "empty"}, "[0 lines]\n"},
	} {
		if e, got := call(q("read_file"), c.args); !e.OK || got["text"] != c.want || got["kind"] != "file" {
			t.Errorf("%s: %+v %q", name, e, got["text"])
		}
	}

	if _, got := call("read_file", map[string]any{"path": "long"}); !strings.HasPrefix(got["text"].(string), fmt.Sprintf("[Lines 1-%d of 1200; go on with offset %d]\n", row.Number("500"), row.Number("500")+1)) || got["truncated"] != true || got["next_start_line"] != 501.0 {
		t.Errorf("%.80s", got["text"])
	}
	if e, got := call("read_file", map[string]any{"path": "."}); !e.OK || got["kind"] != "listing" {
		t.Errorf("%+v", e)
	}
}

// TestAliases checks that a model sees only the aliases in its agent's list (YOA-05, UNI-05,
// UNI-06).
func TestAliases(t *testing.T) {
	t.Parallel()
	roots, err := tool.NewRoots(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}

	const first = "file_read file_write file_edit file_move file_copy file_delete dir_create file_search file_operation_history file_undo share_artifact"
	for allow, more := range map[string]string{"": "", "*": "", "file_*": "", "read_file": " read_file", "*_file": " read_file write_file edit_file", "search,list_files": " list_files search", "[": ""} {
		tools, err := file.Tools(file.Options{Roots: roots, Allow: strings.Split(allow, ",")})
		if err != nil {
			t.Fatal(err)
		}

		var names []string
		for _, t := range tools {
			names = append(names, t.Name())
		}
		if got := strings.Join(names, " "); got != first+more {
			t.Errorf("%q shows %s", allow, got)
		}
	}
}
