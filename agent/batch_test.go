package agent_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/event"
)

// put writes files below the bench's folder and describes them like a watch.
func (b *bench) put(files ...string) []ledger.File {
	b.t.Helper()
	var out []ledger.File
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(b.dir, files[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[i+1]), 0o644); err != nil {
			b.t.Fatal(err)
		}

		info, err := os.Stat(path)
		if err != nil {
			b.t.Fatal(err)
		}

		out = append(out, ledger.File{Path: path, Name: filepath.Base(path), Size: info.Size(), Hash: hashOf(files[i+1]), ModTime: info.ModTime().UTC()})
	}

	return out
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// batch queues a run of files like a watch.
func (b *bench) batch(job string, more int, files ...ledger.File) int64 {
	b.t.Helper()
	r := ledger.Request{Job: job, Agent: "clerk", Trigger: domain.TriggerWatch, Detail: ledger.TriggerDetail{Files: files, More: more}}
	for _, f := range files {
		r.Claims = append(r.Claims, claim.Claim{Job: job, Path: filepath.ToSlash(f.Path), Hash: f.Hash, Size: f.Size, ModTime: f.ModTime})
	}

	out, err := b.ledger.Enqueue(b.t.Context(), r)
	if err != nil || !out[0].New {
		b.t.Fatal(out, err)
	}
	return out[0].Run
}

// finish records the result of an attempt.
func (b *bench) finish(run int64, attempt int, res ledger.Result) {
	b.t.Helper()
	if err := b.ledger.Finish(b.t.Context(), ledger.Attempt{Run: run, Number: attempt}, res); err != nil {
		b.t.Fatal(err)
	}
}

// calls returns the calls of an attempt as "key tool state", and their arguments and results.
func (b *bench) calls(run int64, attempt int) (made []string, text string) {
	b.t.Helper()
	calls, err := b.ledger.Steps.Calls(b.t.Context(), run)
	if err != nil {
		b.t.Fatal(err)
	}

	for _, c := range calls {
		if c.Attempt == attempt {
			made = append(made, c.Key+" "+string(c.State))
			text += string(c.Args) + " " + string(c.Envelope) + "\n"
		}
	}

	return made, text
}

// left returns the events about the dropped files of a run.
func (b *bench) left(run int64) string {
	b.t.Helper()
	events, err := b.ledger.Events.List(b.t.Context(), event.Filter{Run: run})
	if err != nil {
		b.t.Fatal(err)
	}

	var out []string
	for _, e := range events {
		if e.Kind == "files.left" {
			out = append(out, string(e.Data))
		}
	}

	return strings.Join(out, "\n")
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

var importEach = []playbook.Call{
	{Name: "db_import", Each: "= Files", With: map[string]any{"table": "log", "path": "{{ .item.Path }}"}, Save: "imported"},
	{Name: "todo", With: map[string]any{"markdown": "- [x] {{ len .Files }} files, {{ .More }} more; the first is {{ (index .Files 0).Name }}, {{ .imported.rows_imported }} rows at last"}},
}

// TestBatchOfHostileNames checks that a playbook processes each file of a batch by its position.
// File names are data, and never templates, expressions or commands.
func TestBatchOfHostileNames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var files []ledger.File
	names := []string{"{{ .Job }}.csv", "= Files.csv", "$(touch x);`touch y`.csv", "new\nline.csv", "'; drop table log; --.csv", "–\u202e漢.csv"}
	for i, name := range names {
		files = append(files, b.put("in/"+name, fmt.Sprintf("what\nrow %d\n", i))...)
	}

	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Playbook: importEach}
	id := b.batch("j", 3, files...)
	res := b.run(id)
	if res.Outcome != domain.OutcomeSuccess || b.count() != len(names) {
		t.Fatalf("%+v, %d rows", res, b.count())
	}

	made, text := b.calls(id, 1)
	if got := strings.Join(made, ", "); got != "p1.1 done, p1.2 done, p1.3 done, p1.4 done, p1.5 done, p1.6 done, p2 done" {
		t.Errorf("%s", got)
	}
	if want := `6 files, 3 more; the first is {{ .Job }}.csv, 1 rows at last`; !strings.Contains(text, want) {
		t.Errorf("%s lacks %s", text, want)
	}
}

// speaker is a model with behavior that a test defines.
type speaker func(r model.Request) model.Event

func (s speaker) Stream(_ context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) { yield(s(r), nil) }
}

// TestManifest checks that the manifest lists the files of a batch and exists only during the run,
// with access only for the run and its owner. A run may read its own files and no other files
// beside them.
func TestManifest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	files := b.put("in/a & b.csv", "x\n", "in/c.csv", "y\n")
	b.put("in/other.csv", "secret of another\n", "manifests/99.json", "of another\n")
	path := filepath.Join(b.dir, "manifests", "1.json")
	want := fmt.Sprintf(`{
"job": "j",
"run": "1",
"files": [
{"path":"%[1]s/a & b.csv","name":"a & b.csv","size":2,"hash":"%[2]s","mod_time":"%[3]s"},
{"path":"%[1]s/c.csv","name":"c.csv","size":2,"hash":"%[4]s","mod_time":"%[5]s"}
],
"more": 4
}
`, filepath.Join(b.dir, "in"), hashOf("x\n"), files[0].ModTime.Format(time.RFC3339Nano), hashOf("y\n"), files[1].ModTime.Format(time.RFC3339Nano))

	var asked []string
	read := []string{path, files[0].Path, files[1].Path, filepath.Join(b.dir, "in/other.csv"), filepath.Join(b.dir, "manifests/99.json"), filepath.Join(b.dir, "in"), filepath.Join(b.dir, "ledger.db")}
	clerk := b.plan.Agents["clerk"]
	clerk.Model = &plan.Model{Name: "m", Provider: speaker(func(r model.Request) model.Event {
		text, err := os.ReadFile(path)
		info, err2 := os.Stat(path)
		if err != nil || err2 != nil || string(text) != want || info.Mode().Perm() != 0o600 {
			t.Errorf("%s (%v, %v), want %s", text, err, err2, want)
		}
		if !strings.Contains(r.System, fmt.Sprintf("listed in %q", path)) || !strings.Contains(r.System, fmt.Sprintf("%q (2 bytes, modified %s)", files[0].Path, files[0].ModTime.UTC().Format(time.RFC3339))) {
			t.Errorf("the model is told %s", r.System)
		}

		if n := len(asked); n < len(read) {
			asked = append(asked, read[n])
			return model.Event{Call: &model.Call{ID: fmt.Sprint(n), Name: "file_read", Args: json.RawMessage(fmt.Sprintf(`{"path":%q}`, read[n]))}}
		}

		return model.Event{Text: "I have read them."}
	})}

	b.plan.Agents["clerk"] = clerk
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Prompt: "Read {{ len .Files }} files, as {{ .Manifest }} says."}
	id := b.batch("j", 4, files...)
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess {
		t.Errorf("%+v", res)
	}

	made, text := b.calls(id, 1)
	states := strings.Join(made, " ")
	if strings.Count(states, "done") != 3 || strings.Count(states, "failed") != 4 || strings.Contains(text, "secret of another") {
		t.Errorf("%s\n%s", made, text)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the manifest is still there: %v", err)
	}

	// Files that a killed process left are swept after the end of its run.
	b.put("manifests/1.json", "", "manifests/1.json.tmp", "", "manifests/notes.txt", "", "manifests/.rouse-OLD.tmp", "", "manifests/.rouse-NEW.tmp", "")
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(b.dir, "manifests", ".rouse-OLD.tmp"), old, old); err != nil {
		t.Fatal(err)
	}
	if err := b.runner.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}

	here := func() string {
		t.Helper()
		var names []string
		for _, e := range must[[]os.DirEntry](t)(os.ReadDir(filepath.Join(b.dir, "manifests"))) {
			names = append(names, e.Name())
		}
		return strings.Join(names, " ")
	}
	if got := here(); got != ".rouse-NEW.tmp 1.json 1.json.tmp notes.txt" {
		t.Errorf("a run is on: %s", got)
	}

	b.finish(id, 1, ledger.Result{Outcome: domain.OutcomeSuccess})
	if err := b.runner.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := here(); got != ".rouse-NEW.tmp notes.txt" {
		t.Errorf("%s", got)
	}
}

// TestBatchLeavesOut checks that a missing or changed file is dropped when the run begins, and that
// the record has the reason.
func TestBatchLeavesOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Playbook: importEach}
	files := b.put("in/gone.csv", "what\na\n", "in/kept.csv", "what\nb\n", "in/changed.csv", "what\nc\n", "in/touched.csv", "what\nd\n", "in/pipe.csv", "what\ne\n")
	id := b.batch("j", 0, files...)
	b.put("in/changed.csv", "what\nC\n")
	if err := os.Remove(files[0].Path); err != nil {
		t.Fatal(err)
	}

	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(files[3].Path, later, later); err != nil {
		t.Fatal(err)
	}

	mkfifo(t, files[4].Path)
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess || b.count() != 2 {
		t.Errorf("%+v, %d rows", res, b.count())
	}

	changed := "has changed since it was accepted; what it holds now gets a run of its own"
	want := fmt.Sprintf(`{"attempt":1,"files":[{"path":%q,"why":"is gone"},{"path":%q,"why":%q},{"path":%q,"why":%[3]q}],"kept":false}`, files[0].Path, files[2].Path, changed, files[4].Path)
	if got := b.left(id); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, text := b.calls(id, 1); !strings.Contains(text, "2 files, 0 more; the first is kept.csv") {
		t.Errorf("%s", text)
	}

	// No file of the next batch is left, so it does not begin.
	more := b.put("in/x.csv", "what\nx\n", "in/y.csv", "what\ny\n")
	none, one := b.batch("j", 0, more...), b.batch("j", 0, b.put("in/z.csv", "what\nz\n")...)

	for _, f := range append(more, ledger.File{Path: filepath.Join(b.dir, "in/z.csv")}) {
		if err := os.Remove(f.Path); err != nil {
			t.Fatal(err)
		}
	}

	for id, say := range map[int64]string{none: "none of the 2 files is left: " + more[0].Path + " is gone, and so on", one: "in/z.csv is gone"} {
		if res := b.run(id); res.Outcome != domain.OutcomeSkipped || !strings.Contains(res.Error, say) {
			t.Errorf("%+v, want %s", res, say)
		}
	}
}

// TestRetryWhileTheFileIsMoved checks that a retried run waits for its file while the file is being
// moved.
func TestRetryWhileTheFileIsMoved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Playbook: importEach}
	id := b.batch("j", 0, b.put("in/a.csv", "what\na\n")...)
	if _, _, err := b.ledger.StartAttempt(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	b.finish(id, 1, ledger.Result{Outcome: domain.OutcomeInterrupted})
	taken := must[[]claim.Status](t)(b.ledger.Claims.PendingAfterMoves(t.Context(), 10))[0]
	moved := b.put("failed/a.csv", "what\na\n")[0].Path
	if err := errors.Join(os.Remove(filepath.FromSlash(taken.Path)), func() error { _, err := b.ledger.Retry(t.Context(), id); return err }()); err != nil {
		t.Fatal(err)
	}

	// The watcher records the move after the run has begun.
	begun := b.ledger.Changed()
	recorded := make(chan error, 1)
	go func() {
		<-begun
		_, err := b.ledger.Claims.FinishAfterMove(t.Context(), taken, claim.AfterDone, moved, "")
		recorded <- err
	}()
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess || b.count() != 1 {
		t.Errorf("%+v, %d rows", res, b.count())
	}
	if err := <-recorded; err != nil {
		t.Error(err)
	}
}

// TestBatchGoesOn checks that a later attempt keeps the list of the first attempt. Files that were
// imported are not imported again, and positions in the list do not shift.
func TestBatchGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Playbook: importEach}
	files := b.put("in/never.csv", "what\n0\n", "in/a.csv", "what\na\n", "in/bad.csv", "what\nb,b\n", "in/c.csv", "what\nc\n", "in/d.csv", "what\nd\n")
	if err := os.Remove(files[0].Path); err != nil {
		t.Fatal(err)
	}

	id := b.batch("j", 0, files...)
	res := b.run(id)
	if res.Outcome != domain.OutcomeError || b.count() != 1 {
		t.Fatalf("%+v, %d rows", res, b.count())
	}

	b.finish(id, 1, res)
	// The files were moved as failed. The owner removes the broken file, and another file changes.
	var claims []claim.Status
	for _, c := range must[[]claim.Status](t)(b.ledger.Claims.PendingAfterMoves(t.Context(), 10)) {
		path := filepath.Join(b.dir, "failed", filepath.Base(c.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.Rename(filepath.FromSlash(c.Path), path); err == nil {
			claims = append(claims, c)
			if ended, err := b.ledger.Claims.FinishAfterMove(t.Context(), c, claim.AfterDone, path, ""); err != nil || !ended {
				t.Fatal(ended, err)
			}
		}
	}
	if len(claims) != 4 {
		t.Fatalf("%+v", claims)
	}

	b.put("in/never.csv", "what\n0\n", "in/c.csv", "another file of that name", "failed/d.csv", "what\nDD\n")
	if err := os.Remove(filepath.Join(b.dir, "failed", "bad.csv")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ledger.Retry(t.Context(), id); err != nil {
		t.Fatal(err)
	}

	res = b.run(id)
	if res.Outcome != domain.OutcomeSuccess || b.count() != 2 || !strings.Contains(res.Summary, "db_import 2 times, 2 skipped") {
		t.Errorf("%+v, %d rows", res, b.count())
	}

	made, text := b.calls(id, 2)
	if got := strings.Join(made, ", "); got != "p1.1 replayed, p1.3 done, p2 replayed" && got != "p1.1 replayed, p1.3 done, p2 done" {
		t.Errorf("%s", got)
	}
	if !strings.Contains(text, filepath.Join(b.dir, "failed", "c.csv")) || !strings.Contains(text, "4 files, 0 more; the first is a.csv") {
		t.Errorf("%s", text)
	}

	notes := strings.Split(b.left(id), "\n")
	if len(notes) != 2 || !strings.Contains(notes[1], `"kept":true`) || !strings.Contains(notes[1], "bad.csv") || !strings.Contains(notes[1], "d.csv") || strings.Contains(notes[1], "never.csv") {
		t.Errorf("%q", notes)
	}
}

// TestBatchOfAModelGoesOn checks that the next attempt of a model gets the current list of files,
// because its calls do not depend on positions.
func TestBatchOfAModelGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var told []string
	clerk := b.plan.Agents["clerk"]
	clerk.Model = &plan.Model{Name: "m", Provider: speaker(func(r model.Request) model.Event {
		if told = append(told, r.System); len(told) == 1 {
			return model.Event{Call: &model.Call{ID: "1", Name: "todo", Args: json.RawMessage(`{"markdown":"- [ ] read"}`)}}
		}
		return model.Event{Text: "I have read them."}
	})}

	b.plan.Agents["clerk"] = clerk
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Prompt: "Read {{ len .Files }} files."}
	files := b.put("in/a.csv", "a", "in/b.csv", "b")
	id := b.batch("j", 0, files...)
	b.run(id)
	if err := os.Remove(files[0].Path); err != nil {
		t.Fatal(err)
	}
	if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: 1}, "killed", nil); err != nil {
		t.Fatal(err)
	}
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess {
		t.Errorf("%+v", res)
	}

	if last := told[len(told)-1]; !strings.Contains(last, "1 file, which") || strings.Contains(last, "a.csv") || !strings.Contains(last, "Left out: 1 file that") {
		t.Errorf("%s", last)
	}
	if got := b.left(id); !strings.Contains(got, `"kept":false`) {
		t.Errorf("%s", got)
	}
}

// TestBatchOfOne checks that a job with batches processes a single file as a batch of one.
func TestBatchOfOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	job := plan.Job{Name: "j", Agent: "clerk", Playbook: importEach, Watched: plan.Watched{Folder: filepath.Join(b.dir, "in"), Batch: true},
		Notify: plan.Notify{On: []string{"success"}, Channels: []string{"desktop"}, Title: "{{ len .Files }} of {{ .More }}: {{ range .Files }}{{ .Name }}{{ end }}"}}
	b.plan.Jobs["j"] = job
	f := b.put("in/a.csv", "what\na\n")[0]
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk", Detail: ledger.TriggerDetail{File: &f}})
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess || b.count() != 1 {
		t.Errorf("%+v, %d rows", res, b.count())
	}

	run := must[ledger.Run](t)(b.ledger.Runs.Get(t.Context(), id))
	if got := b.told(run, ledger.Result{Outcome: domain.OutcomeSuccess}); len(got) != 1 || got[0].Title != "1 of 0: a.csv" {
		t.Errorf("%+v", got)
	}
}

// TestALeftFileComesAgain checks that a file that was missing when its batch began gets a run of
// its own if it is dropped again with the same content.
func TestALeftFileComesAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	files := append(b.put("in/a.csv", "what\none\n"), b.put("in/b.csv", "what\ntwo\n")...)
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Playbook: importEach[:1]}
	id := b.batch("j", 0, files...)
	if err := os.Remove(files[1].Path); err != nil {
		t.Fatal(err)
	}

	res := b.run(id)
	if res.Outcome != domain.OutcomeSuccess || b.count() != 1 {
		t.Fatalf("%+v, %d rows", res, b.count())
	}

	b.finish(id, 1, res)
	again := func(f ledger.File) ledger.Accepted {
		out, err := b.ledger.Enqueue(t.Context(), ledger.Request{Job: "j", Agent: "clerk", Trigger: domain.TriggerWatch, Detail: ledger.TriggerDetail{File: &f},
			Claim: &claim.Claim{Job: "j", Path: filepath.ToSlash(f.Path), Hash: f.Hash, Size: f.Size, ModTime: f.ModTime}})
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	if a := again(files[0]); !a.Blocked {
		t.Errorf("the file that was read is taken again: %+v", a)
	}
	if a := again(files[1]); a.Blocked || !a.New {
		t.Errorf("the file that was gone is not taken: %+v", a)
	}
}
