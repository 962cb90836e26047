package watcher

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/watcher/settle"
)

// TestCurrentState checks the precedence of the states: a missing folder, then mode converge, a
// running run, and files that have not settled.
func TestCurrentState(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode    string
		running bool
		is      func(f *folder)
		want    State
	}{
		"nothing":                          {ModePerFile, false, func(f *folder) {}, StateIdle},
		"files wait":                       {ModePerFile, false, func(f *folder) { f.report.status.Waiting = 1 }, StateDebouncing},
		"an event came":                    {ModePerFile, false, func(f *folder) { f.hints.noteEvent("a", true) }, StateDebouncing},
		"a run is on":                      {ModePerFile, true, func(f *folder) { f.report.status.Waiting = 1 }, StateProcessing},
		"missing":                          {ModePerFile, true, func(f *folder) { f.report.missing = true; f.report.status.Waiting = 1 }, StateMissing},
		"converges":                        {ModeConverge, false, func(f *folder) { f.report.phase = StateSettling }, StateSettling},
		"idle while another run is on":     {ModeConverge, true, func(f *folder) {}, StateIdle},
		"an event came to one that is not": {ModeConverge, false, func(f *folder) { f.hints.noteEvent("a", true) }, StateDebouncing},
		"missing while it converges":       {ModeConverge, true, func(f *folder) { f.report.missing, f.report.phase = true, StateProcessing }, StateMissing},
	} {
		f := newFolder(&Watcher{subs: newSubscriptions(nil, nil)}, Watch{Job: "in", Path: "/in", Mode: c.mode})
		c.is(f)
		if got := f.currentStatus(c.running); got.State != c.want || got.Job != "in" || got.Path != "/in" || got.Mode != c.mode {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}

// TestCurrentProblem checks that the status shows one problem and the number of further ones.
func TestCurrentProblem(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		is   func(f *folder)
		want string
	}{
		"none":                   {func(f *folder) {}, ""},
		"a scan":                 {func(f *folder) { f.report.scanning = now }, ""},
		"a scan without an end":  {func(f *folder) { f.report.scanning = now.Add(-time.Minute) }, "/in has been read since"},
		"one cannot be read":     {func(f *folder) { f.report.unreadable["b"] = "denied" }, "b cannot be read: denied; it is tried again at each scan"},
		"two cannot be read":     {func(f *folder) { f.report.unreadable["b"], f.report.unreadable["a"] = "denied", "broken" }, "a cannot be read: broken (and 1 more); it is tried again at each scan"},
		"one could not be moved": {func(f *folder) { f.moves.moveErrors["b"] = "full" }, "b could not be dealt with after its run: full; it is tried again at each scan"},
		"missing":                {func(f *folder) { f.report.status.Problem = "it is not there"; f.moves.moveErrors["b"] = "full" }, "it is not there"},
		"a file has just come": {func(f *folder) {
			f.report.status.Waits = []settle.WaitingFile{{Path: "a", Why: "it is open", Since: now}}
		}, ""},
		"a file has waited long": {func(f *folder) {
			f.report.status.Waits = []settle.WaitingFile{{Path: "a", Why: "it is open", Since: now.Add(-time.Hour)}}
		}, "a is not taken: it is open (since "},
		"of one its owner knows": {func(f *folder) {
			f.report.status.Waits = []settle.WaitingFile{{Path: "a", Why: "it failed", Since: now.Add(-time.Hour), Run: 1}}
		}, ""},
		"one that is worse is it": {func(f *folder) {
			f.moves.moveErrors["b"] = "full"
			f.report.status.Waits = []settle.WaitingFile{{Path: "a", Since: now.Add(-time.Hour)}}
		}, "b could not be dealt with"},
		"what cannot be read ends": {func(f *folder) { f.report.unreadable["b"] = "denied"; delete(f.report.unreadable, "b") }, ""},
	} {
		f := newFolder(&Watcher{subs: newSubscriptions(nil, nil)}, Watch{Path: "/in"})
		c.is(f)
		if got := f.currentStatus(false).Problem; !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestWaitsByTime checks that waiting files are ordered by their wait, the longest first.
func TestWaitsByTime(t *testing.T) {
	t.Parallel()
	f := newFolder(&Watcher{subs: newSubscriptions(nil, nil)}, Watch{Path: "/in"})
	f.report.status.Waits = []settle.WaitingFile{{Path: "c", Since: noon}, {Path: "b", Since: noon}, {Path: "d", Since: noon.Add(-time.Second)}}
	var got []string
	for _, w := range f.currentStatus(false).Waits {
		got = append(got, w.Path)
	}
	if strings.Join(got, " ") != "d b c" {
		t.Errorf("%q", got)
	}
}

// TestPublishedWaits checks that a file is listed while it waits or is hashed. Files that
// reappeared after a failure are listed as well.
func TestPublishedWaits(t *testing.T) {
	t.Parallel()
	f := newFolder(&Watcher{subs: newSubscriptions(nil, nil)}, Watch{Path: "/in"})
	for _, path := range []string{"looked at", "read", "taken"} {
		f.files.waiting.Note(path, settle.ErrHardLink, noon)
	}
	f.files.debouncer.Observe("looked at", noon, look(1, 0), settle.Scanned)
	f.files.hashing["read"] = true
	f.files.reappeared["failed"] = reappearedFile{WaitingFile: settle.WaitingFile{Path: "failed", Since: noon}}
	f.files.publishWaits()
	var got []string
	for _, w := range f.currentStatus(false).Waits {
		got = append(got, w.Path)
	}
	if strings.Join(got, ", ") != "failed, looked at, read" {
		t.Errorf("%q", got)
	}
}

// TestStatusWithoutLedger checks that an error of the ledger is a problem of each watch without
// another problem.
func TestStatusWithoutLedger(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Path: d.path("inbox")}, {Job: "none", Path: d.path("none")}}))
	d.w.folders["none"].report.reportMissing(t.Context(), errors.New("it is not there"))
	for i, want := range []string{"", "it is not there"} {
		if got := d.w.Status(t.Context())[i].Problem; !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%q, want %q", got, want)
		}
	}

	d.must(d.w.ledger.Close())
	for i, want := range []string{"what runs is not known", "it is not there"} {
		if got := d.w.Status(t.Context())[i].Problem; !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestPollReason checks the reasons for polling. A folder that is already gone has none.
func TestPollReason(t *testing.T) {
	t.Parallel()
	const limit = "the system's limit of watched folders is reached (on Linux, raise fs.inotify.max_user_watches and max_user_instances); it is scanned every 2s, and asks the system again each time"
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"gone":  {&os.PathError{Op: "watch", Path: "/in", Err: os.ErrNotExist}, ""},
		"room":  {syscall.ENOSPC, limit},
		"many":  {&os.PathError{Op: "watch", Path: "/in", Err: syscall.EMFILE}, limit},
		"other": {errors.New("it is odd"), "/in cannot be watched: it is odd; it is scanned every 2s, and asks the system again each time"},
	} {
		if got := pollReason("/in", c.err); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestStatusTellsTheRound checks that the status of a folder in mode converge shows the round of
// its loop.
func TestStatusTellsTheRound(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f := d.looped()
	f.loop.conv.state.Round, f.loop.conv.outcome = 3, domain.OutcomeSuccess
	f.loop.publishPhase()
	if got := f.currentStatus(false); got.Round != 3 {
		t.Errorf("%+v", got)
	}
}
