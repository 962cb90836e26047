package plan

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"rouse/agent"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/config/load"
	"rouse/cmd/internal/config/yaml"
	"rouse/internal/contract"
)

// TestWatchOfConfig checks that each setting of a watch reaches the watcher and its runs (OSA-90).
func TestWatchOfConfig(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSA-90")
	q := row.Quote
	texts := map[string]string{
		"": "per_file 1s process recursive=false links=false wait=0s files=0 leave/leave runs: recursive=false batch=false",
		", " + q("responsiveness") + ": " + q("fast"): "per_file " + q("200ms") + " process recursive=false links=false wait=0s files=0 leave/leave runs: recursive=false batch=false",
		", " + q("mode") + ": batch, responsiveness: patient, " + q("recursive") + ": true, max_wait: 5m, max_files: 7, existing: process, on_success: {move: ./done}, on_failure: delete": "batch 3s process recursive=true links=false wait=5m0s files=7 move/delete runs: recursive=true batch=true",
		", " + q("parameters") + ": {team: books}": "per_file 1s process recursive=false links=false wait=0s files=0 leave/leave runs: recursive=false batch=false team=books",
		", mode: batch": "batch 1s ignore recursive=false links=false wait=30s files=500 leave/leave runs: recursive=false batch=true",
		", mode: converge, follow_symlinks: true": "converge 1s ignore recursive=false links=true wait=30s files=0 leave/leave runs: recursive=true batch=false",
	}
	for responsiveness, settle := range map[string]string{q("balanced"): q("1s"), q("patient"): q("3s")} {
		texts[", responsiveness: "+responsiveness] = "per_file " + settle + " process recursive=false links=false wait=0s files=0 leave/leave runs: recursive=false batch=false"
	}
	for text, want := range texts {
		path := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": "agents: [{name: a}]\njobs: [{name: j, agent: a, prompt: x, watch: {" + q("path") + ": ./in, include: [x], exclude: [y]" + text + "}}]\n"}), "rouse.yaml")
		cfg, err := load.Config(yaml.Options{Path: path, Home: t.TempDir()}, agent.Specs())
		if err != nil {
			t.Fatal(err)
		}

		p, err := New(cfg, slog.New(slog.DiscardHandler))
		if err != nil || len(p.Watches) != 1 {
			t.Fatal(p, err)
		}

		w, run := p.Watches[0], p.Runner.Jobs["j"].Watched
		got := fmt.Sprintf("%s %s %s recursive=%v links=%v wait=%s files=%d %s/%s runs: recursive=%v batch=%v", w.Mode, w.Settle, w.Existing, w.Recursive, w.FollowSymlinks,
			w.MaxWait, w.MaxFiles, w.OnSuccess.Action, w.OnFailure.Action, run.Recursive, run.Batch)
		if team, ok := run.Parameters["team"]; ok {
			got += " team=" + team
		}
		if got != want {
			t.Errorf("%s:\n%s, want\n%s", text, got, want)
		}
		if w.Path != filepath.Join(filepath.Dir(path), "in") || run.Folder != w.Path || w.Job != "j" || w.Agent != "a" || len(w.Include) != 1 || len(w.Exclude) != 1 {
			t.Errorf("%+v %+v", w, run)
		}
	}
}

// TestChatStepsOfConfig checks that the default of bounds.steps applies to unattended runs. A chat
// has its own default unless the bound is configured.
func TestChatStepsOfConfig(t *testing.T) {
	t.Parallel()
	for bounds, want := range map[string]bool{"": true, ", bounds: {wall: 1m}": true, ", bounds: {steps: 30}": false} {
		path := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": "agents: [{name: a" + bounds + "}]\n"}), "rouse.yaml")
		cfg, err := load.Config(yaml.Options{Path: path, Home: t.TempDir()}, agent.Specs())
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(cfg, slog.New(slog.DiscardHandler))
		if err != nil || p.Runner.Agents["a"].DefaultSteps != want || p.Runner.Agents["a"].Bounds.Steps != 30 {
			t.Errorf("%q: %+v (%v)", bounds, p.Runner.Agents["a"], err)
		}
	}
}

// TestLoopOfConfig checks that an agent's loop reaches its runs (AYA-06).
func TestLoopOfConfig(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"": false, ", loop: tools": false, ", loop: phased": true} {
		path := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": "agents: [{name: a" + text + "}]\n"}), "rouse.yaml")
		cfg, err := load.Config(yaml.Options{Path: path, Home: t.TempDir()}, agent.Specs())
		if err != nil {
			t.Fatal(err)
		}

		p, err := New(cfg, slog.New(slog.DiscardHandler))
		if err != nil || p.Runner.Agents["a"].Phased != want {
			t.Errorf("%s: %+v (%v)", text, p, err)
		}
	}
}
