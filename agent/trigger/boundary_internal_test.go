package trigger

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/permit"
	"rouse/agent/plan"
	"rouse/agent/prompt"
	"rouse/internal/ledger"
	"rouse/internal/nofollow"
)

// TestHostFollowsNoLinkOfAgents checks that the files that start a run, its prompt and its workdir
// are not reached through a link that an agent could have made.
func TestHostFollowsNoLinkOfAgents(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	err = errors.Join(os.MkdirAll(at("work/in"), 0o700), os.MkdirAll(at("out"), 0o700), os.WriteFile(at("work/in/a.csv"), []byte("x"), 0o600),
		os.WriteFile(at("out/a.csv"), []byte("x"), 0o600), os.WriteFile(at("out/go.mod"), []byte("module secret"), 0o600), os.Symlink(at("out"), at("work/link")), os.Symlink(at("work"), at("owners")))
	if err != nil {
		t.Fatal(err)
	}

	b := nofollow.NewBoundary(at("work"))
	for path, behind := range map[string]bool{at("work/in/a.csv"): false, at("owners/in/a.csv"): false, at("work/link/a.csv"): true, at("owners/link/a.csv"): true} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}

		why, err := fileChanged(t.Context(), b, ledger.File{Path: path, Size: info.Size(), ModTime: info.ModTime()})
		if err != nil || strings.Contains(why, "is a link") != behind {
			t.Errorf("%s as a file that starts a run: %q, %v", path, why, err)
		}
	}

	if text := prompt.ProjectFolder(b, at("work/link"), true, func(s string) string { return s }, func(most int) int { return most }, nil); text != "" {
		t.Errorf("a prompt tells of what is behind a link: %s", text)
	}
	if err := permit.MakeWorkdir(&plan.Task{Agent: plan.Agent{Workdir: at("work/link/new")}, Plan: &plan.Active{Plan: plan.Plan{Boundary: b}}}); err == nil {
		t.Error("a workdir was made behind a link")
	}
}
