package prompt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"rouse/agent/redact"
	"rouse/internal/contract"
	"rouse/internal/nofollow"
)

func filled(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

// TestFolder checks OSA-39: a project is described with its kind, files, manifest, branch and
// advice.
func TestFolder(t *testing.T) {
	t.Parallel()
	got := described(nofollow.UntrustedDirs{}, filled(t, map[string]string{
		"go.mod": "module x\n", "main.go": "package main", "vendor/y/y.go": "y", "sub/deep/a.go": "a", ".git/HEAD": "ref: refs/heads/main\n", ".env": "PASSWORD=1", "server.pem": "key",
		"AGENTS.md": "Be brief.", "CLAUDE.md": "Be long.", "line\nbreak": "x",
	}))
	want := "It is a project of kind Go.\nIt is under git, on the branch \"main\".\nIts files when this run began:\nAGENTS.md\nCLAUDE.md\ngo.mod\n\"line\\nbreak\"\nmain.go\nsub/\nsub/deep/\nsub/deep/a.go\n\ngo.mod:\nmodule x\n\n\nWhat AGENTS.md says to agents:\nBe brief.\n"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}

	for name, content := range map[string]map[string]string{"empty": nil, "a desk": {"report.md": "x"}, "a folder of that name": {"go.mod/x": "x"}} {
		if got := described(nofollow.UntrustedDirs{}, filled(t, content)); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}

	if got := described(nofollow.UntrustedDirs{}, filepath.Join(t.TempDir(), "gone")); got != "" {
		t.Errorf("%s", got)
	}
}

// TestPlainFolder checks OSA-39: a folder that is not a project is described briefly, with at most
// 40 entries and 1,000 characters. An empty folder is not described.
func TestPlainFolder(t *testing.T) {
	t.Parallel()
	plain := func(content map[string]string) string {
		return ProjectFolder(nofollow.UntrustedDirs{}, filled(t, content), true, func(text string) string { return text }, whole, nil)
	}
	many, long := map[string]string{"sub/a.md": ""}, map[string]string{}
	for i := range 3000 {
		many[fmt.Sprintf("f%04d", i)] = ""
		long[fmt.Sprintf("%0100d", i)] = ""
	}

	if got := plain(nil); got != "" {
		t.Errorf("an empty folder: %q", got)
	}
	want := "It is under git, on the branch \"main\".\nIts files when this run began:\nreport.md\nsub/\nsub/a.md\n"
	if got := plain(map[string]string{"report.md": "x", "sub/a.md": "", ".env": "x", ".git/HEAD": "ref: refs/heads/main\n"}); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := plain(many); strings.Count(got, "\n") != 42 || !strings.HasSuffix(got, "\n…\n") {
		t.Errorf("%d lines: %s", strings.Count(got, "\n"), got)
	}
	if got := plain(long); len(got) > 1_050 || !strings.HasSuffix(got, "\n…\n") {
		t.Errorf("%d bytes", len(got))
	}
}

// TestFolderBounded checks OSA-39: long texts are cut, and the tree ends after 8,000 characters.
// Files that are not text and links that lead outside are omitted.
func TestFolderBounded(t *testing.T) {
	t.Parallel()
	content := map[string]string{"AGENTS.md": strings.Repeat("ä", 30_000) + "the end", "package.json": "\x00\xff"}
	for i := range 3000 {
		content[fmt.Sprintf("f%04d", i)] = ""
	}

	dir := filled(t, content)
	got := described(nofollow.UntrustedDirs{}, dir)
	files, rest, _ := strings.Cut(got, "\nWhat AGENTS.md says to agents:\n")
	if n := utf8.RuneCountInString(files); n > 8_200 || !strings.HasSuffix(files, "…\n") {
		t.Errorf("%d characters of files, and then %.100s", n, rest)
	}
	if len(rest) > maxAdviceBytes+100 || !strings.HasSuffix(rest, "the end\n") || !strings.Contains(rest, "bytes …]") || !utf8.ValidString(got) {
		t.Errorf("%d bytes of advice", len(rest))
	}

	outside := filled(t, map[string]string{"secret.md": "SECRET"})
	dir = filled(t, map[string]string{"go.mod": "module x"})
	if err := os.Symlink(filepath.Join(outside, "secret.md"), filepath.Join(dir, "AGENTS.md")); err != nil {
		t.Skip("symbolic links cannot be made here")
	}
	if got := described(nofollow.UntrustedDirs{}, dir); strings.Contains(got, "SECRET") || !strings.Contains(got, "kind Go") {
		t.Errorf("%s", got)
	}
}

// described returns the description of a folder without secrets.
func described(b nofollow.UntrustedDirs, dir string) string {
	return ProjectFolder(b, dir, false, func(text string) string { return text }, whole, nil)
}

// TestFolderCutsAreRedacted checks that a secret across a cut is redacted as a whole.
func TestFolderCutsAreRedacted(t *testing.T) {
	t.Parallel()
	const secret = "correct-horse-battery-staple"
	redact := redact.New([]string{secret}).Replace
	for before := maxAdviceBytes/2 - len(secret); before <= maxAdviceBytes/2; before++ {
		// Both secrets are equally far from their end of the file, so that they lie across both
		// cuts.
		long := strings.Repeat("x", before) + secret + strings.Repeat("y", maxAdviceBytes) + secret + strings.Repeat("z", before)
		got := ProjectFolder(nofollow.UntrustedDirs{}, filled(t, map[string]string{"AGENTS.md": long}), false, redact, whole, nil)
		for n := range len(secret) - 3 {
			if part := secret[n : n+4]; strings.Contains(got, part) {
				t.Fatalf("with %d bytes before it %q is told", before, part)
			}
		}
	}
}

// whole allows each part of a prompt its full length, as in a wide context.
func whole(most int) int { return most }

// TestFolderContract checks OSA-39.
func TestFolderContract(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSA-39")
	manifest, advice := row.Quote("go.mod"), row.Between("the first of ", ", of which")
	for i, name := range advice {
		files := map[string]string{manifest: "module x\n", "main.go": "package main", row.Quote("vendor") + "/y.go": "y", row.Quote(".git") + "/HEAD": "ref: refs/heads/main\n"}
		for _, later := range advice[i:] {
			files[later] = "From " + later
		}
		got := described(nofollow.UntrustedDirs{}, filled(t, files))
		for _, part := range []string{"It is a project of kind Go.", `It is under git, on the branch "main".`, "\nmain.go\n", manifest + ":\nmodule x\n", "What " + name + " says to agents:\nFrom " + name} {
			if !strings.Contains(got, part) {
				t.Errorf("%q is not in\n%s", part, got)
			}
		}
		if strings.Count(got, " says to agents:") != 1 || strings.Contains(got, "vendor") || strings.Contains(got, "HEAD") {
			t.Errorf("with %s:\n%s", name, got)
		}
	}

	many := map[string]string{manifest: "module x\n"}
	for i := range 300 {
		many[fmt.Sprintf("%03d-%s", i, strings.Repeat("n", 100))] = ""
	}
	_, tree, _ := strings.Cut(described(nofollow.UntrustedDirs{}, filled(t, many)), "Its files when this run began:\n")
	tree, _, _ = strings.Cut(tree, "\n\n"+manifest+":")
	if n, most := len(tree), row.Number("8,000"); n > most+100 || n < most-200 {
		t.Errorf("the tree has %d characters", n)
	}
}
