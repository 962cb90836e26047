package watcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rouse/internal/nofollow"
	"rouse/watcher/after"
	"rouse/watcher/fsys"
	"rouse/watcher/match"
	"rouse/watcher/settle"
	"rouse/watcher/tree"
)

// TestRescanIsTold checks that a scan with a reason is recorded. A periodic scan is recorded only
// if it finds files that no event reported.
func TestRescanIsTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why  string
		new  bool
		told string
	}{
		{"", true, ""}, {"start", true, ""}, {linksChanged, true, ""}, {periodic, false, ""},
		{periodic, true, "watch.rescanned"}, {"events were lost", false, "watch.rescanned"}, {"events were lost", true, "watch.rescanned"},
	} {
		for _, polled := range []bool{false, true} {
			d := newHarness(t)
			if polled {
				d.w.subs = newSubscriptions(nil, errors.New("no instance"))
			}
			d.set(after.Rule{})
			f := d.w.folders["in"]
			f.scan(t.Context(), "start")
			if c.new {
				d.write("inbox/a.csv", "1")
			}
			f.scan(t.Context(), c.why)
			want := c.told
			if polled {
				want = strings.TrimSpace("watch.polled " + want)
				if c.why == periodic { // polling is expected to find files
					want = "watch.polled"
				}
			}
			if got := d.kinds(); !sameKinds(got, want) {
				t.Errorf("%q, something new: %t, polled: %t: told %q, want %q", c.why, c.new, polled, got, want)
			}
		}
	}
}

func sameKinds(a, b string) bool {
	one, two := strings.Fields(a), strings.Fields(b)
	slices.Sort(one)
	slices.Sort(two)
	return slices.Equal(one, two)
}

// TestNextScan checks that a folder is scanned every five minutes. A polled folder is scanned every
// two seconds, unless scans would then run all the time.
func TestNextScan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		degraded string
		took     time.Duration
		want     time.Duration
	}{
		{"", 0, time.Hour}, {"", time.Minute, time.Hour}, {"far away", 0, pollEvery}, {"far away", pollEvery / 10, pollEvery}, {"far away", time.Second, 10 * time.Second}, {"far away", time.Hour, time.Hour},
	} {
		d := newHarness(t)
		d.w.rescan = time.Hour
		d.set(after.Rule{})
		f := d.w.folders["in"]
		before := time.Now()
		f.finishScan(t.Context(), &walk{degraded: c.degraded}, c.took)
		if f.scanAt.Before(before.Add(c.want)) || f.scanAt.After(time.Now().Add(c.want)) {
			t.Errorf("%+v: the next one is in %s", c, f.scanAt.Sub(before))
		}
	}
}

// TestPollingIsTold checks that the start and the end of polling are each reported once.
func TestPollingIsTold(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.set(after.Rule{})
	f := d.w.folders["in"]
	want := ""
	for _, c := range []struct{ degraded, told string }{{"", ""}, {"one", "watch.polled"}, {"one", ""}, {"two", ""}, {"", "watch.told"}, {"", ""}, {"one", "watch.polled"}} {
		f.finishScan(t.Context(), &walk{degraded: c.degraded}, 0)
		want += " " + c.told
		if got := d.kinds(); !sameKinds(got, want) || f.report.status.Degraded != c.degraded {
			t.Errorf("%+v: told %q, want %q, status %q", c, got, want, f.report.status.Degraded)
		}
	}
}

// TestUpdateUnreadable checks that an unreadable file is a problem until a scan can read it or it
// is hashed again. Other files found count as new.
func TestUpdateUnreadable(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.set(after.Rule{})
	f := d.w.folders["in"]
	for _, path := range []string{"still", "waits", "read", "found"} {
		f.report.unreadable[path] = "denied"
	}
	f.files.debouncer.Observe("waits", time.Now(), fsys.Stamp{}, settle.Scanned)
	news := f.updateUnreadable(t.Context(), &walk{files: []tree.Sighting{{Path: "found"}, {Path: "new"}, {Path: "newer"}}, unreadable: map[string]error{"still": errors.New("denied"), "other": errors.New("denied")}})
	var left []string
	for path := range f.report.unreadable {
		left = append(left, path)
	}
	slices.Sort(left)
	if got := strings.Join(left, " "); got != "other still waits" || news != 2 || d.kinds() != "watch.unreadable" {
		t.Errorf("%s, %d new, told %q", got, news, d.kinds())
	}
}

// TestFoundFilesInOrder checks that a scan passes each file to the debouncer once, the oldest
// first.
func TestFoundFilesInOrder(t *testing.T) {
	t.Parallel()
	f := newFolder(&Watcher{}, Watch{Settle: time.Second})
	f.files.debounceFound(&walk{files: []tree.Sighting{{Path: "c", Stamp: look(1, 3)}, {Path: "b", Stamp: look(1, 1)}, {Path: "a", Stamp: look(1, 3)}, {Path: "b", Stamp: look(1, 1)}, {Path: "d", Stamp: look(1, 2)}}})
	var got []string
	for _, it := range f.files.debouncer.Dequeue(time.Now().Add(time.Hour), 10) {
		got = append(got, it.Path)
	}
	if strings.Join(got, "") != "bdac" {
		t.Errorf("%q", got)
	}

	f.Mode = ModeConverge
	if f.files.debounceFound(&walk{files: []tree.Sighting{{Path: "c", Stamp: look(1, 3)}}}); f.files.debouncer.Len() != 0 {
		t.Error("a file of a folder that converges waits for itself")
	}
}

// TestUnsubscribeStale checks that the subscription of a folder ends if a scan did not enter it. A
// folder inside the watched one may have been renamed.
func TestUnsubscribeStale(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		entered, left, why string
	}{
		{"/in /in/sub", "/in /in/sub", ""}, {"/in", "/in", "a folder was renamed"}, {"/in/sub", "/in/sub", ""}, {"", "", "a folder was renamed"},
	} {
		w := &Watcher{subs: newSubscriptions(nil, nil)}
		f := newFolder(w, Watch{})
		f.root, f.scanAt = filepath.FromSlash("/in"), time.Now().Add(time.Hour)
		entered := map[string]bool{}
		for _, dir := range strings.Fields(c.entered) {
			entered[filepath.FromSlash(dir)] = true
		}
		for _, dir := range []string{"/in", "/in/sub", "/"} {
			if err := w.subs.subscribe(f, filepath.FromSlash(dir)); err != nil {
				t.Fatal(err)
			}
		}
		f.unsubscribeStale(&walk{entered: entered})
		dirs := w.subs.dirs(f)
		slices.Sort(dirs)
		if got := filepath.ToSlash(strings.Join(dirs, " ")); got != c.left || f.nextScanReason() != c.why {
			t.Errorf("%+v: %s is left", c, got)
		}
	}
}

// TestSubscriptionsAreShared checks that a folder that two jobs watch stays subscribed until both
// have ended, and is subscribed once by each.
func TestSubscriptionsAreShared(t *testing.T) {
	t.Parallel()
	w := &Watcher{subs: newSubscriptions(nil, nil)}
	one, two := newFolder(w, Watch{Job: "one"}), newFolder(w, Watch{Job: "two"})
	in := filepath.FromSlash("/in")
	for _, f := range []*folder{one, two, one} {
		if err := w.subs.subscribe(f, in); err != nil {
			t.Fatal(err)
		}
	}
	if around, itself := w.subs.subscribers(filepath.Join(in, "a")); len(around) != 2 || len(itself) != 0 {
		t.Errorf("%d, %d", len(around), len(itself))
	}
	w.subs.unsubscribe(one, in, "/never")
	if _, itself := w.subs.subscribers(in); !slices.Equal(itself, []*folder{two}) || len(w.subs.dirs(one)) != 0 || len(w.subs.dirs(two)) != 1 {
		t.Errorf("%d", len(itself))
	}
	w.subs.unsubscribe(two, in)
	if len(w.subs.byDir) != 0 {
		t.Errorf("%v", w.subs.byDir)
	}

	refused := errors.New("no")
	w.subs.addWatch = func(string) error { return refused }
	if err := w.subs.subscribe(one, in); !errors.Is(err, refused) || len(w.subs.byDir) != 0 {
		t.Errorf("%v, %v", err, w.subs.byDir)
	}
}

// TestMissingIsTold checks that a path that is not a folder counts as missing. It is reported once,
// and again if a different link is in the way.
func TestMissingIsTold(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.set(after.Rule{})
	f := d.w.folders["in"]
	none, link, other := errors.New("none"), &nofollow.LinkError{Path: "/one"}, &nofollow.LinkError{Path: "/two"}
	want := ""
	for i, c := range []struct {
		err  error
		told string
	}{{none, "watch.missing"}, {none, ""}, {link, linkKind}, {link, ""}, {other, linkKind}, {none, "watch.missing"}} {
		f.report.reportMissing(t.Context(), c.err)
		want += " " + c.told
		if got := d.kinds(); !sameKinds(got, want) || !f.report.missing || f.report.status.Problem == "" {
			t.Errorf("%d: told %q, want %q", i, got, want)
		}
	}
	if back := f.rootFound(d.path("inbox")); !back || f.report.missing || f.report.status.Problem != "" || f.rootFound(d.path("inbox")) {
		t.Errorf("%t, %+v", back, f.report.status)
	}
	f.report.reportMissing(t.Context(), none)
	if want += " watch.missing"; !sameKinds(d.kinds(), want) {
		t.Errorf("told %q, want %q", d.kinds(), want)
	}

	d.must(os.Remove(d.path("inbox")))
	d.write("inbox", "1")
	if _, err := f.findRoot(); err == nil || !strings.Contains(err.Error(), "is not a folder") {
		t.Errorf("%v", err)
	}
}

// TestRootMissing checks that a missing folder is awaited through its nearest parent and by
// periodic scans, which are more frequent without events.
func TestRootMissing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, near string
		deaf       bool
		want       time.Duration
	}{
		{"none", ".", false, missingEvery}, {"none/of/these", ".", false, missingEvery}, {"inbox/none", "inbox", false, missingEvery}, {"none", "", true, pollEvery}, {"file/none", ".", false, missingEvery},
	} {
		d := newHarness(t)
		d.write("file", "1")
		if c.deaf {
			d.w.subs.addWatch = func(string) error { return errors.New("no") }
		}
		d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Path: d.path(c.path)}}))
		f := d.w.folders["in"]
		d.must(errOnly(d.w.subs.subscribe(f, d.base+"/inbox"), c.deaf)) // a subscription from before
		before := time.Now()
		if walk, back := f.inspect(t.Context()); walk != nil || back {
			t.Errorf("%+v: it is there", c)
		}
		dirs := d.w.subs.dirs(f)
		if near := filepath.Join(d.base, c.near); c.near != "" && (len(dirs) != 1 || dirs[0] != near) || c.near == "" && len(dirs) != 0 {
			t.Errorf("%+v: %q are subscribed to", c, dirs)
		}
		if f.scanAt.Before(before.Add(c.want)) || f.scanAt.After(time.Now().Add(c.want)) || !f.report.missing || f.root != "" || !f.report.scanning.IsZero() {
			t.Errorf("%+v: looked for again in %s, missing: %t", c, f.scanAt.Sub(before), f.report.missing)
		}
	}
}

// TestRootMissingIsReportedToOthers checks that a watch notices the removal of its folder, although
// another watch with a removed folder subscribes to the parent.
func TestRootMissingIsReportedToOthers(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.must(os.MkdirAll(d.path("inbox/inner"), 0o755))
	d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Path: d.path("inbox")}, {Job: "inner", Path: d.path("inbox/inner")}}))
	f, inner := d.w.folders["in"], d.w.folders["inner"]
	f.inspect(t.Context())
	inner.inspect(t.Context())
	d.must(os.RemoveAll(d.path("inbox")))
	inner.inspect(t.Context())
	if _, reported := f.hints.removed[f.root]; !reported || len(inner.hints.removed) != 0 {
		t.Errorf("reported: %v, to itself: %v", f.hints.removed, inner.hints.removed)
	}
}

func errOnly(err error, may bool) error {
	if may {
		return nil
	}
	return err
}

// TestWalkFinds checks that a walk finds exactly the files that the watch selects.
func TestWalkFinds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		watch   Watch
		want    string
		dirs    int
		aliases bool
	}{
		"files":              {Watch{}, "a.csv b.txt", 1, false},
		"deep":               {Watch{Recursive: true}, "a.csv b.txt done/f.csv sub/c.csv sub/deep/d.csv sub/e.csv", 4, false},
		"some":               {Watch{Recursive: true, Filter: match.Filter{Include: []string{"*.csv"}, Exclude: []string{"deep"}}}, "a.csv done/f.csv sub/c.csv sub/e.csv", 3, false},
		"links":              {Watch{FollowSymlinks: true}, "a.csv b.txt done/f.csv sub/c.csv sub/e.csv", 3, false},
		"links to some":      {Watch{FollowSymlinks: true, Filter: match.Filter{Include: []string{"*.csv"}}}, "a.csv done/f.csv sub/c.csv", 3, false},
		"links to a closed":  {Watch{FollowSymlinks: true, OnSuccess: after.Rule{Action: after.Move}}, "a.csv b.txt sub/c.csv sub/e.csv", 2, false},
		"links to all":       {Watch{FollowSymlinks: true, Recursive: true}, "a.csv b.txt done/f.csv sub/c.csv sub/deep/d.csv sub/e.csv", 4, false},
		"links by a name":    {Watch{FollowSymlinks: true, Recursive: true, Filter: match.Filter{Include: []string{"alias/**"}}}, "sub/c.csv sub/deep/d.csv sub/e.csv", 4, true},
		"links, not to that": {Watch{FollowSymlinks: true, Recursive: true, Filter: match.Filter{Include: []string{"alias/**"}, Exclude: []string{"sub/deep"}}}, "sub/c.csv sub/e.csv", 3, true},
		"links, not those":   {Watch{FollowSymlinks: true, Recursive: true, Filter: match.Filter{Exclude: []string{"sub"}}}, "a.csv b.txt done/f.csv", 2, false},
		"links, not this":    {Watch{FollowSymlinks: true, Filter: match.Filter{Exclude: []string{"sub/c.csv"}}}, "a.csv b.txt done/f.csv sub/e.csv", 3, false},
	} {
		d := newHarness(t)
		for _, file := range []string{"a.csv", "b.txt", ".hidden", "sub/c.csv", "sub/e.csv", "sub/deep/d.csv", "done/f.csv"} {
			d.write("inbox/"+file, file)
		}
		d.write("outside/x.csv", "1")
		d.link("inbox/sub/c.csv", "inbox/c.csv")
		d.link("inbox/sub/e.csv", "inbox/e.txt")
		d.link("inbox/done/f.csv", "inbox/f.csv")
		d.link("inbox/sub", "inbox/alias")
		d.link("outside", "inbox/out")
		d.link("outside/x.csv", "inbox/x.csv")
		w := c.watch
		w.Job, w.Path = "in", d.path("inbox")
		if w.OnSuccess.Action != "" {
			w.OnSuccess.Dir = d.path("inbox/done")
		}
		d.must(d.w.Set(t.Context(), []Watch{w}))
		f := d.w.folders["in"]
		f.rootFound(d.path("inbox"))
		walk := f.walk(t.Context(), f.root, ".", nil)
		var got []string
		for _, s := range walk.files {
			rel, _ := fsys.RelInside(f.root, s.Path)
			got = append(got, rel)
		}
		slices.Sort(got)
		if strings.Join(slices.Compact(got), " ") != c.want || walk.torn || walk.unopened || len(walk.unreadable) != 0 || walk.degraded != "" || f.hints.scanReason != "" {
			t.Errorf("%s: %q, want %s (%+v)", name, got, c.want, walk)
		}
		if n := len(d.w.subs.dirs(f)); n != c.dirs || len(walk.entered) != n || (len(walk.linked.aliases) > 0) != c.aliases {
			t.Errorf("%s: %q are subscribed to, other names %v", name, d.w.subs.dirs(f), walk.linked.aliases)
		}
	}
}

// TestLinksToOneFolder checks that the number of followed links to one folder is limited, and that
// each scan follows the same links. Each of them costs a read of the whole folder.
func TestLinksToOneFolder(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.write("inbox/store/a.csv", "1")
	d.must(os.Mkdir(d.path("inbox/in"), 0o755))
	var want []string
	for i := range maxAliases + 4 {
		name := fmt.Sprintf("in/%02d", i)
		d.link("inbox/store", "inbox/"+name)
		if i < maxAliases {
			want = append(want, name)
		}
	}
	d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Path: d.path("inbox"), Recursive: true, FollowSymlinks: true, Filter: match.Filter{Include: []string{"in/**"}}}}))
	f := d.w.folders["in"]
	f.rootFound(d.path("inbox"))
	if got := f.walk(t.Context(), f.root, ".", nil).linked.aliases[d.path("inbox/store")]; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestWantsByNames checks that a file is selected by its own name or by the names that links give
// to its folder. An exclude of its own name always applies.
func TestWantsByNames(t *testing.T) {
	t.Parallel()
	f := newFolder(&Watcher{}, Watch{Recursive: true, Filter: match.Filter{Include: []string{"in/**", "own/*"}, Exclude: []string{"private", "own/not"}}})
	f.root = filepath.FromSlash("/all")
	for _, dir := range []string{"store", "private", "own"} {
		f.linked.addAlias(filepath.Join(f.root, dir), "in/"+dir+"-by-link")
	}
	f.linked.files[filepath.Join(f.root, "one")] = true
	f.skippedDirs = map[string]bool{filepath.Join(f.root, "in", "closed"): true}
	for rel, want := range map[string]bool{
		"store/a": true, "other/a": false, "private/a": false, "own/a": true, "own/not": false, "in/a": true, "one": true, "in/closed/a": false, "in/private/a": false, "store/sub/a": false,
	} {
		if got := f.wants(fsys.JoinPath(f.root, rel), rel); got != want {
			t.Errorf("%s: %t", rel, got)
		}
	}
}

// TestDescendIntoAFolderWithoutEvents checks that a new folder without events causes a scan.
func TestDescendIntoAFolderWithoutEvents(t *testing.T) {
	t.Parallel()
	for deaf, want := range map[bool]string{false: "", true: "a new folder cannot be watched"} {
		d := newHarness(t)
		d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Path: d.path("inbox"), Recursive: true}}))
		f := d.w.folders["in"]
		f.rootFound(d.path("inbox"))
		f.scanAt = time.Now().Add(time.Hour)
		if deaf {
			d.w.subs.addWatch = func(string) error { return syscall.ENOSPC }
		}
		d.write("inbox/sub/a.csv", "1")
		f.descend(t.Context(), d.path("inbox/sub"), "sub")
		if why := f.nextScanReason(); why != want || !f.files.debouncer.Has(d.path("inbox/sub/a.csv")) {
			t.Errorf("%q, want %q", why, want)
		}
	}
}

// TestMissingFolderThatComes checks that a folder or a nearer parent that appears during the
// subscription is found at once.
func TestMissingFolderThatComes(t *testing.T) {
	t.Parallel()
	for path, why := range map[string]string{"none/in": "", "none": "the folder is back"} {
		d := newHarness(t)
		d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Path: d.path(path)}}))
		f := d.w.folders["in"]
		add := d.w.subs.addWatch
		d.w.subs.addWatch = func(dir string) error {
			if err := os.MkdirAll(d.path("none"), 0o755); err != nil {
				return err
			}
			return add(dir)
		}
		f.scan(t.Context(), "start")
		want := []string{d.path("none")}
		if path == "none" {
			want = []string{d.base}
		}
		if dirs := d.w.subs.dirs(f); !slices.Equal(dirs, want) || f.nextScanReason() != why {
			t.Errorf("%s: %q are subscribed to", path, dirs)
		}
	}
}

// TestMayNeedWork checks that known files are not found again unless they are retried. In mode
// converge all files are found.
func TestMayNeedWork(t *testing.T) {
	t.Parallel()
	st := fsys.Stamp{Size: 1, Modified: 1}
	for name, c := range map[string]struct {
		is   func(f *folder, k *walker)
		want bool
	}{
		"new":   {func(*folder, *walker) {}, true},
		"known": {func(f *folder, _ *walker) { f.files.known.Put(f.files.stampHasher.Of("a", st), struct{}{}) }, false},
		"known, retried": {func(f *folder, k *walker) {
			f.files.known.Put(f.files.stampHasher.Of("a", st), struct{}{})
			k.retry["a"] = true
		}, true},
		"known, converges": {func(f *folder, _ *walker) {
			f.files.known.Put(f.files.stampHasher.Of("a", st), struct{}{})
			f.Mode = ModeConverge
		}, true},
		"was there before": {func(f *folder, _ *walker) {
			f.files.preexisting.files = map[fsys.Key]struct{}{f.files.stampHasher.Of("a", st): {}}
		}, false},
		"is being read":    {func(f *folder, _ *walker) { f.files.hashing["a"] = true }, false},
		"settles":          {func(f *folder, _ *walker) { f.files.debouncer.Observe("a", noon, st, settle.Scanned) }, false},
		"is ready":         {func(f *folder, _ *walker) { f.files.batch.add(ready("a", st), noon) }, false},
		"was ready before": {func(f *folder, _ *walker) { f.files.batch.add(ready("a", fsys.Stamp{Size: 2}), noon) }, true},
	} {
		f := newFolder(&Watcher{}, Watch{})
		k := &walker{f: f, retry: map[string]bool{}}
		if c.is(f, k); k.mayNeedWork("a", st) != c.want {
			t.Errorf("%s: may need work: %t", name, !c.want)
		}
	}
}

// TestWalkFails checks that a walk is torn if an entry vanishes, and that an unreadable entry is a
// problem.
func TestWalkFails(t *testing.T) {
	t.Parallel()
	for err, torn := range map[error]bool{fs.ErrNotExist: true, fs.ErrPermission: false} {
		k := &walker{found: &walk{unreadable: map[string]error{}}}
		if k.failed("a", err); k.found.torn != torn || (k.found.unreadable["a"] != nil) == torn {
			t.Errorf("%v: %+v", err, k.found)
		}
	}

	d := newHarness(t)
	d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Path: d.path("inbox"), Recursive: true}}))
	f := d.w.folders["in"]
	f.rootFound(d.path("inbox"))
	if got := f.walk(t.Context(), d.path("inbox/none"), "none", nil); !got.torn || len(got.unreadable) != 0 || got.unopened || f.hints.scanReason != "" {
		t.Errorf("%+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d.write("inbox/sub/a.csv", "1")
	if got := f.walk(ctx, f.root, ".", nil); len(got.files) != 0 || len(got.entered) != 0 {
		t.Errorf("after its end: %+v", got)
	}
	if walk, _ := f.inspect(ctx); walk != nil {
		t.Errorf("after its end: %+v", walk)
	}

	d.must(os.Rename(d.path("inbox"), d.path("away")))
	d.link("inbox", "inbox")
	if got := f.walk(t.Context(), f.root, ".", nil); !got.unopened {
		t.Errorf("%+v", got)
	}
}

// TestAliases checks that the number of names of one folder is limited, and that each name is
// recorded once.
func TestAliases(t *testing.T) {
	t.Parallel()
	l, more := newLinked(), newLinked()
	sub := filepath.FromSlash("/in/sub")
	for _, name := range []string{"one", "two", "one"} {
		l.addAlias(sub, name)
		more.addAlias(sub, name+"!")
		more.addAlias(sub, "one")
	}
	more.links["/in/link"], more.files["/in/file"] = true, true
	l.merge(more)
	if got := strings.Join(l.aliases[sub], " "); got != "one two one! two!" || !l.links["/in/link"] || !l.files["/in/file"] {
		t.Errorf("%+v", l)
	}

	f := newFolder(&Watcher{}, Watch{Recursive: true})
	f.root, f.linked = filepath.FromSlash("/in"), l
	if got := strings.Join(f.namesOf(filepath.Join(sub, "a"), "sub/a"), " "); got != "sub/a one/a two/a one!/a two!/a" {
		t.Errorf("%s", got)
	}
	f.Recursive = false
	for path, want := range map[string]string{"/in/a": "a", "/in/other/a": "", "/in/sub/a": "one/a two/a one!/a two!/a"} {
		path = filepath.FromSlash(path)
		rel, _ := fsys.RelInside(f.root, path)
		if got := strings.Join(f.namesOf(path, rel), " "); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	for _, c := range [][3]string{{".", "a", "a"}, {"sub", "a", "sub/a"}, {"sub/deep", "a", "sub/deep/a"}} {
		if got := joinName(c[0], c[1]); got != c[2] {
			t.Errorf("%q: %s", c, got)
		}
	}
}
