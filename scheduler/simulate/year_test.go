package simulate_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/ledger"
	"rouse/internal/ledger/runs"
	"rouse/internal/storage/dbfile"
	"rouse/scheduler"
	"rouse/scheduler/schedule"
)

// TestYear runs a scheduler, a dispatcher and a ledger with retention and backups in virtual time.
// Each instant has its run. Resource usage does not grow once old runs are deleted. ROUSE_TEST_YEAR
// is the number of days; an eighth of it is the retention period. The test is not parallel, because
// it counts the goroutines of the process.
func TestYear(t *testing.T) {
	days := 8
	if text := os.Getenv("ROUSE_TEST_YEAR"); text != "" {
		var err error
		if days, err = strconv.Atoi(text); err != nil || days < 8 {
			t.Fatalf("ROUSE_TEST_YEAR is %q, and has to be 8 days at least", text)
		}
	}
	path := filepath.Join(t.TempDir(), "ledger.db")
	synctest.Test(t, func(t *testing.T) { liveFor(t, path, days) })
}

// footprint is the resource usage of a process.
type footprint struct {
	goroutines, descriptors int
	heap, file, folder      int64 // in bytes
}

func liveFor(t *testing.T, path string, days int) {
	jobs := []scheduler.Job{job(t, "often", schedule.Options{Cron: "*/20 * * * *"}), job(t, "each hour", schedule.Options{Cron: "7 * * * *"}), job(t, "each day", schedule.Options{Cron: "@daily"})}
	for i := range jobs {
		jobs[i].Agent, jobs[i].Overlap = "a", "queue_all"
	}
	const aDay = 24*3 + 24 + 1

	r := &recording{t: t, jobs: jobs, left: map[int64]time.Duration{}}
	var err error
	if r.l, err = ledger.Open(t.Context(), ledger.Options{Path: path, Blobs: filepath.Join(filepath.Dir(path), "blobs"), Now: r.now}); err != nil {
		t.Fatal(err)
	}
	defer r.l.Close()

	kept := time.Duration(days/8) * 24 * time.Hour
	removed := 0
	time.Sleep(time.Minute) // avoid the start of the bubble, when no job is due
	stop := r.daemon()
	samples := make([]footprint, 0, days)
	for range days {
		for range 4 { // like a daemon
			time.Sleep(6 * time.Hour)
			synctest.Wait()
			n, err := r.l.Maint.Prune(t.Context(), r.now(), func(string) time.Duration { return kept })
			if err != nil {
				t.Fatal(err)
			}
			removed += n
			if _, err := r.l.GiveSpaceBack(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := r.l.BackUpDaily(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		samples = append(samples, takeFootprint(t, path))
	}
	stop()

	left, err := r.l.Runs.List(t.Context(), runs.Filter{Limit: days * aDay})
	if err != nil {
		t.Fatal(err)
	}
	if removed+len(left) != days*aDay {
		t.Errorf("%d runs were removed and %d are kept of %d", removed, len(left), days*aDay)
	}

	// Compare the usage after the first deletions with the usage at the end.
	var early, late footprint
	for i, s := range samples {
		switch {
		case i >= days/4 && i < days/2:
			early = early.most(s)
		case i >= days-days/4:
			late = late.most(s)
		}
	}
	t.Logf("%d days, %d runs; at most from a quarter to a half: %+v; in the last quarter: %+v", days, days*aDay, early, late)
	if late.goroutines > early.goroutines+2 || late.descriptors > early.descriptors+2 || late.heap > early.heap*5/4+1<<20 || late.file > early.file*5/4 || late.folder > early.folder*5/4+1<<20 {
		t.Error("it grew")
	}
}

func takeFootprint(t *testing.T, path string) footprint {
	t.Helper()
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	out := footprint{goroutines: runtime.NumGoroutine(), heap: int64(memory.HeapAlloc), file: dbfile.Size(path)}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil { // only on Linux
		out.descriptors = len(open)
	}

	err := filepath.WalkDir(filepath.Dir(path), func(_ string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			out.folder += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (f footprint) most(g footprint) footprint {
	return footprint{max(f.goroutines, g.goroutines), max(f.descriptors, g.descriptors), max(f.heap, g.heap), max(f.file, g.file), max(f.folder, g.folder)}
}
