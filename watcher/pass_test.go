package watcher

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/nofollow"
	"rouse/watcher/after"
	"rouse/watcher/fsys"
	"rouse/watcher/match"
	"rouse/watcher/settle"
)

// TestSleepUntilSomethingIsDue checks that a folder sleeps until the first due time, and for a
// short pause after a notification.
func TestSleepUntilSomethingIsDue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		due  func(f *folder, now time.Time)
		want time.Duration
	}{
		"a scan":                     {func(f *folder, now time.Time) {}, 5 * time.Minute},
		"a file":                     {func(f *folder, now time.Time) { f.files.debouncer.Observe("a", now, fsys.Stamp{}, settle.Scanned) }, 2 * time.Second},
		"a batch":                    {func(f *folder, now time.Time) { f.files.batch.add(ready("a", fsys.Stamp{}), now) }, time.Minute},
		"a folder":                   {func(f *folder, now time.Time) { f.root, f.loop.conv.checkAt = "/in", now.Add(3*time.Second) }, 3 * time.Second},
		"a folder that is not there": {func(f *folder, now time.Time) { f.loop.conv.checkAt = now.Add(3 * time.Second) }, 5 * time.Minute},
		"all": {func(f *folder, now time.Time) {
			f.files.batch.add(ready("a", fsys.Stamp{}), now)
			f.root, f.loop.conv.checkAt = "/in", now.Add(3*time.Second)
			f.files.debouncer.Observe("a", now, fsys.Stamp{Size: 1}, settle.Scanned)
		}, 2 * time.Second},
		"a scan before them": {func(f *folder, now time.Time) {
			f.scanAt = now.Add(time.Second)
			f.files.debouncer.Observe("a", now, fsys.Stamp{}, settle.Scanned)
		}, time.Second},
		"an event":                          {func(f *folder, now time.Time) { f.hints.noteEvent("a", true) }, minPause},
		"a folder that went away":           {func(f *folder, now time.Time) { f.hints.noteRemoved("a", true) }, minPause},
		"a scan that was asked for":         {func(f *folder, now time.Time) { f.hints.requestScan("why") }, minPause},
		"a change of the ledger":            {func(f *folder, now time.Time) { f.loop.runChanged = closed }, followPause},
		"an event long after the last pass": {func(f *folder, now time.Time) { f.hints.noteEvent("a", true); f.lastPass = now.Add(-time.Hour) }, 0},
		"the end of the watch":              {func(f *folder, now time.Time) { f.cancel() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFolder(&Watcher{}, Watch{Mode: ModePerFile, Settle: 2 * time.Second, MaxWait: time.Minute, MaxFiles: 3})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				now := time.Now()
				f.cancel, f.lastPass, f.scanAt = cancel, now, now.Add(5*time.Minute)
				f.files.debouncer.LastChange = now.Add(time.Hour) // makes a batch wait for MaxWait
				c.due(f, now)
				f.sleep(ctx)
				if got := time.Since(now); got != c.want {
					t.Errorf("it slept for %s, want %s", got, c.want)
				}
			})
		})
	}
}

// TestWaitingIsTold checks that the status counts the files that settle, are hashed, or wait for
// their batch.
func TestWaitingIsTold(t *testing.T) {
	t.Parallel()
	f := newFolder(&Watcher{subs: newSubscriptions(nil, nil)}, Watch{Settle: time.Second, MaxFiles: 3})
	f.files.debouncer.Observe("settles", time.Now(), fsys.Stamp{}, settle.Scanned)
	for _, path := range []string{"read", "read too"} {
		f.files.hashing[path] = true
	}
	for _, path := range []string{"a", "b", "c", "d"} {
		f.files.batch.add(ready(path, fsys.Stamp{}), time.Now())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.sleep(ctx)
	if got := f.currentStatus(false); got.Waiting != 7 || got.State != StateDebouncing {
		t.Errorf("%+v", got)
	}
}

// TestNextScanReason checks that a scan keeps the first requested reason and also runs periodically
// without one. During a run there are no periodic scans, because the end of the run starts a scan.
func TestNextScanReason(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		is   func(f *folder)
		late bool
		want string
	}{
		"nothing is due":            {func(f *folder) {}, false, ""},
		"it is time":                {func(f *folder) {}, true, periodic},
		"it was asked for":          {func(f *folder) { f.hints.requestScan("one"); f.hints.requestScan("two") }, false, "one"},
		"that and it is time":       {func(f *folder) { f.hints.requestScan("one") }, true, "one"},
		"a run is on":               {func(f *folder) { f.loop.conv.phase = StateProcessing }, true, ""},
		"a run settles":             {func(f *folder) { f.loop.conv.phase = StateSettling }, true, ""},
		"a change settles":          {func(f *folder) { f.loop.conv.phase = StateDebouncing }, true, periodic},
		"missing while a run is on": {func(f *folder) { f.root, f.loop.conv.phase = "", StateProcessing }, true, periodic},
		"asked for during a run":    {func(f *folder) { f.loop.conv.phase = StateProcessing; f.hints.requestScan("one") }, false, "one"},
	} {
		f := newFolder(&Watcher{rescan: time.Hour}, Watch{})
		f.root, f.scanAt = "/in", time.Now().Add(time.Hour)
		if c.late {
			f.scanAt = time.Now().Add(-time.Second)
		}
		c.is(f)
		if got := f.nextScanReason(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if f.hints.scanReason != "" {
			t.Errorf("%s: it is asked for again", name)
		}
		if c.late && c.want == "" && time.Until(f.scanAt) < 59*time.Minute {
			t.Errorf("%s: the next one is in %s", name, time.Until(f.scanAt))
		}
	}
}

// TestEventsOfOnePath checks that several events of one path are combined: one of them is enough to
// mark the path as new or renamed.
func TestEventsOfOnePath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ one, two bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		f := newFolder(&Watcher{}, Watch{})
		for _, said := range []bool{c.one, c.two} {
			f.hints.noteEvent("other", false)
			f.hints.noteEvent("a", said)
			f.hints.noteRemoved("dir", said)
		}
		if want := c.one || c.two; len(f.hints.events) != 2 || f.hints.events[1].path != "a" || f.hints.events[1].created != want || f.hints.events[0].created || f.hints.removed["dir"] != want {
			t.Errorf("%+v: %+v, %v", c, f.hints.events, f.hints.removed)
		}
	}
}

// TestInNoSkippedDir checks that files in a skipped folder are excluded at any depth. The watched
// folder itself may be inside a skipped folder.
func TestInNoSkippedDir(t *testing.T) {
	t.Parallel()
	f := newFolder(&Watcher{}, Watch{})
	f.root = filepath.FromSlash("/all/in")
	f.skippedDirs = map[string]bool{filepath.FromSlash("/all/in/done"): true, filepath.FromSlash("/all"): true, filepath.FromSlash("/"): true}
	for path, want := range map[string]bool{
		"/all/in/a": true, "/all/in/sub/a": true, "/all/in/done": true, "/all/in/done/a": false, "/all/in/done/sub/a": false, "/all/in/done2/a": true,
	} {
		if got := f.inNoSkippedDir(filepath.FromSlash(path)); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
}

// TestSkippedFolders checks that destinations and nested watches are not entered. A folder of a
// rule that does not move files is entered.
func TestSkippedFolders(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.must(d.w.Set(t.Context(), []Watch{
		{Job: "in", Path: d.path("inbox"), Recursive: true, OnSuccess: after.Rule{Action: after.Move, Dir: d.path("inbox/done")}, OnFailure: after.Rule{Action: after.Leave, Dir: d.path("inbox/left")}},
		{Job: "inner", Path: d.path("inbox/inner")},
	}))
	f := d.w.folders["in"]
	f.rootFound(d.path("inbox"))
	for name, want := range map[string]bool{"done": false, "done/sub": false, "left": true, "inner": false, "sub": true, ".git": false} {
		if got := f.enters(d.path("inbox/"+name), name); got != want {
			t.Errorf("%s is entered: %t", name, got)
		}
	}

	// The target of a link at a destination is skipped as well.
	d.must(os.Mkdir(d.path("inbox/real"), 0o755))
	d.link("inbox/real", "inbox/link")
	d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Path: d.path("inbox"), Recursive: true, OnSuccess: after.Rule{Action: after.Move, Dir: d.path("inbox/link")}, Boundary: nofollow.NewBoundary(d.path("inbox"))}}))
	f = d.w.folders["in"]
	f.rootFound(d.path("inbox"))
	for name, want := range map[string]bool{"real": false, "link": false, "sub": true} {
		if got := f.enters(d.path("inbox/"+name), name); got != want {
			t.Errorf("%s is entered: %t", name, got)
		}
	}
}

// TestHandleEvent checks which events concern the watch: by the pattern, the depth, the kind of
// file, and the preexisting files.
func TestHandleEvent(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.must(d.w.Set(t.Context(), []Watch{
		{Job: "in", Path: d.path("inbox"), Filter: match.Filter{Include: []string{"*.csv"}}, Settle: time.Hour, Existing: ExistingIgnore},
		{Job: "all", Path: d.path("inbox"), Recursive: true, Filter: match.Filter{Exclude: []string{"old"}}, Settle: time.Hour},
	}))
	d.write("inbox/before.csv", "1")
	in, all := d.w.folders["in"], d.w.folders["all"]
	for _, f := range []*folder{in, all} {
		f.scan(t.Context(), "start")
	}
	d.write("inbox/a.csv", "1")
	d.write("inbox/a.txt", "1")
	d.write("inbox/sub/b.csv", "1")
	d.write("inbox/later/b.csv", "1")
	d.write("inbox/old/b.csv", "1")
	d.must(os.Mkdir(d.path("inbox/dir.csv"), 0o755))
	for _, c := range []struct {
		f       *folder
		name    string
		created bool
		want    string // path that is waiting afterwards
	}{
		{in, "a.csv", true, "a.csv"}, {in, "a.csv", false, "a.csv"}, {in, "a.txt", true, ""}, {in, "dir.csv", true, ""}, {in, "sub", true, ""}, {in, "sub/b.csv", true, ""},
		{in, "before.csv", false, ""}, {in, "before.csv", true, "before.csv"}, {in, "gone.csv", true, ""}, {in, "../inbox", true, ""},
		{all, "sub", true, "sub/b.csv"}, {all, "later", false, ""}, {all, "later/b.csv", false, "later/b.csv"}, {all, "old", true, ""}, {all, "old/b.csv", true, ""},
	} {
		c.f.files.debouncer = settle.NewDebouncer(time.Hour)
		c.f.handleEvent(t.Context(), eventPath{path: d.path("inbox/" + c.name), created: c.created})
		if got := c.f.files.debouncer.Len(); got != len(strings.Fields(c.want)) || c.want != "" && !c.f.files.debouncer.Has(d.path("inbox/"+c.want)) {
			t.Errorf("%s, event of %s, created: %t: %d files wait, want %q", c.f.Job, c.name, c.created, got, c.want)
		}
	}

	// A link changes names if links are followed. The removal of a followed link does so as well.
	d.link("inbox/a.csv", "inbox/link.csv")
	for _, c := range []struct {
		follow bool
		name   string
		scan   string
	}{{false, "link.csv", ""}, {true, "link.csv", linksChanged}, {true, "a.csv", ""}, {true, "was.csv", linksChanged}, {true, "gone.csv", ""}, {false, "was.csv", ""}} {
		in.FollowSymlinks, in.hints.scanReason, in.scanAt = c.follow, "", time.Now().Add(time.Hour)
		in.linked.links[d.path("inbox/was.csv")] = true
		if in.handleEvent(t.Context(), eventPath{path: d.path("inbox/" + c.name), created: true}); in.nextScanReason() != c.scan {
			t.Errorf("%+v: scanned: %t", c, c.scan == "")
		}
	}
	in.FollowSymlinks = false

	// A ready file that is unchanged is not checked again. A file that is gone is no longer ready.
	info, err := os.Lstat(d.path("inbox/a.csv"))
	d.must(err)
	in.files.debouncer = settle.NewDebouncer(time.Hour)
	in.files.batch.add(ready(d.path("inbox/a.csv"), fsys.StampOf(info)), time.Now())
	in.handleEvent(t.Context(), eventPath{path: d.path("inbox/a.csv"), created: true})
	if in.files.debouncer.Len() != 0 || len(in.files.batch.files) != 1 {
		t.Errorf("%d wait, %d are ready", in.files.debouncer.Len(), len(in.files.batch.files))
	}
	d.must(os.Remove(d.path("inbox/a.csv")))
	in.handleEvent(t.Context(), eventPath{path: d.path("inbox/a.csv"), created: false})
	if len(in.files.batch.files) != 0 {
		t.Error("a file that is gone is ready")
	}
}

// TestHandleEventOfAFolder checks that an event of any selected file is a change of a folder in
// mode converge, including a removal. An event of a subfolder alone is not.
func TestHandleEventOfAFolder(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.write("inbox/a.csv", "1")
	d.write("inbox/a.txt", "1")
	d.must(os.Mkdir(d.path("inbox/sub.csv"), 0o755))
	d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Path: d.path("inbox"), Mode: ModeConverge, Filter: match.Filter{Include: []string{"*.csv"}}}}))
	f := d.w.folders["in"]
	f.scan(t.Context(), "start")
	for name, want := range map[string]State{"a.csv": StateDebouncing, "gone.csv": StateDebouncing, "a.txt": StateIdle, "gone.txt": StateIdle, "sub.csv": StateIdle} {
		f.loop.setPhase(StateIdle, time.Time{})
		if f.handleEvent(t.Context(), eventPath{path: d.path("inbox/" + name), created: true}); f.loop.conv.phase != want || f.files.debouncer.Len() != 0 {
			t.Errorf("%s: %s", name, f.loop.conv.phase)
		}
	}
}

// TestEventsOfAMissingFolder checks that only an event of the missing folder or of one of its
// parents causes a scan.
func TestEventsOfAMissingFolder(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{"/a/b/in": true, "/a/b": true, "/a": true, "/a/c": false, "/a/b/in/x": false, "/a/b/inn": false} {
		f := newFolder(&Watcher{}, Watch{})
		f.awaited, f.scanAt = "/a/b/in", time.Now().Add(time.Hour)
		f.hints.noteEvent(path, true)
		f.handleEvents(t.Context())
		if why := f.nextScanReason(); (why != "") != want {
			t.Errorf("%s: %q", path, why)
		}
		if f.handleEvents(t.Context()); f.nextScanReason() != "" {
			t.Errorf("%s: it is handled twice", path)
		}
	}
}

// TestUnsubscribeRemoved checks that the subscription of a removed folder ends. After a rename the
// subscriptions inside it end as well, because the system would report their old paths.
func TestUnsubscribeRemoved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dir     string
		renamed bool
		left    string
		why     string
	}{
		"one within is removed":    {"/in/sub", false, "/in /in/sub/deep /in/sub2", ""},
		"one within is renamed":    {"/in/sub", true, "/in /in/sub2", "a folder was renamed"},
		"the folder is removed":    {"/in", false, "/in/sub /in/sub/deep /in/sub2", "the folder went away"},
		"the folder is renamed":    {"/in", true, "", "the folder went away"},
		"one that it is not about": {"/in/other", true, "/in /in/sub /in/sub/deep /in/sub2", "a folder was renamed"},
	} {
		w := &Watcher{subs: newSubscriptions(nil, nil)}
		f := newFolder(w, Watch{})
		f.root, f.scanAt = filepath.FromSlash("/in"), time.Now().Add(time.Hour)
		for _, dir := range []string{"/in", "/in/sub", "/in/sub/deep", "/in/sub2"} {
			if err := w.subs.subscribe(f, filepath.FromSlash(dir)); err != nil {
				t.Fatal(err)
			}
		}
		f.hints.noteRemoved(filepath.FromSlash(c.dir), c.renamed)
		f.unsubscribeRemoved()
		dirs := w.subs.dirs(f)
		for _, dir := range strings.Fields(c.left) {
			if around, itself := w.subs.subscribers(filepath.FromSlash(dir)); len(itself) != 1 {
				t.Errorf("%s: %s is not subscribed to (%v)", name, dir, around)
			}
		}
		if len(dirs) != len(strings.Fields(c.left)) {
			t.Errorf("%s: %q are subscribed to, want %s", name, dirs, c.left)
		}
		if why := f.nextScanReason(); why != c.why {
			t.Errorf("%s: %q, want %q", name, why, c.why)
		}
		if len(f.hints.events) != 1 || f.hints.events[0].path != filepath.FromSlash(c.dir) || !f.hints.events[0].created {
			t.Errorf("%s: %+v", name, f.hints.events)
		}
	}
}
