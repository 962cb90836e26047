package watcher_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/pause"
	"rouse/watcher"
)

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// paths returns the files of a job's runs, each once per run.
func (b *bench) paths(job string) map[string]int {
	b.t.Helper()
	out := map[string]int{}
	for _, d := range b.changes(job) {
		if d.File != nil {
			out[d.File.Path]++
		}
		for _, f := range d.Files {
			out[f.Path]++
		}
	}

	return out
}

// TestFoldersAtOnce checks that each file is taken once if many folders are created together with
// their files.
func TestFoldersAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.inbox()
	w.Recursive = true
	b.start(w)
	const folders, files = 40, 5
	for i := range folders {
		dir := b.path(fmt.Sprintf("inbox/%d/a/b/c", i))
		b.must(os.MkdirAll(dir, 0o755))
		for j := range files {
			// Rename the file into place. A file written there would be empty for longer than a
			// settle window on a busy machine, and the empty content would count as well.
			whole := b.path("whole")
			b.must(os.WriteFile(whole, fmt.Append(nil, i, j), 0o644))
			b.must(os.Rename(whole, filepath.Join(dir, fmt.Sprint(j))))
		}
	}

	b.what = "a run of each file"
	b.until(func() bool { return b.count("in") >= folders*files })

	for path, n := range b.paths("in") {
		if n != 1 {
			t.Errorf("%d runs of %s", n, path)
		}
	}
}

// TestRenameStorm checks that a file and a folder that are renamed all the time are taken at their
// final paths.
func TestRenameStorm(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.inbox()
	w.Recursive, w.Settle = true, 200*time.Millisecond
	b.start(w)
	b.write("inbox/f0.csv", "1")
	b.write("inbox/d0/x/y.csv", "2")
	const last = 300
	for i := range last {
		b.must(os.Rename(b.path(fmt.Sprintf("inbox/f%d.csv", i)), b.path(fmt.Sprintf("inbox/f%d.csv", i+1))))
		b.must(os.Rename(b.path(fmt.Sprintf("inbox/d%d", i)), b.path(fmt.Sprintf("inbox/d%d", i+1))))
	}

	file, deep := b.path(fmt.Sprintf("inbox/f%d.csv", last)), b.path(fmt.Sprintf("inbox/d%d/x/y.csv", last))
	b.what = "both are taken where they are"
	b.until(func() bool { p := b.paths("in"); return p[file] == 1 && p[deep] == 1 })
	b.write(fmt.Sprintf("inbox/d%d/x/z.csv", last), "3")
	b.what = "the folder is watched where it is"
	b.until(func() bool { return b.paths("in")[filepath.Join(filepath.Dir(deep), "z.csv")] == 1 })

	for path, n := range b.paths("in") {
		if n != 1 {
			t.Errorf("%d runs of %s", n, path)
		}
	}
}

// TestBreaker checks that a file that is rewritten with new content pauses its job at the twentieth
// run within a minute and that the owner is notified. Many different files do not.
func TestBreaker(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{watcher.ModePerFile, watcher.ModeBatch} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			w := b.inbox()
			w.Mode, w.Settle = mode, 20*time.Millisecond
			b.startWith(watcher.Options{BreakerNotices: func(job string) []ledger.Notice {
				return []ledger.Notice{{Job: job, Channel: "desktop", Title: pause.PathPlaceholder}}
			}}, w)
			for i := range 30 {
				b.write(fmt.Sprintf("inbox/f%d.csv", i), "1")
			}

			b.what = "many files"
			b.until(func() bool { return len(b.paths("in")) == 30 })
			paused := func() []pause.Pause {
				pauses, err := b.ledger.Pauses.List(t.Context(), time.Now())
				b.must(err)
				return pauses
			}
			if got := paused(); len(got) != 0 {
				t.Fatalf("%+v", got)
			}

			path := b.path("inbox/loop.csv")
			for i := 1; len(paused()) == 0; i++ {
				b.must(os.WriteFile(path, fmt.Append(nil, "text ", i), 0o644))
				b.what = fmt.Sprint("run ", i)
				b.until(func() bool { return b.paths("in")[path] >= i })
				if i > 20 {
					t.Fatal("it goes on")
				}
			}

			got, notices := paused()[0], 0
			due, err := b.ledger.Outbox.Pending(t.Context(), time.Now(), 10)
			b.must(err)

			for _, n := range due {
				if n.Title == path && n.Job == "in" {
					notices++
				}
			}

			if got.Scope != pause.Job || got.Name != "in" || !strings.Contains(got.Reason, "loop.csv") || notices != 1 {
				t.Errorf("%+v, %d notices", got, notices)
			}
		})
	}
}

// TestOwnFiles checks that a file that a run of the job writes itself starts no run, unless another
// program changes it.
func TestOwnFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start(b.inbox())
	b.write("inbox/a.csv", "1")
	b.what = "a run"
	b.until(func() bool { return b.count("in") == 1 })
	_, attempt, err := b.ledger.StartAttempt(t.Context(), 1)
	b.must(err)
	b.must(b.ledger.Claims.ClaimOutput(t.Context(), attempt, claim.Claim{Job: "in", Path: filepath.ToSlash(b.path("inbox/report.md")), Hash: hashOf([]byte("all is well"))}))
	b.write("inbox/report.md", "all is well")
	b.write("inbox/b.csv", "2")
	b.what = "the next run"
	b.until(func() bool { return b.paths("in")[b.path("inbox/b.csv")] == 1 })
	b.write("inbox/report.md", "all is not well")
	b.what = "a run of what somebody else made of it"
	b.until(func() bool { return b.paths("in")[b.path("inbox/report.md")] == 1 })
	if n := b.count("in"); n != 3 {
		t.Errorf("%d runs", n)
	}
}
