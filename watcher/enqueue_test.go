package watcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/event"
	"rouse/watcher/after"
	"rouse/watcher/fsys"
	"rouse/watcher/settle"
)

// settled returns a file of the watched folder that has settled and been hashed.
func (d *harness) settled(name, hash string) candidate {
	d.t.Helper()
	info, err := os.Lstat(d.path(name))
	d.must(err)
	c := ready(d.path(name), fsys.StampOf(info))
	c.hash = hash
	return c
}

// kinds returns the kinds of the watch's events, oldest first.
func (d *harness) kinds() string {
	d.t.Helper()
	events, err := d.w.ledger.Events.List(d.t.Context(), event.Filter{Job: "in"})
	d.must(err)
	var out []string
	for _, e := range events {
		if strings.HasPrefix(e.Kind, "watch.") || e.Kind == "file.blocked" || e.Kind == claim.FileBack {
			out = append(out, e.Kind)
		}
	}
	return strings.Join(out, " ")
}

// TestAlreadyClaimed checks that the same bytes get no other run while their run is unfinished, or
// if they stay in place after a success. A file that is saved again causes an event. If bytes
// return after they were moved away, they get another run after a success and wait after a failure.
func TestAlreadyClaimed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		success, failure string
		outcome          domain.Outcome // outcome of their run; "" until it ends
		pending          bool           // the action after the run is pending
		undone           bool
		saved, event     bool // the file has a new time; an event was received
		claimed, waits   bool
		blocked          string
	}{
		"its run is on":                     {outcome: "", claimed: true},
		"its run is on, saved":              {outcome: "", saved: true, event: true, claimed: true, blocked: "file.blocked"},
		"its run is on, found by a scan":    {outcome: "", saved: true, claimed: true},
		"its run is on, touched by nobody":  {outcome: "", event: true, claimed: true},
		"done":                              {outcome: domain.OutcomeSuccess, claimed: true},
		"done, saved":                       {outcome: domain.OutcomeSuccess, saved: true, event: true, claimed: true, blocked: "file.blocked"},
		"done, and not dealt with":          {success: after.Delete, outcome: domain.OutcomeSuccess, pending: true, claimed: true, waits: true},
		"done, and moved":                   {success: after.Move, outcome: domain.OutcomeSuccess},
		"failed":                            {outcome: domain.OutcomeError, claimed: true},
		"failed, saved":                     {outcome: domain.OutcomeError, saved: true, event: true, claimed: true, blocked: claim.FileBack},
		"failed, and moved":                 {failure: after.Move, outcome: domain.OutcomeError, claimed: true, blocked: claim.FileBack},
		"failed, and could not be moved":    {failure: "blocked", outcome: domain.OutcomeError},
		"undone":                            {success: after.Move, outcome: domain.OutcomeSuccess, undone: true, claimed: true},
		"undone, saved":                     {success: after.Move, outcome: domain.OutcomeSuccess, undone: true, saved: true},
		"failed and undone":                 {failure: after.Move, outcome: domain.OutcomeError, undone: true, claimed: true},
		"failed, and not dealt with so far": {failure: after.Move, outcome: domain.OutcomeError, pending: true, claimed: true, waits: true},
	} {
		d := newHarness(t)
		w := Watch{Job: "in", Agent: "a", Path: d.path("inbox"), Settle: time.Hour}
		if c.success != "" {
			w.OnSuccess = after.Rule{Action: c.success, Dir: d.path("done")}
		}
		if c.failure != "" {
			w.OnFailure = after.Rule{Action: after.Move, Dir: d.path("failed")}
		}
		if c.failure == "blocked" {
			d.write("failed", "a file where the folder should be")
		}
		d.must(d.w.Set(t.Context(), []Watch{w}))
		f := d.w.folders["in"]

		long := time.Now().Add(-time.Hour)
		d.must(os.Chtimes(d.write("inbox/a.csv", "1"), long, long))
		a, err := EnqueueFile(t.Context(), d.w.ledger, w, d.path("inbox/a.csv"), false)
		d.must(err)
		if c.outcome != "" {
			d.end(a.Run, c.outcome)
		}
		if !c.pending {
			d.must(d.w.applyAfterActions(t.Context()))
		}

		if c.undone {
			claims, err := d.w.ledger.Claims.OfRun(t.Context(), a.Run)
			d.must(err)
			d.must(d.w.ledger.Claims.DisownFiles(t.Context(), claims))
		}

		d.write("inbox/a.csv", "1") // put the file back if it was moved away
		if c.saved {
			long = long.Add(time.Second)
		}
		d.must(os.Chtimes(d.path("inbox/a.csv"), long, long))
		one := d.settled("inbox/a.csv", "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b")
		one.FromEvent = c.event
		claimed, err := f.files.alreadyClaimed(t.Context(), one)
		if claimed != c.claimed || err != nil || f.files.debouncer.Has(one.Path) != c.waits {
			t.Errorf("%s: %t (%v), waits: %t", name, claimed, err, f.files.debouncer.Has(one.Path))
		}
		if got := d.kinds(); got != c.blocked {
			t.Errorf("%s: told %q, want %q", name, got, c.blocked)
		}
		if _, known := f.files.known.Get(f.files.stampHasher.Of(one.Path, one.stamp)); known != (c.claimed && !c.waits) {
			t.Errorf("%s: scans pass over it: %t", name, known)
		}
	}
}

// TestMarkKnown checks that scans skip only files with a stamp that another write would change.
func TestMarkKnown(t *testing.T) {
	t.Parallel()
	f := newFolder(&Watcher{}, Watch{})
	for ago, want := range map[time.Duration]bool{0: false, time.Minute: true} {
		st := fsys.Stamp{Size: 1, Modified: time.Now().Add(-ago).UnixNano() | 1}
		f.files.markKnown("a", st)
		if _, known := f.files.known.Get(f.files.stampHasher.Of("a", st)); known != want {
			t.Errorf("written %s ago: %t", ago, known)
		}
	}
}

// TestReviewBack checks that a failed file waits while it exists and its run is not retried. After
// an error of the ledger, the check is repeated.
func TestReviewBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(d *harness, c claim.Status)
		back   int
		after  string
	}{
		"still there": {func(*harness, claim.Status) {}, 1, claim.AfterBack},
		"gone":        {func(d *harness, _ claim.Status) { d.must(os.Remove(d.path("inbox/a.csv"))) }, 0, claim.AfterDone},
		"tried again": {func(d *harness, c claim.Status) {
			_, err := d.w.ledger.Retry(d.t.Context(), c.Run)
			d.must(err)
		}, 0, claim.AfterNone},
		"tried again, and gone": {func(d *harness, c claim.Status) {
			_, err := d.w.ledger.Retry(d.t.Context(), c.Run)
			d.must(err)
			d.must(os.Remove(d.path("inbox/a.csv")))
		}, 0, claim.AfterNone},
		"nobody knows": {func(d *harness, _ claim.Status) { d.must(d.w.ledger.Close()) }, 1, ""},
	} {
		d := newHarness(t)
		w := Watch{Job: "in", Agent: "a", Path: d.path("inbox"), OnFailure: after.Rule{Action: after.Move, Dir: d.path("failed")}}
		d.must(d.w.Set(t.Context(), []Watch{w}))
		f := d.w.folders["in"]
		taken := d.applyAfter(d.run(w, d.write("inbox/a.csv", "1"), domain.OutcomeError))
		d.write("inbox/a.csv", "1")
		if back, err := f.files.fileReappeared(t.Context(), d.settled("inbox/a.csv", taken.Hash), taken); !back || err != nil {
			t.Fatalf("%s: %t, %v", name, back, err)
		}

		c.change(d, taken)
		f.files.reviewBack(t.Context())
		if len(f.files.reappeared) != c.back {
			t.Errorf("%s: %v", name, f.files.reappeared)
		}
		if c.after == "" && name == "nobody knows" {
			continue
		}
		if got, _, err := d.w.ledger.Claims.Of(t.Context(), "in", taken.Path, taken.Hash); err != nil || got.After != c.after {
			t.Errorf("%s: %+v (%v)", name, got, err)
		}
	}
}

// TestIsBack checks that only a failed file whose action is done can reappear, and that the owner
// is notified if notices are configured.
func TestIsBack(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	w := Watch{Job: "in", Agent: "a", Path: d.path("inbox"), OnFailure: after.Rule{Action: after.Move, Dir: d.path("failed")}}
	d.must(d.w.Set(t.Context(), []Watch{w}))
	f := d.w.folders["in"]
	taken := d.applyAfter(d.run(w, d.write("inbox/a.csv", "1"), domain.OutcomeError))
	d.write("inbox/a.csv", "1")
	one := d.settled("inbox/a.csv", taken.Hash)
	done, failed := taken, taken
	done.Outcome, failed.After = domain.OutcomeSuccess, claim.AfterFailed
	for name, c := range map[string]claim.Status{"it was done": done, "it could not be moved": failed} {
		if back, err := f.files.fileReappeared(t.Context(), one, c); back || err != nil || len(f.files.reappeared) != 0 {
			t.Errorf("%s: %t, %v", name, back, err)
		}
	}

	told := ""
	d.w.returnNotices = func(job, path string, run int64) []ledger.Notice {
		told = fmt.Sprintf("%s %s %d", job, filepath.Base(path), run)
		return nil
	}
	if back, err := f.files.fileReappeared(t.Context(), one, taken); !back || err != nil || told != "in a.csv 1" {
		t.Errorf("%t, %v, told %q", back, err, told)
	}

	d.must(d.w.ledger.Close())
	if back, err := f.files.fileReappeared(t.Context(), one, taken); back || err == nil || !f.files.debouncer.Has(one.Path) {
		t.Errorf("not recorded: %t, %v", back, err)
	}
}

// TestHashFailed checks that a file that cannot be hashed waits again if it has changed, is dropped
// if it is gone, and is a problem otherwise.
func TestHashFailed(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.set(after.Rule{})
	f := d.w.folders["in"]
	d.write("inbox/a.csv", "1")
	for name, c := range map[string]struct {
		err     error
		path    string
		waits   bool
		problem bool
	}{
		"it changed":           {fsys.ErrChanged, "a.csv", true, false},
		"it changed, and went": {fsys.ErrChanged, "gone.csv", false, false},
		"it went":              {&os.PathError{Op: "open", Path: "a.csv", Err: os.ErrNotExist}, "a.csv", false, false},
		"a hard link":          {settle.ErrHardLink, "a.csv", true, false},
		"it is broken":         {errors.New("input/output error"), "a.csv", false, true},
	} {
		f.files.debouncer, f.report.unreadable = settle.NewDebouncer(time.Hour), map[string]string{}
		one := ready(d.path("inbox/"+c.path), fsys.Stamp{})
		one.err = c.err
		f.files.hashFailed(t.Context(), one)
		if f.files.debouncer.Has(one.Path) != c.waits || (len(f.report.unreadable) > 0) != c.problem {
			t.Errorf("%s: waits: %t, problems %v", name, f.files.debouncer.Has(one.Path), f.report.unreadable)
		}
	}
	if got := d.kinds(); got != "watch.unreadable" {
		t.Errorf("told %q", got)
	}

	// The problem is reported once while the file is unreadable.
	for _, path := range []string{"b.csv", "b.csv"} {
		f.report.reportUnreadable(t.Context(), path, errors.New("denied"))
	}
	delete(f.report.unreadable, "b.csv")
	f.report.reportUnreadable(t.Context(), "b.csv", errors.New("denied"))
	if got := d.kinds(); got != "watch.unreadable watch.unreadable watch.unreadable" {
		t.Errorf("told %q", got)
	}
}

// TestHashDue checks that only settled files are hashed. A file that is gone, has changed, is not a
// regular file, or is empty beside its download is skipped.
func TestHashDue(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.set(after.Rule{})
	f := d.w.folders["in"]
	f.rootFound(d.path("inbox"))
	now := time.Now()
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} { // more files than are hashed at once
		d.write("inbox/"+name, name)
	}
	for _, name := range []string{"changed", "gone", "dir", "full.pdf", "full.pdf.part", "x.pdf.part"} {
		d.write("inbox/"+name, "1")
	}
	for _, name := range []string{"x.pdf", "empty.pdf"} {
		d.write("inbox/"+name, "")
	}
	for _, name := range strings.Fields("a b c d e f changed gone dir full.pdf x.pdf empty.pdf") {
		f.files.debouncer.Observe(d.path("inbox/"+name), now, d.settled("inbox/"+name, "").stamp, settle.Scanned)
	}
	due := f.files.debouncer.Dequeue(now.Add(time.Hour), 100)
	d.write("inbox/changed", "22")
	d.must(os.Remove(d.path("inbox/gone")))
	d.must(os.Remove(d.path("inbox/dir")))
	d.must(os.Mkdir(d.path("inbox/dir"), 0o755))

	var read []string
	for _, c := range f.files.hashDue(t.Context(), due) {
		if len(c.hash) != 64 || c.err != nil {
			t.Errorf("%s: %q (%v)", c.Path, c.hash, c.err)
		}
		read = append(read, filepath.Base(c.Path))
	}
	if got := strings.Join(read, " "); got != "a b c d e f full.pdf empty.pdf" {
		t.Errorf("%s are read", got)
	}
	if f.files.debouncer.Len() != 2 || !f.files.debouncer.Has(d.path("inbox/changed")) || !f.files.debouncer.Has(d.path("inbox/x.pdf")) {
		t.Errorf("%d wait", f.files.debouncer.Len())
	}
	if got := f.files.hashDue(t.Context(), nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// TestHashDueWithoutItsFolder checks that the files of a watch wait while its folder cannot be
// opened. If the folder is missing, the scan after its return finds them.
func TestHashDueWithoutItsFolder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(d *harness)
		waits  bool
	}{
		"it is not there":     {func(d *harness) { d.must(os.Rename(d.path("inbox"), d.path("away"))) }, false},
		"a file is there":     {func(d *harness) { d.must(os.Rename(d.path("inbox"), d.path("away"))); d.write("inbox", "1") }, false},
		"a folder that loops": {func(d *harness) { d.must(os.Rename(d.path("inbox"), d.path("away"))); d.link("inbox", "inbox") }, true},
	} {
		d := newHarness(t)
		d.set(after.Rule{})
		f := d.w.folders["in"]
		f.rootFound(d.path("inbox"))
		due := []*settle.Pending{{Path: d.write("inbox/a.csv", "1")}}
		c.change(d)
		if got := f.files.hashDue(t.Context(), due); len(got) != 0 || f.files.debouncer.Has(due[0].Path) != c.waits {
			t.Errorf("%s: %v, waits: %t", name, got, f.files.debouncer.Has(due[0].Path))
		}
	}
}

// TestHashInBackground checks that a large file is hashed in the background, one version at a time.
func TestHashInBackground(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		size    int64
		hashing bool
		large   bool
	}{{0, false, false}, {largeFile - 1, true, false}, {largeFile, true, true}, {largeFile, false, true}} {
		d := newHarness(t)
		d.set(after.Rule{})
		f := d.w.folders["in"]
		f.rootFound(d.path("inbox"))
		d.must(os.Truncate(d.write("inbox/a", ""), c.size))
		one := d.settled("inbox/a", "")
		f.files.hashing[one.Path] = c.hashing
		one.Last = one.stamp
		if got := len(f.files.hashDue(t.Context(), []*settle.Pending{one.Pending})) == 0; got != c.large || f.files.debouncer.Has(one.Path) != (c.large && c.hashing) {
			t.Errorf("%+v: %t, waits: %t", c, got, f.files.debouncer.Has(one.Path))
		}
		f.files.background.Wait()
		if read := len(f.files.hashed); read != map[bool]int{true: 1}[c.large && !c.hashing] {
			t.Errorf("%+v: %d are read", c, read)
		}
		for _, h := range f.files.hashed {
			if h.err != nil || len(h.hash) != 64 {
				t.Errorf("%+v: %q (%v)", c, h.hash, h.err)
			}
		}
	}
}

// TestClaim checks that a run that could not be recorded is retried. A file with a name that is not
// UTF-8 never gets a run and is reported.
func TestClaim(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.set(after.Rule{})
	f := d.w.folders["in"]
	d.write("inbox/a.csv", "1")
	d.write("inbox/b.csv", "2")
	one, two := d.settled("inbox/a.csv", "1"), d.settled("inbox/b.csv", "2")
	odd := ready(d.path("inbox/\xff"), fsys.Stamp{})
	f.files.claim(t.Context(), []candidate{one, odd, two})
	if d.runs() != 2 || f.files.debouncer.Len() != 0 || f.report.unreadable[odd.Path] == "" || len(f.report.unreadable) != 1 {
		t.Errorf("%d runs, %d wait, problems %v", d.runs(), f.files.debouncer.Len(), f.report.unreadable)
	}
	f.files.claim(t.Context(), nil)
	f.files.claim(t.Context(), []candidate{one})
	if d.runs() != 2 {
		t.Errorf("%d runs of two files", d.runs())
	}

	f.Mode = ModeBatch
	f.files.claim(t.Context(), []candidate{one, ready(d.path("inbox/new.csv"), fsys.Stamp{})})
	if len(f.files.batch.files) != 1 || !f.files.batch.has(d.path("inbox/new.csv"), fsys.Stamp{}) {
		t.Errorf("%d files wait for the others of their run", len(f.files.batch.files))
	}
	f.Mode = ModePerFile

	var data struct{ Error string }
	events, err := d.w.ledger.Events.List(t.Context(), event.Filter{Job: "in"})
	d.must(err)
	for _, e := range events {
		if e.Kind == "watch.unreadable" {
			d.must(json.Unmarshal(e.Data, &data))
		}
	}
	if !strings.Contains(data.Error, "not UTF-8") {
		t.Errorf("%q", data.Error)
	}

	d.must(d.w.ledger.Close())
	d.write("inbox/c.csv", "3")
	three := d.settled("inbox/c.csv", "3")
	f.files.claim(t.Context(), []candidate{three})
	if !f.files.debouncer.Has(three.Path) {
		t.Error("what the ledger could not be asked is not asked again")
	}
}

// TestBreakerNotices checks the notices about a job that is paused because it writes into its own
// folder.
func TestBreakerNotices(t *testing.T) {
	t.Parallel()
	f := newFolder(&Watcher{}, Watch{Job: "in"})
	if b := f.breaker(); b.Notices != nil || b.MaxClaims != maxReclaims {
		t.Errorf("%+v", b)
	}
	f.w.breakerNotices = func(string) []ledger.Notice { return []ledger.Notice{{}} }
	if b := f.breaker(); len(b.Notices) != 1 {
		t.Errorf("%+v", b)
	}
}
