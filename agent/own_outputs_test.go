package agent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent"
	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/agent/permit"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/pause"
)

// own returns the claim of the ledger for content that a run of the job wrote to a path.
func (b *bench) own(job, path, text string) (claim.Status, bool) {
	b.t.Helper()
	c, ok, err := b.ledger.Claims.Of(b.t.Context(), job, filepath.ToSlash(path), hashOf(text))
	if err != nil {
		b.t.Fatal(err)
	}
	return c, ok
}

// TestOwnOutputs checks that a file that a run writes into its job's watched folder is claimed
// before it exists, under any name. Files in other folders are not claimed.
func TestOwnOutputs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := filepath.Join(b.dir, "in")
	b.put("in/drop.csv", "x\n")
	if err := os.Symlink("in", filepath.Join(b.dir, "link")); err != nil {
		t.Fatal(err)
	}

	clerk := b.plan.Agents["clerk"]
	clerk.Workdir = b.dir
	b.plan.Agents["clerk"] = clerk
	writes := func(paths ...string) (out []playbook.Call) {
		for _, p := range paths {
			out = append(out, playbook.Call{Name: "file_write", With: map[string]any{"path": p, "content": "by {{ .Job }}\n"}})
		}
		return out
	}

	paths := []string{"in/out.csv", filepath.Join(b.dir, "link", "other.csv"), "in/deep/out.csv", "beside.csv", "inner/in.csv"}
	flat := plan.Job{Name: "flat", Agent: "clerk", Playbook: writes(paths...), Watched: plan.Watched{Folder: filepath.Join(b.dir, "link")}}
	deep := plan.Job{Name: "deep", Agent: "clerk", Playbook: writes(paths...), Watched: plan.Watched{Folder: in, Recursive: true}}
	none := plan.Job{Name: "none", Agent: "clerk", Playbook: writes(paths...)}
	nowhere := plan.Job{Name: "nowhere", Agent: "clerk", Playbook: writes(paths...), Watched: plan.Watched{Folder: filepath.Join(b.dir, "nowhere")}}
	for _, job := range []plan.Job{flat, deep, none, nowhere} {
		b.plan.Jobs[job.Name] = job
		id := b.enqueue(ledger.Request{Job: job.Name, Agent: "clerk"})
		res := b.run(id)
		if res.Outcome != domain.OutcomeSuccess {
			t.Fatalf("%s: %+v", job.Name, res)
		}

		b.finish(id, 1, res)
		var known []string
		for _, path := range []string{"in/out.csv", "in/other.csv", "in/deep/out.csv", "beside.csv", "inner/in.csv", "link/other.csv"} {
			c, ok := b.own(job.Name, filepath.Join(b.dir, path), "by "+job.Name+"\n")
			if !ok {
				continue
			}

			known = append(known, path)
			info, err := os.Stat(filepath.Join(b.dir, path))
			if err != nil || c.Run != id || c.Outcome != domain.OutcomeSuccess || c.After != claim.AfterLeft || c.Size != info.Size() || c.ModTime.UnixMilli() != info.ModTime().UnixMilli() {
				t.Errorf("%s: %+v, %v", path, c, err)
			}
		}

		want := map[string]string{"flat": "in/out.csv in/other.csv", "deep": "in/out.csv in/other.csv in/deep/out.csv"}[job.Name]
		if got := strings.Join(known, " "); got != want {
			t.Errorf("%s: %s are its own, want %s", job.Name, got, want)
		}
	}
	if due := must[[]claim.Status](t)(b.ledger.Claims.PendingAfterMoves(t.Context(), 10)); len(due) > 0 {
		t.Errorf("what a run wrote is to be moved: %+v", due)
	}
}

// TestOwnOutputsAreFenced checks that a run cannot claim or write files after its attempt was
// replaced.
func TestOwnOutputsAreFenced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Playbook: []playbook.Call{{Name: "file_write", With: map[string]any{"path": "a", "content": "x"}}}, Watched: plan.Watched{Folder: filepath.Join(b.dir, "work")}}
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	b.runner.Set(b.plan)
	run, a, err := b.ledger.StartAttempt(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}

	b.finish(id, 1, ledger.Result{Outcome: domain.OutcomeCancelled})
	if res, err := b.runner.Execute(t.Context(), run, a); err == nil {
		t.Errorf("%+v", res)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "work", "a")); err == nil {
		t.Error("it was written")
	}
}

// TestOwnExpectations checks that an expected file of a job is claimed too, whatever wrote it. A
// file that existed before is not claimed.
func TestOwnExpectations(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := filepath.Join(b.dir, "in")
	b.put("in/old.csv", "old\n")
	past := must[os.FileInfo](t)(os.Stat(filepath.Join(in, "old.csv"))).ModTime().Add(-3600e9)
	if err := os.Chtimes(filepath.Join(in, "old.csv"), past, past); err != nil {
		t.Fatal(err)
	}

	clerk := b.plan.Agents["clerk"]
	clerk.Model = &plan.Model{Name: "m", Provider: speaker(func(model.Request) model.Event {
		b.put("in/made.csv", "made by another program\n") // like a shell command
		return model.Event{Text: "It is made."}
	})}
	b.plan.Agents["clerk"] = clerk
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Prompt: "Make it.", Watched: plan.Watched{Folder: in},
		Expect: []plan.Expectation{{File: filepath.Join(in, "made.csv")}, {File: filepath.Join(in, "old.csv"), Where: "here"}, {File: filepath.Join(in, "none.csv")}, {File: in}}}
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	if res := b.run(id); res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "old.csv was not changed") {
		t.Errorf("%+v", res)
	}
	if _, ok := b.own("j", filepath.Join(in, "made.csv"), "made by another program\n"); !ok {
		t.Error("what was expected is not known as its own")
	}
	if _, ok := b.own("j", filepath.Join(in, "old.csv"), "old\n"); ok {
		t.Error("what was there before is known as its own")
	}
}

// TestExpectedFileOfTheSameBytes checks that writing the same content again does not count as a
// change. A change by an earlier attempt, or a file that the run moved, counts, although the file
// keeps its time.
func TestExpectedFileOfTheSameBytes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	report := filepath.Join(b.dir, "work", "report.md")
	past := time.Now().Add(-time.Hour).Truncate(time.Second)
	write := func(path, content string) playbook.Call {
		return playbook.Call{Name: "file_write", With: map[string]any{"path": path, "content": content}}
	}
	for name, c := range map[string]struct {
		calls []playbook.Call
		error string // "" if the expectation is met
	}{
		"same":   {[]playbook.Call{write("report.md", "as ever\n")}, "the run left the file " + report + " unchanged; if that is not a failure, remove this expectation"},
		"leaves": {[]playbook.Call{write("other.md", "as ever\n")}, "was not changed by this run"},
		"new":    {[]playbook.Call{write("report.md", "new\n")}, ""},
		"moves":  {[]playbook.Call{{Name: "file_move", With: map[string]any{"from": "draft.md", "to": "report.md", "overwrite": true}}}, ""},
		// The first attempt writes the file and fails. The second attempt finds the file.
		"again": {[]playbook.Call{write("report.md", "of the run\n"), {Name: "file_read", With: map[string]any{"path": "none.md"}, If: "Attempt == 1"}}, ""},
	} {
		b.put("work/report.md", "as ever\n", "work/draft.md", "a draft\n")
		for _, path := range []string{report, filepath.Join(b.dir, "work", "draft.md")} {
			if err := os.Chtimes(path, past, past); err != nil {
				t.Fatal(err)
			}
		}
		b.plan.Jobs[name] = plan.Job{Name: name, Agent: "clerk", Expect: []plan.Expectation{{File: report, Where: "here"}}, Playbook: c.calls}
		id := b.enqueue(ledger.Request{Job: name, Agent: "clerk"})
		res := b.run(id)
		if name == "again" {
			if err := os.Chtimes(report, past, past); err != nil { // as if the first attempt had been long ago
				t.Fatal(err)
			}
			b.finish(id, 1, res)
			must[ledger.Run](t)(b.ledger.Retry(t.Context(), id))
			res = b.run(id)
		}
		if (res.Outcome == domain.OutcomeSuccess) != (c.error == "") || !strings.Contains(res.Error, c.error) {
			t.Errorf("%s: %+v", name, res)
		}
		if info := must[os.FileInfo](t)(os.Stat(report)); name == "same" && !info.ModTime().Equal(past) {
			t.Errorf("the file has a new time: %s", info.ModTime())
		}
	}
}

// TestFolderRun checks OSA-93: the run of a converging folder knows the changes. It may read the
// whole folder but not write to it, and its conditions are not checked.
func TestFolderRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put("notes/a.md", "alpha\n", "notes/deep/b.md", "beta\n", "outside.md", "secret\n")
	folder := filepath.Join(b.dir, "notes")
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", When: []plan.Condition{{File: filepath.Join(b.dir, "never"), Where: "here"}}, Playbook: []playbook.Call{
		{Name: "file_read", Each: "= concat(Changes.Added, Changes.Modified)", With: map[string]any{"path": "{{ .Folder }}/{{ .item }}"}},
		{Name: "file_read", With: map[string]any{"path": "{{ .Folder }}"}},
		{Name: "todo", If: "Round == 2 && len(Changes.Removed) == 1 && Changes.More == 0", With: map[string]any{"markdown": "- [x] {{ range .Changes.Removed }}{{ . }}{{ end }} of round {{ .Round }}"}},
		{Name: "file_read", With: map[string]any{"path": "{{ .Folder }}/../outside.md"}, OnError: "continue"},
		{Name: "file_write", With: map[string]any{"path": "{{ .Folder }}/a.md", "content": "x"}, OnError: "continue"},
	}}

	d := ledger.TriggerDetail{Folder: folder, Round: 2, Changes: &ledger.Changes{Added: []string{"a.md"}, Modified: []string{"deep/b.md"}, Removed: []string{"c.md"}}}
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk", Detail: d})
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%+v", res)
	}

	made, text := b.calls(id, 1)
	if got := strings.Join(made, ", "); got != "p1.1 done, p1.2 done, p2 done, p3 done, p4 failed, p5 failed" {
		t.Errorf("%s\n%s", got, text)
	}

	for _, want := range []string{"alpha", "beta", "c.md of round 2"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in %s", want, text)
		}
	}

	if strings.Contains(text, "secret") {
		t.Errorf("it read what it may not: %s", text)
	}

	// A manual run has no changes, which is an empty list.
	d.Changes, d.Round = nil, 1
	id = b.enqueue(ledger.Request{Job: "j", Agent: "clerk", Detail: d})
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess || !strings.Contains(res.Summary, "file_read had no items") {
		t.Errorf("%+v", res)
	}
}

// TestNamesOfOtherModes checks that a manual run has no files. An undefined variable is reported
// with the defined ones.
func TestNamesOfOtherModes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for path, say := range map[string]string{
		"{{ .Files }}":              `uses "Files", which this run does not have; it has Agent, Attempt, Changes, Folder`,
		"{{ .Changes.Aded }}":       `uses "Changes.Aded", but Changes has only Added, Removed, Modified, More`,
		"{{ .Changes.Added.Path }}": `uses "Changes.Added.Path", but Changes.Added is a list: take each of it with {{ range .Changes.Added }}`,
	} {
		b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Playbook: []playbook.Call{{Name: "file_read", With: map[string]any{"path": path}}}}
		id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk", Detail: ledger.TriggerDetail{Folder: b.dir, Round: 1}})
		if res := b.run(id); !strings.Contains(res.Error, say) {
			t.Errorf("%s: %s, want %s", path, res.Error, say)
		}
	}
}

// TestHardLinkedSinceItsAcceptance checks that a run cannot read a file that got another hard link
// after it was accepted, except in the agent's own workdir.
func TestHardLinkedSinceItsAcceptance(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Playbook: []playbook.Call{{Name: "file_read", With: map[string]any{"path": "{{ .File.Path }}"}}}}
	b.runner.Set(b.plan)
	work := b.plan.Agents["clerk"].Workdir
	for folder, want := range map[string]domain.Outcome{b.dir: domain.OutcomeSkipped, work: domain.OutcomeSuccess} {
		path := filepath.Join(folder, "linked.txt")
		if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(path, []byte("text"), 0o644)); err != nil {
			t.Fatal(err)
		}
		info := must[os.FileInfo](t)(os.Stat(path))
		id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk", Detail: ledger.TriggerDetail{File: &ledger.File{Path: path, Name: "linked.txt", Size: info.Size(), ModTime: info.ModTime()}}})
		if err := os.Link(path, filepath.Join(t.TempDir(), "other")); err != nil {
			t.Skip("hard links cannot be made here")
		}
		if res := b.run(id); res.Outcome != want || want == domain.OutcomeSkipped && !strings.Contains(res.Error, "is a hard link by now") {
			t.Errorf("in %s: %s %s %s", folder, res.Outcome, res.Error, res.Summary)
		}
	}
}

// TestReturnNotices checks the notice that a file has reappeared unchanged after its run failed,
// with the remedy.
func TestReturnNotices(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.plan.Jobs["in"] = plan.Job{Name: "in", Agent: "clerk", Notify: plan.Notify{Channels: []string{"desktop", "ops"}}}
	b.runner.Set(b.plan)
	got := b.runner.Notices.ReturnNotices("in", "/in/a\x1b[2J\nb.csv", 7)
	if len(got) != 2 || got[0].Title != "in: a b.csv is back as it was when it failed" || got[1].Channel != "ops" || !strings.Contains(got[0].Body, "rouse retry 7") || !strings.Contains(got[0].Body, "rouse why in") {
		t.Errorf("%+v", got)
	}
	if got := b.runner.Notices.ReturnNotices("nobody", "/in/a", 7); got != nil {
		t.Errorf("%+v", got)
	}
}

// TestFingerprint checks that a job's fingerprint changes with its definition, but not with its
// notices.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	job := plan.Job{Name: "in", Agent: "clerk", Prompt: "Read it."}
	of := func(change func(*plan.Job, *plan.Agent)) string {
		j, a := job, plan.Agent{Name: "clerk", Workdir: "/work"}
		change(&j, &a)
		return permit.Fingerprint(plan.Plan{Jobs: map[string]plan.Job{"in": j}, Agents: map[string]plan.Agent{"clerk": a}}, agent.Specs(), "in")
	}
	plain := of(func(*plan.Job, *plan.Agent) {})
	if plain == "" || of(func(j *plan.Job, _ *plan.Agent) { j.Notify.On, j.Where = []string{"error"}, "rouse.yaml:9" }) != plain {
		t.Errorf("%q is not the same", plain)
	}
	for name, change := range map[string]func(*plan.Job, *plan.Agent){
		"prompt":       func(j *plan.Job, _ *plan.Agent) { j.Prompt = "Read all of it." },
		"expectation":  func(j *plan.Job, _ *plan.Agent) { j.Expect = []plan.Expectation{{File: "/x"}} },
		"check":        func(j *plan.Job, _ *plan.Agent) { j.Expect = []plan.Expectation{{SQL: "/x"}} },
		"model":        func(j *plan.Job, _ *plan.Agent) { j.Model = &plan.Model{Name: "large"} },
		"fallback":     func(j *plan.Job, _ *plan.Agent) { j.Model = &plan.Model{Fallback: &plan.Model{Name: "large"}} },
		"instructions": func(_ *plan.Job, a *plan.Agent) { a.Instructions = "Be brief." },
		"grants":       func(_ *plan.Job, a *plan.Agent) { a.Read = []string{"/data"} },
	} {
		if got := of(change); got == plain || got == "" {
			t.Errorf("another %s: %q", name, got)
		}
	}
	if got := permit.Fingerprint(plan.Plan{}, agent.Specs(), "in"); got != "" {
		t.Errorf("of no job: %q", got)
	}
}

// TestBrokenNotices checks the notice that a job was stopped because one path kept triggering it.
func TestBrokenNotices(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.plan.Jobs["loop"] = plan.Job{Name: "loop", Agent: "clerk", Notify: plan.Notify{Channels: []string{"desktop", "ops"}}}
	b.runner.Set(b.plan)
	got := b.runner.Notices.LoopNotices("loop")
	text := must[[]byte](t)(json.Marshal(got))
	if len(got) != 2 || got[0].Title != "loop is paused: "+pause.PathPlaceholder+" was taken 20 times in a minute" || got[1].Channel != "ops" || !strings.Contains(string(text), "rouse resume loop") {
		t.Errorf("%s", text)
	}
	if err := b.ledger.Outbox.Append(t.Context(), got...); err != nil {
		t.Error(err)
	}
	if got := b.runner.Notices.LoopNotices("nobody"); got != nil {
		t.Error(fmt.Sprint(got))
	}
}

// TestWatchParameters checks OSA-90: the parameters of a watch are the Input of its job's runs.
// Input of a manual start takes precedence.
func TestWatchParameters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Watched: plan.Watched{Folder: filepath.Join(b.dir, "in"), Parameters: map[string]string{"team": "books", "year": "2025"}},
		Playbook: []playbook.Call{{Name: "todo", With: map[string]any{"markdown": "- [x] {{ .Input.team }} {{ .Input.year }}"}}}}
	for want, input := range map[string]map[string]string{"- [x] books 2025": nil, "- [x] books 2026": {"year": "2026"}} {
		id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk", Detail: ledger.TriggerDetail{Input: input}})
		if res := b.run(id); res.Outcome != domain.OutcomeSuccess {
			t.Fatalf("%+v", res)
		}
		if _, text := b.calls(id, 1); !strings.Contains(text, want) {
			t.Errorf("with %v: %s, want %s", input, text, want)
		}
	}
	if p := b.plan.Jobs["j"].Watched.Parameters; p["year"] != "2025" {
		t.Errorf("a run has changed the plan: %v", p)
	}
}
