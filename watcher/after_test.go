package watcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/event"
	"rouse/internal/nofollow"
	"rouse/watcher/after"
	"rouse/watcher/fsys"
	"rouse/watcher/settle"
	"rouse/watcher/tree"
)

// harness is a watcher for tests that call its parts one by one.
type harness struct {
	t    *testing.T
	base string
	w    *Watcher
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	l := OpenLedger(t, base)
	w, err := New(Options{Ledger: l})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { w.subs.close(); l.Close() })
	d := &harness{t: t, base: base, w: w}
	d.must(os.Mkdir(d.path("inbox"), 0o755))
	return d
}

func (d *harness) path(name string) string { return filepath.Join(d.base, filepath.FromSlash(name)) }

func (d *harness) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *harness) set(success after.Rule) Watch {
	d.t.Helper()
	w := Watch{Job: "in", Agent: "a", Path: d.path("inbox"), OnSuccess: success, Settle: 20 * time.Millisecond}
	d.must(d.w.Set(d.t.Context(), []Watch{w}))
	return w
}

func (d *harness) write(name, text string) string {
	d.t.Helper()
	d.must(os.MkdirAll(filepath.Dir(d.path(name)), 0o755))
	d.must(os.WriteFile(d.path(name), []byte(text), 0o644))
	return d.path(name)
}

// handle returns the handle of a file. It creates the folder of the file if it does not exist.
func (d *harness) handle(path string) fsys.Handle {
	d.t.Helper()
	d.must(os.MkdirAll(filepath.Dir(path), 0o755))
	file, err := fsys.OpenHandle(nofollow.UntrustedDirs{}, path)
	d.must(err)
	d.t.Cleanup(func() { file.Root.Close() })
	return file
}

func (d *harness) read(name, want string) {
	d.t.Helper()
	if got, err := os.ReadFile(d.path(name)); err != nil || string(got) != want {
		d.t.Errorf("%s holds %q (%v), want %q", name, got, err, want)
	}
}

func (d *harness) missing(name string) {
	d.t.Helper()
	if _, err := os.Lstat(d.path(name)); !errors.Is(err, fs.ErrNotExist) {
		d.t.Errorf("%s is there (%v)", name, err)
	}
}

// run claims a file and ends its run. The action after the run is then pending.
func (d *harness) run(w Watch, path string, outcome domain.Outcome) claim.Status {
	d.t.Helper()
	a, err := EnqueueFile(d.t.Context(), d.w.ledger, w, path, false)
	d.must(err)
	if a.New {
		d.end(a.Run, outcome)
	}
	return d.claim()
}

func (d *harness) end(run int64, outcome domain.Outcome) {
	d.t.Helper()
	_, attempt, err := d.w.ledger.StartAttempt(d.t.Context(), run)
	d.must(err)
	d.must(d.w.ledger.Finish(d.t.Context(), attempt, ledger.Result{Outcome: outcome}))
}

func (d *harness) claim() claim.Status {
	d.t.Helper()
	due, err := d.w.ledger.Claims.PendingAfterMoves(d.t.Context(), 10)
	d.must(err)
	if len(due) != 1 {
		d.t.Fatalf("%d files wait for what is due to them", len(due))
	}
	return due[0]
}

// applyAfter applies the pending action and returns the claim afterwards.
func (d *harness) applyAfter(c claim.Status) claim.Status {
	d.t.Helper()
	d.must(d.w.applyAfterActions(d.t.Context()))
	got, ok, err := d.w.ledger.Claims.Of(d.t.Context(), c.Job, c.Path, c.Hash)
	if err != nil || !ok {
		d.t.Fatalf("no claim: %v", err)
	}
	return got
}

func (d *harness) note() string {
	d.t.Helper()
	events, err := d.w.ledger.Events.List(d.t.Context(), event.Filter{Job: "in"})
	d.must(err)
	last := ""
	for _, e := range events {
		if e.Kind == "file.after" {
			var data struct{ Error string }
			d.must(json.Unmarshal(e.Data, &data))
			last = data.Error
		}
	}

	return last
}

// TestAfterByOutcome checks that the outcome selects the rule.
func TestAfterByOutcome(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[domain.Outcome]string{
		domain.OutcomeSuccess: "done", domain.OutcomeNothing: "done", domain.OutcomePartial: "done",
		domain.OutcomeError: "failed", domain.OutcomeTimeout: "failed", domain.OutcomeBudget: "failed",
		domain.OutcomeCancelled: "failed", domain.OutcomeInterrupted: "failed", domain.OutcomeSkipped: "failed",
	} {
		d := newHarness(t)
		w := Watch{Job: "in", Agent: "a", Path: d.path("inbox"), OnSuccess: after.Rule{Action: "move", Dir: d.path("done")}, OnFailure: after.Rule{Action: "move", Dir: d.path("failed")}}
		d.must(d.w.Set(t.Context(), []Watch{w}))
		got := d.applyAfter(d.run(w, d.write("inbox/a.csv", "1"), outcome))
		if got.After != claim.AfterDone || got.Dest != d.path(want+"/a.csv") {
			t.Errorf("%s: %+v", outcome, got)
		}
		d.read(want+"/a.csv", "1")
	}
}

// TestAfterKilledBetweenMoveAndRecord checks that the move is recorded after a crash, and that no
// file is moved twice.
func TestAfterKilledBetweenMoveAndRecord(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	w := d.set(after.Rule{Action: "move", Dir: d.path("done")})
	d.write("done/a.csv", "another")
	c := d.run(w, d.write("inbox/a.csv", "1"), domain.OutcomeSuccess)
	state, dest, _, _ := d.w.mover.Apply(t.Context(), w.afterRules(), c) // without FinishAfterMove
	if state != claim.AfterDone || dest != d.path("done/a-2.csv") {
		t.Fatalf("%s %s", state, dest)
	}
	if got := d.applyAfter(c); got.After != claim.AfterDone || got.Dest != dest || d.note() != "" {
		t.Errorf("%+v, %s", got, d.note())
	}

	d.missing("done/a-3.csv")
}

// TestAfterAcrossFileSystems simulates a crash between the copy to another file system and the
// removal of the original.
func TestAfterAcrossFileSystems(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	far := otherFileSystem(t, d.base)
	w := d.set(after.Rule{Action: "move", Dir: far})
	path := d.write("inbox/a.csv", "1")
	d.must(os.Chmod(path, 0o640))
	long := time.Now().Add(-time.Hour).Truncate(time.Second)
	d.must(os.Chtimes(path, long, long))
	c := d.run(w, path, domain.OutcomeSuccess)
	copied := filepath.Join(far, "a.csv") // the original was not removed
	d.must(os.WriteFile(copied, []byte("1"), 0o640))
	d.must(os.Chtimes(copied, long, long))
	if got := d.applyAfter(c); got.After != claim.AfterDone || got.Dest != filepath.Join(far, "a.csv") {
		t.Errorf("%+v", got)
	}

	d.missing("inbox/a.csv")
	there, err := os.Lstat(filepath.Join(far, "a.csv"))
	if err != nil || there.Mode().Perm() != 0o640 || !there.ModTime().Equal(long) {
		t.Errorf("%v (%v)", there, err)
	}
	if entries, err := os.ReadDir(far); err != nil || len(entries) != 1 {
		t.Errorf("%v (%v)", entries, err)
	}

	// A file with the same name and other content gets another name.
	c = d.run(w, d.write("inbox/a.csv", "22"), domain.OutcomeSuccess)
	if got := d.applyAfter(c); got.Dest != filepath.Join(far, "a-2.csv") {
		t.Errorf("%+v", got)
	}
	d.missing("inbox/a.csv")
}

// TestMoveTakesNothingForItsCopy checks that a copy of an interrupted move is recognized by its
// time and content. A file with another time or content is not a copy. On the same file system no
// file is a copy, because files are renamed there.
func TestMoveTakesNothingForItsCopy(t *testing.T) {
	t.Parallel()
	long := time.Now().Add(-time.Hour).Truncate(time.Second)
	for name, c := range map[string]struct {
		far  bool
		text string
		at   time.Time
		want string
	}{
		"its copy":                 {true, "1", long, "a.csv"},
		"another time":             {true, "1", long.Add(time.Second), "a-2.csv"},
		"another content":          {true, "2", long, "a-2.csv"},
		"another length":           {true, "22", long, "a-2.csv"},
		"on the same file system":  {false, "1", long, "a-2.csv"},
		"nothing that it could be": {true, "", long, "a-2.csv"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newHarness(t)
			dir := d.path("done")
			if c.far {
				dir = otherFileSystem(t, d.base)
			}
			w := d.set(after.Rule{Action: "move", Dir: dir})
			there := d.handle(filepath.Join(dir, "a.csv")).Path()
			d.must(os.WriteFile(there, []byte(c.text), 0o644))
			path := d.write("inbox/a.csv", "1")
			d.must(os.Chtimes(there, c.at, c.at))
			d.must(os.Chtimes(path, long, long))
			if got := d.applyAfter(d.run(w, path, domain.OutcomeSuccess)); got.After != claim.AfterDone || got.Dest != filepath.Join(dir, c.want) {
				t.Errorf("%+v", got)
			}
			d.missing("inbox/a.csv")
			if got, err := os.ReadFile(there); err != nil || string(got) != c.text {
				t.Errorf("what was there holds %q (%v)", got, err)
			}
		})
	}
}

func otherFileSystem(t *testing.T, here string) string {
	t.Helper()
	far := filepath.Join("/dev/shm", "rouse-"+filepath.Base(filepath.Dir(here)))
	if err := os.Mkdir(far, 0o755); err != nil {
		t.Skip("there is no second file system here")
	}

	t.Cleanup(func() { os.RemoveAll(far) })
	a, err1 := os.Stat(here)
	b, err2 := os.Stat(far)
	if err1 != nil || err2 != nil || fsys.StampOf(a).Device == fsys.StampOf(b).Device {
		t.Skip("there is no second file system here")
	}

	return far
}

// TestAfterOfAChangedOrMissingFile checks that a changed or missing file is not an error, and that
// no content is lost.
func TestAfterOfAChangedOrMissingFile(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	w := d.set(after.Rule{Action: "move", Dir: d.path("done")})
	c := d.run(w, d.write("inbox/a.csv", "1"), domain.OutcomeSuccess)
	d.write("inbox/a.csv", "changed")
	if got := d.applyAfter(c); got.After != claim.AfterDone || got.Dest != "" || !strings.Contains(d.note(), "changed since") {
		t.Errorf("%+v, %s", got, d.note())
	}

	d.read("inbox/a.csv", "changed")
	c = d.run(w, d.path("inbox/a.csv"), domain.OutcomeSuccess)
	d.must(os.Remove(d.path("inbox/a.csv")))
	if got := d.applyAfter(c); got.After != claim.AfterDone || d.note() != "the file was gone" {
		t.Errorf("%+v, %s", got, d.note())
	}
}

// TestMoveReplacesNothing checks that a move never replaces an existing file.
func TestMoveReplacesNothing(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	w := d.set(after.Rule{Action: "move", Dir: d.path("done")})
	d.write("done/a.csv", "first")
	d.must(os.Mkdir(d.path("done/a-2.csv"), 0o755))
	c := d.run(w, d.write("inbox/a.csv", "second"), domain.OutcomeSuccess)
	if got := d.applyAfter(c); got.Dest != d.path("done/a-3.csv") {
		t.Errorf("%+v", got)
	}

	d.read("done/a.csv", "first")
	d.read("done/a-3.csv", "second")
}

// TestAfterRetriesWhatFails checks that a move to an unwritable destination reports an error, keeps
// the file and is retried.
func TestAfterRetriesWhatFails(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	w := d.set(after.Rule{Action: "move", Dir: d.path("done")})
	d.write("done", "a file where the folder should be")
	c := d.run(w, d.write("inbox/a.csv", "1"), domain.OutcomeSuccess)
	if got := d.applyAfter(c); got.After != claim.AfterFailed || !strings.Contains(d.note(), "cannot be created") {
		t.Errorf("%+v, %s", got, d.note())
	}

	d.read("inbox/a.csv", "1")
	if f := d.w.folders["in"]; !f.moves.nextRetries()[d.path("inbox/a.csv")] {
		t.Error("the next scan passes over it")
	}

	d.must(os.Remove(d.path("done")))
	if _, err := EnqueueFile(t.Context(), d.w.ledger, w, d.path("inbox/a.csv"), false); err != nil { // queues the file like a scan
		t.Fatal(err)
	}
	if got := d.applyAfter(c); got.After != claim.AfterDone {
		t.Errorf("%+v", got)
	}

	d.read("done/a.csv", "1")
}

// TestRetriesProbe checks that a scan retries a few files while moving fails, and all files after
// one move has succeeded.
func TestRetriesProbe(t *testing.T) {
	f := newFolder(&Watcher{}, Watch{Settle: time.Second})
	f.scanAt = time.Now().Add(time.Hour)
	for i := range 100 {
		f.moves.noteAfterAction(filepath.Join("in", string(rune('a'+i))), errors.New("no space"))
	}

	if n := len(f.moves.nextRetries()); n != maxProbes {
		t.Errorf("%d files are tried", n)
	}

	if why := f.nextScanReason(); why != "" {
		t.Errorf("a scan while moving fails: %s", why)
	}

	f.moves.noteAfterAction("in/ok", nil)
	if n := len(f.moves.nextRetries()); n != 100-maxProbes || f.nextScanReason() == "" {
		t.Errorf("%d files are tried after a success", n)
	}

	f.moves.noteAfterAction("in/ok", nil)
	if why := f.nextScanReason(); why != "" {
		t.Errorf("a scan although nothing is left to be tried: %s", why)
	}
}

// TestMoveFailureIsNewsOnce checks that an error of moving is reported once, and again after a
// success.
func TestMoveFailureIsNewsOnce(t *testing.T) {
	f := newFolder(&Watcher{}, Watch{})
	full, denied := errors.New("no space"), errors.New("permission denied")
	for i, c := range []struct {
		failure error
		news    bool
	}{{nil, false}, {full, true}, {full, false}, {denied, true}, {denied, false}, {nil, false}, {denied, true}} {
		if got := f.moves.noteAfterAction("in/a.csv", c.failure); got != c.news {
			t.Errorf("%d, %v: news: %t", i, c.failure, got)
		}
	}
}

// TestMoveErrorOfAVanishedFile checks that the error of a file that no longer exists is dropped,
// and that the error of an existing file stays.
func TestMoveErrorOfAVanishedFile(t *testing.T) {
	f := newFolder(&Watcher{}, Watch{})
	for _, path := range []string{"in/gone.csv", "in/here.csv"} {
		f.moves.noteAfterAction(path, errors.New("no space"))
	}

	f.moves.forgetVanished(f.moves.nextRetries(), &walk{files: []tree.Sighting{{Path: "in/here.csv"}}})
	if _, here := f.moves.moveErrors["in/here.csv"]; !here || len(f.moves.moveErrors) != 1 {
		t.Errorf("%v", f.moves.moveErrors)
	}
}

// TestAfterOfARetriedRun checks that the file of a retried run is found at the destination of the
// failure rule.
func TestAfterOfARetriedRun(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	w := Watch{Job: "in", Agent: "a", Path: d.path("inbox"), OnSuccess: after.Rule{Action: "move", Dir: d.path("done")}, OnFailure: after.Rule{Action: "move", Dir: d.path("failed")}}
	d.must(d.w.Set(t.Context(), []Watch{w}))
	c := d.applyAfter(d.run(w, d.write("inbox/a.csv", "1"), domain.OutcomeError))
	d.read("failed/a.csv", "1")
	if _, err := d.w.ledger.Retry(t.Context(), c.Run); err != nil {
		t.Fatal(err)
	}

	d.end(c.Run, domain.OutcomeSuccess)
	if got := d.applyAfter(c); got.After != claim.AfterDone || got.Dest != d.path("done/a.csv") {
		t.Errorf("%+v", got)
	}

	d.missing("failed/a.csv")
}

// TestAfterLeavesWhatIsNotInTheFolder checks that a named file from another folder stays in place,
// and so does the file of a job without a watch.
func TestAfterLeavesWhatIsNotInTheFolder(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	w := d.set(after.Rule{Action: "delete"})
	if got := d.applyAfter(d.run(w, d.write("elsewhere/a.csv", "1"), domain.OutcomeSuccess)); got.After != claim.AfterLeft {
		t.Errorf("%+v", got)
	}

	for _, action := range []string{"", after.Leave} {
		w := d.set(after.Rule{Action: action})
		if got := d.applyAfter(d.run(w, d.write("inbox/"+action+".csv", action), domain.OutcomeSuccess)); got.After != claim.AfterLeft || got.Dest != "" {
			t.Errorf("%q: %+v", action, got)
		}
		d.read("inbox/"+action+".csv", action)
	}

	d.read("elsewhere/a.csv", "1")
	if got := d.applyAfter(d.run(Watch{Job: "other"}, d.path("elsewhere/a.csv"), domain.OutcomeSuccess)); got.After != claim.AfterLeft {
		t.Errorf("%+v", got)
	}
}

// TestAfterWaitsForTheWatches checks that no action is applied before the watches are known.
func TestAfterWaitsForTheWatches(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.run(Watch{Job: "in"}, d.write("inbox/a.csv", "1"), domain.OutcomeSuccess)
	d.must(d.w.applyAfterActions(t.Context()))
	d.claim()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d.set(after.Rule{Action: "delete"})
	if err := d.w.applyAfterActions(ctx); err == nil {
		d.read("inbox/a.csv", "1")
	}

	d.claim()
}

// TestAfterStaysInTheFolder checks that the actions do not follow a link out of the watched folder,
// neither to a file nor to a folder.
func TestAfterStaysInTheFolder(t *testing.T) {
	t.Parallel()
	for _, success := range []after.Rule{{Action: "delete"}, {Action: "move", Dir: "elsewhere"}, {Action: "move", Dir: "inbox/done"}} {
		d := newHarness(t)
		if success.Dir != "" {
			success.Dir = d.path(success.Dir)
		}

		w := d.set(success)
		d.write("outside/a.csv", "1")
		c := d.run(w, d.write("inbox/sub/a.csv", "1"), domain.OutcomeSuccess)
		d.must(os.Rename(d.path("inbox/sub"), d.path("inbox/bus")))
		d.link("outside", "inbox/sub")
		if got := d.applyAfter(c); got.After != claim.AfterFailed || !strings.Contains(d.note(), "escapes") {
			t.Errorf("%+v: %+v, %s", success, got, d.note())
		}

		d.read("outside/a.csv", "1")
	}

	d := newHarness(t)
	w := d.set(after.Rule{Action: "move", Dir: d.path("inbox/done")})
	d.must(os.Mkdir(d.path("outside"), 0o755))
	d.link("outside", "inbox/done")
	c := d.run(w, d.write("inbox/a.csv", "1"), domain.OutcomeSuccess)
	if got := d.applyAfter(c); got.After != claim.AfterFailed || !strings.Contains(d.note(), "is a link") {
		t.Errorf("%+v, %s", got, d.note())
	}

	d.read("inbox/a.csv", "1")
	d.missing("outside/a.csv")

	// The file is not moved to another subfolder either.
	d.must(os.Remove(d.path("inbox/done")))
	d.must(os.MkdirAll(d.path("inbox/repo/.git/hooks"), 0o755))
	d.link("inbox/repo/.git/hooks", "inbox/done")
	if got := d.applyAfter(c); got.After != claim.AfterFailed || !strings.Contains(d.note(), "is a link") {
		t.Errorf("%+v, %s", got, d.note())
	}
	d.missing("inbox/repo/.git/hooks/a.csv")
}

func (d *harness) link(to, name string) {
	d.t.Helper()
	if err := os.Symlink(d.path(to), d.path(name)); err != nil {
		d.t.Skip("links cannot be made here")
	}
}

// TestHashingStaysInTheFolder checks that a file outside is not hashed if a folder has become a
// link to it while its files settled.
func TestHashingStaysInTheFolder(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.set(after.Rule{})
	f := d.w.folders["in"]
	f.rootFound(d.path("inbox"))
	path := d.write("inbox/sub/a.csv", "1")
	now := time.Now()
	info, err := os.Lstat(path)
	d.must(err)
	f.files.debouncer.Observe(path, now, fsys.StampOf(info), settle.Changed)
	d.must(os.Rename(d.path("inbox/sub"), d.path("outside")))
	d.link("outside", "inbox/sub") // the same file through the same path
	due := f.files.debouncer.Dequeue(now.Add(time.Minute), 10)
	if got := f.files.hashDue(t.Context(), due); len(due) != 1 || len(got) != 0 {
		t.Errorf("%+v of %+v", got, due)
	}
}

// TestAfterKilledInADeletion checks that a deletion is completed after a crash between its two
// steps.
func TestAfterKilledInADeletion(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	w := d.set(after.Rule{Action: "delete"})
	c := d.run(w, d.write("inbox/a.csv", "1"), domain.OutcomeSuccess)
	d.must(os.Rename(d.path("inbox/a.csv"), d.path(fmt.Sprintf("inbox/.deleting-%d", c.ID))))
	if got := d.applyAfter(c); got.After != claim.AfterDone || got.Dest != "" {
		t.Errorf("%+v", got)
	}
	if left, err := os.ReadDir(d.path("inbox")); err != nil || len(left) != 0 {
		t.Errorf("%v (%v)", left, err)
	}
}

// TestAfterManyOfAnotherNode checks that the files of this node are handled, although many files of
// other nodes come first.
func TestAfterManyOfAnotherNode(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.w.elsewhere = func(job string) bool { return job == "theirs" }
	d.set(after.Rule{Action: "delete"})
	take := func(job string, n int) {
		r := ledger.Request{Job: job, Agent: "a", Trigger: domain.TriggerWatch}
		for i := range n {
			path := d.path(fmt.Sprintf("inbox/%s-%d.csv", job, i))
			r.Detail.Files = append(r.Detail.Files, fileOf(path, fsys.Stamp{}, "h"))
			r.Claims = append(r.Claims, claimOf(job, path, fsys.Stamp{}, "h"))
		}
		a, err := d.w.ledger.Enqueue(t.Context(), r)
		d.must(err)
		d.end(a[0].Run, domain.OutcomeSuccess)
	}
	take("theirs", maxPerTx)
	take("in", maxPerTx+1)

	d.must(d.w.applyAfterActions(t.Context()))
	due, err := d.w.ledger.Claims.PendingAfterMoves(t.Context(), 10_000)
	d.must(err)
	if len(due) != maxPerTx || slices.ContainsFunc(due, func(c claim.Status) bool { return c.Job != "theirs" }) {
		t.Errorf("%d files wait for what is due to them", len(due))
	}
}

// TestAfterFailureOfARunRetriedMeanwhile checks that a late error is not a problem of the watch.
// The run was retried, and another outcome decides.
func TestAfterFailureOfARunRetriedMeanwhile(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	w := Watch{Job: "in", Agent: "a", Path: d.path("inbox"), OnFailure: after.Rule{Action: "move", Dir: d.path("failed")}}
	d.must(d.w.Set(t.Context(), []Watch{w}))
	d.write("failed", "a file where the folder should be")
	c := d.run(w, d.write("inbox/a.csv", "1"), domain.OutcomeError)
	if _, err := d.w.ledger.Retry(t.Context(), c.Run); err != nil {
		t.Fatal(err)
	}

	d.must(d.w.applyAfterAction(t.Context(), c))
	if got := d.w.Status(t.Context())[0]; got.Problem != "" {
		t.Errorf("%+v", got)
	}
	if got := d.applyAfter(d.claim()); got.After != claim.AfterNone || got.Dest != "" {
		t.Errorf("it is still at its path: %+v", got)
	}
}

// TestAfterOfAFilePutBack checks that a file that is put back unchanged gets no second copy, if the
// moved file still exists.
func TestAfterOfAFilePutBack(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	w := d.set(after.Rule{Action: "move", Dir: d.path("done")})
	d.applyAfter(d.run(w, d.write("inbox/a.csv", "1"), domain.OutcomeSuccess))
	if got := d.applyAfter(d.run(w, d.write("inbox/a.csv", "1"), domain.OutcomeSuccess)); got.After != claim.AfterDone || got.Dest != d.path("done/a.csv") {
		t.Errorf("%+v", got)
	}
	d.read("done/a.csv", "1")
	d.missing("inbox/a.csv")
	d.missing("done/a-2.csv")

	// The destination now has another file, which stays.
	d.write("done/a.csv", "2")
	if got := d.applyAfter(d.run(w, d.write("inbox/a.csv", "1"), domain.OutcomeSuccess)); got.After != claim.AfterDone || got.Dest != d.path("done/a-2.csv") {
		t.Errorf("%+v", got)
	}
	d.read("done/a.csv", "2")
	d.read("done/a-2.csv", "1")
}

// TestAfterBesideTheSameContent checks that a file that is put back after its move is moved
// according to the new outcome. Another file with the same content at the destination is not its
// copy.
func TestAfterBesideTheSameContent(t *testing.T) {
	t.Parallel()
	for _, putBack := range []bool{true, false} {
		d := newHarness(t)
		w := Watch{Job: "in", Agent: "a", Path: d.path("inbox"), OnSuccess: after.Rule{Action: "move", Dir: d.path("done")}, OnFailure: after.Rule{Action: "move", Dir: d.path("failed")}}
		d.must(d.w.Set(t.Context(), []Watch{w}))
		c := d.applyAfter(d.run(w, d.write("inbox/a.csv", "1"), domain.OutcomeError))
		d.write("done/a.csv", "1")
		if putBack {
			d.must(os.Rename(d.path("failed/a.csv"), d.path("inbox/a.csv")))
		} else {
			d.must(os.Remove(d.path("failed/a.csv")))
		}

		if _, err := d.w.ledger.Retry(t.Context(), c.Run); err != nil {
			t.Fatal(err)
		}
		d.end(c.Run, domain.OutcomeSuccess)
		got := d.applyAfter(c)
		if want := map[bool]string{true: d.path("done/a-2.csv"), false: ""}[putBack]; got.After != claim.AfterDone || got.Dest != want {
			t.Errorf("put back: %t: %+v", putBack, got)
		}
		if putBack {
			d.read("done/a-2.csv", "1")
		}
		d.read("done/a.csv", "1")
	}
}

// TestAfterOfARunRetriedAtOnce retries a run before the new path of its file is recorded.
func TestAfterOfARunRetriedAtOnce(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	w := Watch{Job: "in", Agent: "a", Path: d.path("inbox"), OnSuccess: after.Rule{Action: "move", Dir: d.path("done")}, OnFailure: after.Rule{Action: "move", Dir: d.path("failed")}}
	d.must(d.w.Set(t.Context(), []Watch{w}))
	d.write("failed/a.csv", "2")
	c := d.run(w, d.write("inbox/a.csv", "1"), domain.OutcomeError)
	state, dest, _, _ := d.w.mover.Apply(t.Context(), w.afterRules(), c)
	if _, err := d.w.ledger.Retry(t.Context(), c.Run); err != nil {
		t.Fatal(err)
	}

	// The run waits for this action, because it needs its file. The file must not be moved again
	// while the run works.
	if now := d.applyAfter(c); now.After != claim.AfterNone || now.Dest != dest {
		t.Errorf("%+v", now)
	}

	late := func() {
		if ended, err := d.w.ledger.Claims.FinishAfterMove(t.Context(), c, state, dest, ""); ended || err != nil {
			t.Errorf("%v (%v)", ended, err)
		}
	}

	late()
	d.write("inbox/a.csv", "another")
	d.end(c.Run, domain.OutcomeSuccess)
	late()
	if got := d.applyAfter(c); got.After != claim.AfterDone || got.Dest != d.path("done/a.csv") {
		t.Errorf("%+v", got)
	}

	d.read("done/a.csv", "1")
	d.read("inbox/a.csv", "another")
	d.missing("failed/a-2.csv")
	d.read("failed/a.csv", "2")
}

// TestMoveByTemplate moves files to destinations with untrusted values.
func TestMoveByTemplate(t *testing.T) {
	for name, c := range map[string]struct{ template, value, want string }{
		"a name":           {"{{ .File.Name }}", "a.csv", "sorted/a.csv"},
		"a new name":       {"2026-{{ .File.Name }}", "a.csv", "sorted/2026-a.csv"},
		"a folder":         {"{{ .Input.kind }}", "invoices", "sorted/invoices/a.csv"},
		"folders":          {"all/{{ .Input.kind }}/new", "invoices", "sorted/all/invoices/new/a.csv"},
		"a folder, named":  {"{{ .Input.kind }}/{{ .File.Name }}", "x", "sorted/x/x"},
		"upwards":          {"{{ .Input.kind }}", "..", "sorted/_./a.csv"},
		"out":              {"{{ .Input.kind }}/{{ .File.Name }}", "../../etc", "sorted/_._.._etc/.._.._etc"},
		"an absolute one":  {"{{ .Input.kind }}", "/etc/cron.d", "sorted/_etc_cron.d/a.csv"},
		"a hidden folder":  {"{{ .Input.kind }}", ".git", "sorted/_git/a.csv"},
		"nothing":          {"{{ .Input.kind }}", "", "sorted/_/a.csv"},
		"dots for a name":  {"{{ .File.Name }}", "..", "sorted/_."},
		"lines":            {"{{ .Input.kind }}", "a\nb\x00c", "sorted/a_b_c/a.csv"},
		"a very long name": {"{{ .File.Name }}", strings.Repeat("n", 300) + ".csv", "sorted/" + strings.Repeat("n", 196) + ".csv"},
		"a windows path":   {"{{ .Input.kind }}", `..\..\x`, "sorted/_._.._x/a.csv"},
		"text around":      {`in "{{ "a/b" }}"`, "v", `sorted/v/a.csv`},
	} {
		t.Run(name, func(t *testing.T) {
			d := newHarness(t)
			d.w.mover.Expand = func(_ context.Context, part string, _ claim.Status) (string, error) {
				if i := strings.Index(part, "{{"); i >= 0 && strings.Contains(part, ".") {
					return part[:i] + c.value, nil
				} else if i >= 0 {
					return c.value, nil
				}
				return part, nil
			}
			w := d.set(after.Rule{Action: after.Move, Dir: d.path("sorted"), Template: c.template})
			taken := d.run(w, d.write("inbox/a.csv", "content"), domain.OutcomeSuccess)
			state, dest, note, _ := d.w.mover.Apply(t.Context(), w.afterRules(), taken) // a crash before the move was recorded
			if state != claim.AfterDone || dest != d.path(c.want) {
				t.Fatalf("%s %s %s", state, dest, note)
			}
			if got := d.applyAfter(taken); got.After != claim.AfterDone || got.Dest != dest {
				t.Errorf("%+v", got)
			}
			d.read(c.want, "content")
		})
	}
}
