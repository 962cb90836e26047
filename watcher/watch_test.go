package watcher

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/internal/nofollow"
	"rouse/watcher/after"
	"rouse/watcher/match"
)

// TestValidated checks that the error of an invalid watch names the job and the remedy.
func TestValidated(t *testing.T) {
	dir := t.TempDir()
	good := Watch{Job: "in", Path: dir}
	for want, change := range map[string]func(*Watch){
		"not an absolute path": func(w *Watch) { w.Path = "inbox" },
		"existing is":          func(w *Watch) { w.Existing = "maybe" },
		"pattern \"[\"":        func(w *Watch) { w.Include = []string{"["} },
		"on_success is":        func(w *Watch) { w.OnSuccess.Action = "burn" },
		"on_failure moves to \"\"": func(w *Watch) {
			w.OnFailure = after.Rule{Action: "move"}
		},
		"the watched folder itself": func(w *Watch) { w.OnSuccess = after.Rule{Action: "move", Dir: dir + string(filepath.Separator)} },
	} {
		w := good
		change(&w)
		if _, err := validated([]Watch{w}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "job in: ") {
			t.Errorf("want %q, got %v", want, err)
		}
	}

	if _, err := validated([]Watch{good, good}); err == nil {
		t.Error("two watches of one job were taken")
	}

	got, err := validated([]Watch{good})
	if err != nil || got[0].Settle != time.Second || got[0].Existing != ExistingProcess {
		t.Errorf("%+v (%v)", got, err)
	}
}

// TestWatchDefaults checks that defaults apply only to settings that are not set.
func TestWatchDefaults(t *testing.T) {
	for _, c := range []struct{ watch, want Watch }{
		{Watch{}, Watch{Mode: ModePerFile, Settle: time.Second, MaxWait: 30 * time.Second, MaxFiles: 500, Existing: ExistingProcess}},
		{Watch{Mode: ModeBatch}, Watch{Mode: ModeBatch, Settle: time.Second, MaxWait: 30 * time.Second, MaxFiles: 500, Existing: ExistingIgnore}},
		{Watch{Mode: ModeConverge}, Watch{Mode: ModeConverge, Settle: time.Second, MaxWait: 30 * time.Second, MaxFiles: 500, Existing: ExistingIgnore}},
		{Watch{Settle: -1, MaxWait: -1, MaxFiles: -1}, Watch{Mode: ModePerFile, Settle: time.Second, MaxWait: 30 * time.Second, MaxFiles: 500, Existing: ExistingProcess}},
		{Watch{Settle: 1, MaxWait: 1, MaxFiles: 1, Existing: ExistingIgnore}, Watch{Mode: ModePerFile, Settle: 1, MaxWait: 1, MaxFiles: 1, Existing: ExistingIgnore}},
	} {
		c.watch.Path, c.want.Path = filepath.FromSlash("/in/"), filepath.FromSlash("/in")
		if c.watch.setDefaults(); !c.watch.equal(c.want) {
			t.Errorf("%+v, want %+v", c.watch, c.want)
		}
	}
}

// TestConvergeHasNoFilesToMove checks that mode converge accepts no action except leave.
func TestConvergeHasNoFilesToMove(t *testing.T) {
	for _, c := range []struct {
		mode, success, failure string
		refused                bool
	}{
		{ModeConverge, "", "", false}, {ModeConverge, after.Leave, after.Leave, false},
		{ModeConverge, after.Delete, "", true}, {ModeConverge, "", after.Delete, true}, {ModeConverge, after.Leave, after.Move, true},
		{ModePerFile, after.Delete, after.Delete, false}, {ModeBatch, after.Delete, after.Leave, false}, {"each", "", "", true},
	} {
		w := Watch{Job: "in", Path: t.TempDir(), Mode: c.mode, OnSuccess: after.Rule{Action: c.success}, OnFailure: after.Rule{Action: c.failure}}
		if _, err := validated([]Watch{w}); (err != nil) != c.refused {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestWatchEqual checks that each setting is compared with the running watch, because a changed
// watch begins with a scan.
func TestWatchEqual(t *testing.T) {
	one := Watch{Job: "in", Agent: "a", Path: "/in", Filter: match.Filter{Include: []string{"*.csv"}, Exclude: []string{"old"}}, Mode: ModeBatch, Settle: time.Second, MaxWait: time.Minute, MaxFiles: 3, Existing: ExistingIgnore}
	same := one
	if !one.equal(same) {
		t.Error("a watch is not equal to itself")
	}
	for name, change := range map[string]func(w *Watch){
		"Job": func(w *Watch) { w.Job = "x" }, "Agent": func(w *Watch) { w.Agent = "x" }, "Path": func(w *Watch) { w.Path = "/x" },
		"Include": func(w *Watch) { w.Include = nil }, "Exclude": func(w *Watch) { w.Exclude = nil }, "ExactCase": func(w *Watch) { w.ExactCase = true },
		"Recursive": func(w *Watch) { w.Recursive = true }, "FollowSymlinks": func(w *Watch) { w.FollowSymlinks = true }, "Definition": func(w *Watch) { w.Definition = "x" },
		"TakeOpen": func(w *Watch) { w.TakeOpen = true }, "OwnFolder": func(w *Watch) { w.OwnFolder = "/x" }, "Mode": func(w *Watch) { w.Mode = ModePerFile },
		"Settle": func(w *Watch) { w.Settle++ }, "MaxWait": func(w *Watch) { w.MaxWait++ }, "MaxFiles": func(w *Watch) { w.MaxFiles++ }, "Existing": func(w *Watch) { w.Existing = ExistingProcess },
		"OnSuccess": func(w *Watch) { w.OnSuccess.Action = after.Leave }, "OnFailure": func(w *Watch) { w.OnFailure.Dir = "/x" },
		"Collect":  func(w *Watch) { w.Collect.When = "x" },
		"Boundary": func(w *Watch) { w.Boundary = nofollow.NewBoundary("/x") },
	} {
		other := one
		if change(&other); one.equal(other) {
			t.Errorf("another %s is not noticed", name)
		}
	}

	d := newHarness(t)
	outer, inner := Watch{Job: "in", Path: d.path("inbox")}, Watch{Job: "inner", Path: d.path("inbox/a")}
	set := func(watches ...Watch) *folder {
		d.must(d.w.Set(t.Context(), watches))
		return d.w.folders["in"]
	}
	if f := set(outer, inner); set(outer, inner) != f || set(outer) == f {
		t.Error("the folders that others watch inside it do not count")
	}
}
