package watcher_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agentdb/ledger"
	"rouse/watcher"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// folder is a watched folder with a ledger, and somebody who finishes the runs.
type folder struct {
	t       *testing.T
	dir     string
	ledger  *ledger.Ledger
	watcher *watcher.Watcher
	watch   watcher.Watch
	outcome func(path string) ledger.Outcome // nil: runs stay queued
	stop    func()
}

func newFolder(t *testing.T, change func(*watcher.Watch)) *folder {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := &folder{t: t, dir: filepath.Join(base, "inbox"), stop: func() {}}
	f.watch = watcher.Watch{Job: "inbox", Agent: "a", Path: f.dir, Settle: 60 * time.Millisecond}
	if change != nil {
		change(&f.watch)
	}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if f.ledger, err = ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(base, "ledger.db")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.ledger.Close() })
	return f
}

func (f *folder) start() *folder {
	f.t.Helper()
	w, err := watcher.New(watcher.Options{Ledger: f.ledger})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := w.Set(f.t.Context(), []watcher.Watch{f.watch}); err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := w.Run(ctx); err != nil {
			f.t.Error(err)
		}
	}()
	f.stop = func() { cancel(); <-over; f.stop = func() {} }
	f.t.Cleanup(func() { f.stop() })
	select {
	case <-w.Ready():
	case <-time.After(patience):
		f.t.Fatal("the watcher is not ready")
	}
	f.watcher = w
	return f
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, filepath.FromSlash(name)) }

func (f *folder) write(name, text string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Dir(f.path(name)), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(f.path(name), []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// until waits for a condition, looking again at every change of the ledger; runs are
// finished meanwhile.
func (f *folder) until(what string, ok func(runs []ledger.Run) bool) []ledger.Run {
	f.t.Helper()
	deadline := time.After(patience)
	for {
		changed := f.ledger.Changed()
		runs, err := f.ledger.Runs(f.t.Context(), ledger.Filter{Limit: 10_000})
		if err != nil {
			f.t.Fatal(err)
		}
		if f.outcome != nil {
			for _, r := range runs {
				if r.State != ledger.StateQueued {
					continue
				}
				_, a, err := f.ledger.StartAttempt(f.t.Context(), r.ID)
				if err == nil {
					err = f.ledger.Finish(f.t.Context(), a, ledger.Result{Outcome: f.outcome(string(r.Detail))})
				}
				if err != nil {
					f.t.Fatal(err)
				}
			}
		}
		if ok(runs) {
			return runs
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond): // a file that moved is no change of the ledger
		case <-deadline:
			f.t.Fatalf("%s did not happen; runs: %d, status: %+v", what, len(runs), f.watcher.Status())
		}
	}
}

func (f *folder) runs(n int) []ledger.Run {
	f.t.Helper()
	return f.until(fmt.Sprintf("%d runs", n), func(runs []ledger.Run) bool { return len(runs) >= n })
}

func (f *folder) gone(name string) {
	f.t.Helper()
	f.until(name+" moved away", func([]ledger.Run) bool {
		_, err := os.Lstat(f.path(name))
		return os.IsNotExist(err)
	})
}

// quiet checks that nothing more comes: one more file is noticed, and it is the only one.
func (f *folder) quiet(n int) {
	f.t.Helper()
	f.write("last-of-all.csv", fmt.Sprint("sentinel ", n))
	f.until("the last file", func(runs []ledger.Run) bool {
		for _, r := range runs {
			if strings.Contains(string(r.Detail), "last-of-all") {
				if len(runs) != n+1 {
					f.t.Fatalf("%d runs, want %d", len(runs)-1, n)
				}
				return true
			}
		}
		return false
	})
}

func success(string) ledger.Outcome { return ledger.OutcomeSuccess }

func TestDrop(t *testing.T) {
	f := newFolder(t, nil).start()
	f.write("a.csv", "1")
	r := f.runs(1)[0]
	for _, want := range []string{`"name":"a.csv"`, `"size":1`, `"hash":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"`} {
		if !strings.Contains(string(r.Detail), want) {
			t.Errorf("%s is missing in %s", want, r.Detail)
		}
	}
	f.quiet(1)
}

// What arrived while nobody watched is found at the start, once.
func TestStartFindsWhatIsThere(t *testing.T) {
	f := newFolder(t, nil)
	f.write("a.csv", "1")
	f.write("b.csv", "2")
	f.start().runs(2)
	f.stop()
	f.write("c.csv", "3")
	f.start().runs(3)
	f.quiet(3)
}

func TestExistingIgnore(t *testing.T) {
	f := newFolder(t, func(w *watcher.Watch) { w.Existing = watcher.ExistingIgnore })
	f.write("old.csv", "1")
	hourAgo := time.Now().Add(-time.Hour)
	if err := os.Chtimes(f.path("old.csv"), hourAgo, hourAgo); err != nil {
		t.Fatal(err)
	}
	f.start().quiet(0)
}

// A file that grows is waited for; its run sees all of it.
func TestSlowCopy(t *testing.T) {
	f := newFolder(t, func(w *watcher.Watch) { w.Settle = 150 * time.Millisecond }).start()
	out, err := os.Create(f.path("big.csv"))
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 20 {
		<-tick.C
		if _, err := out.WriteString("0123456789"); err != nil {
			t.Fatal(err)
		}
	}
	out.Close()
	if r := f.runs(1)[0]; !strings.Contains(string(r.Detail), `"size":200`) {
		t.Errorf("the run saw a part: %s", r.Detail)
	}
	f.quiet(1)
}

// The same bytes again start nothing and are moved as well; one row more is one run.
func TestSameBytesAgain(t *testing.T) {
	f := newFolder(t, func(w *watcher.Watch) {
		w.OnSuccess = watcher.After{Action: "move", Dir: filepath.Join(w.Path, "done")}
	})
	f.outcome = success
	f.start()
	f.write("a.csv", "1\n")
	f.gone("a.csv")
	f.write("a.csv", "1\n")
	f.gone("a.csv")
	if runs := f.runs(1); len(runs) != 1 {
		t.Errorf("the same bytes ran %d times", len(runs))
	}
	f.write("a.csv", "1\n2\n")
	f.gone("a.csv")
	if runs := f.runs(2); len(runs) != 2 {
		t.Errorf("%d runs after a changed file", len(runs))
	}
	for name, want := range map[string]string{"done/a.csv": "1\n", "done/a-2.csv": "1\n", "done/a-3.csv": "1\n2\n"} {
		if got, err := os.ReadFile(f.path(name)); err != nil || string(got) != want {
			t.Errorf("%s: %q (%v)", name, got, err)
		}
	}
}

func TestFailedFileCanBeDroppedAgain(t *testing.T) {
	f := newFolder(t, func(w *watcher.Watch) {
		w.OnFailure = watcher.After{Action: "move", Dir: filepath.Join(filepath.Dir(w.Path), "failed")}
	})
	f.outcome = func(string) ledger.Outcome { return ledger.OutcomeError }
	f.start()
	f.write("a.csv", "1")
	f.gone("a.csv")
	f.write("a.csv", "1")
	f.gone("a.csv")
	if runs := f.runs(2); len(runs) != 2 {
		t.Errorf("%d runs", len(runs))
	}
}

// Without a move a file stays, and neither a scan nor a touch runs it again.
func TestLeave(t *testing.T) {
	f := newFolder(t, nil)
	f.outcome = success
	f.start()
	f.write("a.csv", "1")
	f.until("the run's end", func(runs []ledger.Run) bool { return len(runs) == 1 && runs[0].State == ledger.StateFinished })
	now := time.Now().Add(time.Minute)
	if err := os.Chtimes(f.path("a.csv"), now, now); err != nil {
		t.Fatal(err)
	}
	f.stop()
	f.start().quiet(1)
}

func TestIncludeExclude(t *testing.T) {
	f := newFolder(t, func(w *watcher.Watch) {
		w.Include, w.Exclude, w.Recursive = []string{"*.csv", "data/**/*.txt"}, []string{"drafts", "secret-*"}, true
	}).start()
	for _, name := range []string{"a.csv", "a.txt", "sub/b.csv", "data/x/c.txt", "drafts/d.csv", "secret-e.csv", ".hidden.csv", "f.csv.part", "g.csv~", ".git/h.csv"} {
		f.write(name, name)
	}
	f.runs(3)
	f.quiet(3)
}

// Folders that appear with files in them are seen with what is in them at that instant.
func TestDeepFoldersAtOnce(t *testing.T) {
	f := newFolder(t, func(w *watcher.Watch) { w.Recursive = true }).start()
	n := 0
	for i := range 20 {
		for j := range 5 {
			f.write(fmt.Sprintf("a%d/b/c/%d.csv", i, j), fmt.Sprint(i, j))
			n++
		}
	}
	f.runs(n)
	f.quiet(n)
}

func TestAtomicSaveAndRename(t *testing.T) {
	f := newFolder(t, nil).start()
	f.write(".a.csv.tmp", "1")
	if err := os.Rename(f.path(".a.csv.tmp"), f.path("a.csv")); err != nil {
		t.Fatal(err)
	}
	f.runs(1)
	outside := filepath.Join(filepath.Dir(f.dir), "outside.csv")
	if err := os.WriteFile(outside, []byte("2"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(outside, f.path("b.csv")); err != nil {
		t.Fatal(err)
	}
	f.runs(2)
	f.quiet(2)
}

// A folder that goes and comes back is missed visibly and caught up with.
func TestFolderVanishesAndReturns(t *testing.T) {
	f := newFolder(t, nil).start()
	f.write("a.csv", "1")
	f.runs(1)
	if err := os.Rename(f.dir, f.dir+"-away"); err != nil {
		t.Fatal(err)
	}
	f.until("its absence was noticed", func([]ledger.Run) bool { return f.watcher.Status()[0].State == watcher.StateMissing })
	if err := os.WriteFile(filepath.Join(f.dir+"-away", "b.csv"), []byte("2"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(f.dir+"-away", f.dir); err != nil {
		t.Fatal(err)
	}
	f.runs(2)
	f.quiet(2)
}

func TestFolderThatDoesNotExistYet(t *testing.T) {
	f := newFolder(t, nil)
	if err := os.Remove(f.dir); err != nil {
		t.Fatal(err)
	}
	f.start()
	if st := f.watcher.Status()[0]; st.State != watcher.StateMissing || st.Problem == "" {
		t.Errorf("%+v", st)
	}
	f.write("a.csv", "1")
	f.runs(1)
}

// Names are data, whatever they hold.
func TestHostileNames(t *testing.T) {
	f := newFolder(t, nil).start()
	names := []string{"-rf.csv", "{{ .Job }}.csv", "a b'\"$(x).csv", "ümläut-日本.csv", strings.Repeat("n", 250) + ".csv"}
	if filepath.Separator == '/' {
		names = append(names, "new\nline.csv")
	}
	for _, name := range names {
		f.write(name, name)
	}
	f.runs(len(names))
	f.quiet(len(names))
}

func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	f := newFolder(t, nil)
	f.write("a.csv", "1")
	if err := os.Chmod(f.path("a.csv"), 0); err != nil {
		t.Fatal(err)
	}
	f.start()
	f.until("the problem", func([]ledger.Run) bool { return strings.Contains(f.watcher.Status()[0].Problem, "a.csv") })
	f.quiet(0)
}

// Files that are links are not followed.
func TestLinks(t *testing.T) {
	f := newFolder(t, nil)
	secret := filepath.Join(filepath.Dir(f.dir), "secret.csv")
	if err := os.WriteFile(secret, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, f.path("link.csv")); err != nil {
		t.Skip("links cannot be made here")
	}
	f.start().quiet(0)
}

func TestOffer(t *testing.T) {
	f := newFolder(t, nil)
	f.write("a.csv", "1")
	one, err := watcher.Offer(t.Context(), f.ledger, f.watch, f.path("a.csv"))
	if err != nil || !one.New {
		t.Fatalf("%+v (%v)", one, err)
	}
	two, err := watcher.Offer(t.Context(), f.ledger, f.watch, f.path("a.csv"))
	if err != nil || !two.Blocked || two.Run != one.Run {
		t.Errorf("%+v (%v)", two, err)
	}
	f.start().quiet(1)
	if _, err := watcher.Offer(t.Context(), f.ledger, f.watch, f.path("none")); err == nil {
		t.Error("a file that is not there was taken")
	}
}

// Five thousand files in one burst: each one exactly one run.
func TestBurst(t *testing.T) {
	f := newFolder(t, nil).start()
	const n = 5000
	for i := range n {
		f.write(fmt.Sprintf("f%d.csv", i), fmt.Sprint(i))
	}
	runs := f.runs(n)
	seen := map[string]bool{}
	for _, r := range runs {
		if seen[string(r.Detail)] {
			t.Errorf("twice: %s", r.Detail)
		}
		seen[string(r.Detail)] = true
	}
	f.quiet(n)
}
