package file

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestIgnoresAsGit compares random rules with git, on file names that rules treat specially.
func TestIgnoresAsGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}

	dir := t.TempDir()
	run := func(stdin string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), git, append([]string{"-C", dir, "-c", "core.excludesFile=/dev/null"}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, _ := cmd.Output() // git exits with 1 if no path is ignored
		return string(out)
	}
	run("", "init", "-q")

	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()

	patterns := strings.Split(`a,b,ab,*,?,**,[ab],[!a],[^a],a*,*b,\#a,\!a,a\ ,a ,{a},\*,[,a],A, a`, ",")
	names := strings.Split(`a,b,ab,#a,!a,a ,{a},*,ba,A, a,a],[`, ",")
	some := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	join := func(from []string) string {
		parts := make([]string, 1+some.IntN(3))
		for i := range parts {
			parts[i] = from[some.IntN(len(from))]
		}
		return strings.Join(parts, "/")
	}

	for range 150 {
		var lines []string
		for range 1 + some.IntN(3) {
			lines = append(lines, []string{"", "", "", "!", "/"}[some.IntN(5)]+join(patterns)+[]string{"", "", "/"}[some.IntN(3)])
		}
		if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		var files []string
		for range 20 {
			files = append(files, join(names))
		}

		rules := readIgnores(root, ".", nil)
		answers := strings.Split(run(strings.Join(files, "\x00")+"\x00", "check-ignore", "--no-index", "-z", "-v", "-n", "--stdin"), "\x00")
		for i, name := range files {
			// Each line has source, line, pattern and path. A negated rule includes the path again.
			pattern := answers[4*i+2]
			wanted := pattern != "" && !strings.HasPrefix(pattern, "!")
			if got := hidden(rules, name); got != wanted {
				t.Errorf("%q hide %q: %v, and git by %q: %v", lines, name, got, pattern, wanted)
			}
		}
	}
}

// hidden reports whether a walk omits a file because of its own name or a folder above it.
func hidden(rules *ignoreRules, name string) bool {
	parts := strings.Split(name, "/")
	for i := range parts {
		if rules.ignored(strings.Join(parts[:i+1], "/"), i < len(parts)-1) {
			return true
		}
	}
	return false
}
