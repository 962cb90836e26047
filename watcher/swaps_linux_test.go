package watcher_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rouse/internal/domain"
	"rouse/internal/ledger/runs"
	"rouse/internal/nofollow"
	"rouse/watcher"
	"rouse/watcher/after"
)

// outsideHash is the SHA-256 of the text of all files outside.
const outsideHash = "31207a2065f46a5b948fce6fe5c13e85abaf5631e2f894b47dcd4fce14f6c57b"

// TestSwaps replaces the watched folder, its parents and the destinations by links as fast as
// possible while files arrive. ROUSE_TEST_SWAPS sets the number of swaps. No file outside may be
// read, moved, overwritten or created. After the swaps every file must reach its destination.
func TestSwaps(t *testing.T) {
	t.Parallel()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("ROUSE_TEST_SWAPS"), "40"))
	if err != nil {
		t.Fatal(err)
	}

	for _, mode := range []string{watcher.ModePerFile, watcher.ModeBatch, watcher.ModeConverge} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := newSwapBench(t, n)
			before := b.outside()
			w := watcher.Watch{Job: "in", Agent: "a", Path: b.path("work/deep/in"), Mode: mode, Settle: 1, MaxWait: 1, Boundary: nofollow.NewBoundary(b.path("work"))}
			if mode != watcher.ModeConverge {
				w.OnSuccess, w.OnFailure = after.Rule{Action: "move", Dir: b.path("work/far/done")}, after.Rule{Action: "move", Dir: b.path("work/bad")}
			}
			b.start(w)
			b.swapWhileFilesCome(n)

			if mode != watcher.ModeConverge {
				b.what = "every file is where it belongs"
				b.until(func() bool {
					b.watcher.Scan()
					left, err := os.ReadDir(b.path("work/deep/in"))
					moved, err2 := os.ReadDir(b.path("work/far/done"))
					return errors.Join(err, err2) == nil && len(left) == 0 && len(moved) == n
				})
			}

			b.stop()
			if now := b.outside(); now != before {
				t.Errorf("it was\n%s\nand is\n%s", before, now)
			}
			b.checkRuns()
		})
	}
}

type swapBench struct{ *bench }

// newSwapBench creates a folder in which others can create names, and a folder with the same names
// beside it.
func newSwapBench(t *testing.T, n int) swapBench {
	t.Helper()
	b := swapBench{newBench(t)}
	b.outcome = domain.OutcomeSuccess
	for _, dir := range []string{"work/deep/in", "work/far/done", "work/bad", "out/in", "out/done"} {
		b.must(os.MkdirAll(b.path(dir), 0o755))
	}

	for _, dir := range []string{"out", "out/in"} {
		for i := range n {
			b.must(os.WriteFile(b.path(fmt.Sprintf("%s/%d.csv", dir, i)), []byte("outside"), 0o644))
		}
		b.must(os.WriteFile(b.path(dir+"/outside.csv"), []byte("outside"), 0o644))
	}

	for _, dir := range []string{"work/deep/in", "work/deep", "work/far/done", "work/far"} {
		b.must(os.Symlink(b.path("out"), b.path("work/"+filepath.Base(dir)+"-link")))
	}

	return b
}

func (b swapBench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// swapWhileFilesCome replaces folders by links for a moment, and drops a file each time.
func (b swapBench) swapWhileFilesCome(n int) {
	b.t.Helper()
	// Use an open folder, like a program that works in it.
	in, err := os.OpenRoot(b.path("work/deep/in"))
	b.must(err)
	defer in.Close()

	for i := range n {
		dir := []string{"work/deep/in", "work/deep", "work/far/done", "work/far"}[i%4]
		link := b.path("work/" + filepath.Base(dir) + "-link")
		b.must(unix.Renameat2(unix.AT_FDCWD, link, unix.AT_FDCWD, b.path(dir), unix.RENAME_EXCHANGE))
		b.must(in.WriteFile(fmt.Sprintf("%d.csv", i), fmt.Appendf(nil, "file %d", i), 0o644))
		b.finish()
		runtime.Gosched()
		b.must(unix.Renameat2(unix.AT_FDCWD, link, unix.AT_FDCWD, b.path(dir), unix.RENAME_EXCHANGE))
		b.finish()
	}
}

// outside returns a description of all files outside the folder of others.
func (b swapBench) outside() string {
	b.t.Helper()
	var out strings.Builder
	b.must(filepath.WalkDir(b.path("out"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			fmt.Fprintln(&out, path)
			return err
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(&out, "%s %s %q\n", path, d.Type(), text)
		return err
	}))
	return out.String()
}

// checkRuns checks that no run received content from outside.
func (b swapBench) checkRuns() {
	b.t.Helper()
	runs, err := b.ledger.Runs.List(b.t.Context(), runs.Filter{Limit: 100_000})
	b.must(err)
	for _, r := range runs {
		if strings.Contains(string(r.Detail), outsideHash) || strings.Contains(string(r.Detail), "outside.csv") {
			b.t.Errorf("run %d was given what lies outside: %s", r.ID, r.Detail)
		}
	}
}
