package example

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/internal/contract"
	"rouse/skills"
)

// TestExampleSkillsPassTheirCases checks that the skills of the example are valid and pass their
// cases (OSL-36).
func TestExampleSkillsPassTheirCases(t *testing.T) {
	endtoend.Unraced(t)
	t.Parallel()
	folders, err := filepath.Glob("../../../../examples/skills/skills/*")
	if err != nil || len(folders) != 5 {
		t.Fatalf("%v (%v)", folders, err)
	}

	modes := map[string]bool{}
	for _, folder := range folders {
		var checked struct {
			Valid int
			All   []struct{ Problems []skills.Problem }
		}
		endtoend.RunJSON(t, &checked, "skills", "validate", "--json", folder)
		if checked.Valid != 1 || len(checked.All[0].Problems) > 0 {
			t.Errorf("%s: %+v", folder, checked.All[0].Problems)
		}

		var played []struct{}
		endtoend.RunJSON(t, &played, "skills", "test", "--json", folder)
		if len(played) < 2 {
			t.Errorf("%s has %d cases", folder, len(played))
		}

		raw, err := os.ReadFile(filepath.Join(folder, "manifest.json"))
		var m struct {
			ExecutionMode, WorkspaceSupport string
			AgenticConfig                   struct{ SupportsBackgroundExecution bool }
		}
		if err == nil {
			err = json.Unmarshal(raw, &m)
		}
		if err != nil {
			t.Fatal(err)
		}
		kind := m.ExecutionMode
		switch {
		case m.AgenticConfig.SupportsBackgroundExecution:
			kind = "background " + kind
		case kind == "declarative" && m.WorkspaceSupport != "none":
			kind = "workspace-aware " + kind
		}
		modes[kind] = true
	}
	for _, kind := range contract.Of(t, "OSL-36").Between("each kind: ", ".") {
		if !modes[kind] {
			t.Errorf("there is no %s skill: %v", kind, modes)
		}
	}
}

// TestExampleSkillsWalk plays the walk in the example's README and kills the daemon in the middle
// (OSL-36).
func TestExampleSkillsWalk(t *testing.T) {
	t.Parallel()
	config := endtoend.CopyExample(t, "skills")
	dir := filepath.Dir(config)
	p := endtoend.Serve(t, config)
	rouseSays := func(args ...string) string {
		t.Helper()
		p := endtoend.Rouse(t, append(args, "--config", config)...)
		if err := p.Run(); err != nil {
			t.Fatalf("rouse %s: %v\n%s%s", strings.Join(args, " "), err, &p.Out, &p.Err)
		}
		return p.Out.String()
	}
	answer := func(title, text string) {
		t.Helper()
		var items []api.Item
		cmdtest.Until(t, "the question "+title, func() bool {
			endtoend.RunJSON(t, &items, "inbox", "--json", "--config", config)
			return slices.ContainsFunc(items, func(i api.Item) bool { return i.Title == title })
		})
		at := slices.IndexFunc(items, func(i api.Item) bool { return i.Title == title })
		rouseSays("answer", items[at].ID, text)
		cmdtest.Until(t, "the answer to be taken", func() bool {
			var now []api.Item
			endtoend.RunJSON(t, &now, "inbox", "--json", "--config", config)
			return !slices.ContainsFunc(now, func(i api.Item) bool { return i.ID == items[at].ID })
		})
	}

	// A note becomes an article.
	endtoend.Drop(t, filepath.Join(dir, "notes"), map[string]string{"tides.txt": "Why the sea comes and goes twice a day.\n"})
	answer("article: The outline of tides", `{"approve": false, "change": "an example from a kitchen"}`)
	cmdtest.Until(t, "the changed outline", func() bool { return strings.Contains(rouseSays("inbox"), "2. An example from a kitchen") })
	p.Kill(t)
	answer("article: The outline of tides", `{"approve": true}`)
	p = endtoend.Serve(t, config)
	cmdtest.Until(t, "the pause", func() bool { return strings.Contains(rouseSays("inbox"), "Have it go on to write the file.") })
	if _, err := os.Stat(filepath.Join(dir, "out", "tides.md")); err == nil {
		t.Error("the article is written before its owner has read it")
	}
	answer("article paused", "continue")

	var runs []api.Run
	cmdtest.Until(t, "the article", func() bool {
		endtoend.RunJSON(t, &runs, "runs", "--json", "--config", config)
		return len(runs) == 1 && runs[0].Outcome != ""
	})
	if runs[0].Outcome != "success" || runs[0].Summary != "wrote tides.md after 1 changes of its outline" {
		t.Fatalf("%+v", runs[0])
	}
	text, err := os.ReadFile(filepath.Join(dir, "out", "tides.md"))
	if err != nil || !strings.HasPrefix(string(text), "# tides\n\nIt is older than it looks:") {
		t.Errorf("%s (%v)", text, err)
	}

	// Its versions: two outlines, a draft, and the text.
	var d api.RunDetail
	endtoend.RunJSON(t, &d, "show", runs[0].ID, "--json", "--config", config)
	if len(d.ArtifactsDetail) != 4 {
		t.Fatalf("%+v", d.ArtifactsDetail)
	}
	for i, a := range d.ArtifactsDetail {
		if a.Version != i+1 || i > 0 && a.Parent != d.ArtifactsDetail[i-1].ID {
			t.Errorf("version %d: %+v", i+1, a)
		}
	}
	if shown := rouseSays("workspaces", "show", "1"); !strings.Contains(shown, "tides (markdown, version 4,") || !strings.Contains(shown, "done;") {
		t.Error(shown)
	}
	// Each step is reported once, also the first step after an answer.
	said := rouseSays("logs", runs[0].ID)
	for _, step := range []string{"step 1  outline", "step 2  change 1", "step 3  draft", "step 4  polish", "step 5  write"} {
		if n := strings.Count(said, step+"\n"); n != 1 {
			t.Errorf("%s is told of %d times", step, n)
		}
	}
	p.Stop(t)
}

// TestExampleSkillsRun runs the other skills of the example as its jobs do (OSL-36).
func TestExampleSkillsRun(t *testing.T) {
	t.Parallel()
	config := endtoend.CopyExample(t, "skills")
	dir := filepath.Dir(config)
	p := endtoend.Serve(t, config)
	runs := func() (all []api.Run) {
		endtoend.RunJSON(t, &all, "runs", "--json", "--config", config)
		return all
	}
	ended := func(what string, summary string) {
		t.Helper()
		cmdtest.Until(t, what, func() bool {
			return slices.ContainsFunc(runs(), func(r api.Run) bool { return r.Outcome == "success" && r.Summary == summary })
		})
	}

	endtoend.Drop(t, filepath.Join(dir, "tables"), map[string]string{"march.csv": "day,category,amount\n1,food,0.10\n2,food,0.20\n3,books,12\n"})
	endtoend.Drop(t, filepath.Join(dir, "stock"), map[string]string{"may.txt": "red apples 12\nplums 3\n"})
	ended("the totals", "march.csv: amount 12.30 in 3 rows (food 0.30, books 12)")
	ended("the first list", "may.txt is the first list: 2 things")
	endtoend.Drop(t, filepath.Join(dir, "stock"), map[string]string{"june.txt": "red apples 10\npears 4\n"})
	ended("the second list", "since may.txt added: pears 4; removed: plums; changed: red apples 12 → 10")

	endtoend.RunJSON(t, nil, "run", "triage", "--wait", "--json", "--config", config)
	ended("a batch", "sorted ada.txt, baker-again.txt, baker.txt, club.txt; 2 left for the next run")
	endtoend.RunJSON(t, nil, "run", "triage", "--wait", "--json", "--config", config)
	ended("the rest", "sorted library.txt, paper.txt; 0 left for the next run")

	endtoend.RunJSON(t, nil, "run", "research", "--input", "topic=tides", "--json", "--config", config)
	var items []api.Item
	cmdtest.Until(t, "the review", func() bool {
		endtoend.RunJSON(t, &items, "inbox", "--json", "--config", config)
		return len(items) == 1
	})
	endtoend.RunJSON(t, nil, "answer", items[0].ID, `{"good": false, "change": "shorter"}`, "--json", "--config", config)
	ended("the report", "a report on tides, from 3 questions (6 steps of 8)")
	p.Stop(t)
}
