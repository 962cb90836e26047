package ledger_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/integrity"
	"rouse/internal/ledger/ledgertest"
	"rouse/internal/ledger/runs"
	"rouse/internal/powercut"
)

// TestPowerCuts simulates power cuts at random moments of a program that uses a ledger, and opens
// the possible remains on disk. The ledger must open without confirmation, have all recorded rows,
// pass the audit, and accept new runs. ROUSE_TEST_POWERCUTS sets the number of cuts.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	cuts, err := strconv.Atoi(os.Getenv("ROUSE_TEST_POWERCUTS"))
	if err != nil {
		t.Skip("ROUSE_TEST_POWERCUTS is not set; .ci/run sets it")
	}

	home := t.TempDir()
	if err := ledgertest.Blank(filepath.Join(home, "ledger.db")); err != nil {
		t.Fatal(err)
	}
	trace := recordWorkload(t, home, powercut.Options{Env: []string{workloadIs + "=busy"}})
	rows, lost := 0, 0
	for i := range cuts {
		r := rand.New(rand.NewPCG(11, uint64(i)))
		cut := r.IntN(trace.Len() + 1)
		dir := t.TempDir()
		if err := errors.Join(trace.State(cut, r, dir), keepInodes(filepath.Join(dir, "ledger.db"))); err != nil {
			t.Fatal(err)
		}

		said := trace.Said(cut)
		rows += len(said)
		if err := checkAfterCut(t, dir, said); err != nil {
			lost++
			t.Errorf("cut %d, behind step %d of %d: %v", i, cut, trace.Len(), err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d power cuts in %d steps with %d syncs, %d rows that were on record: %d states with a loss", cuts, trace.Len(), trace.Syncs(), rows, lost)
}

// recordWorkload runs beWorkload in a folder.
func recordWorkload(t *testing.T, home string, o powercut.Options) *powercut.Trace {
	t.Helper()
	o.Root, o.Program = home, os.Args[0]
	o.Env = append(append(os.Environ(), workloadIn+"="+home), o.Env...)
	trace, err := powercut.Record(o)
	if errors.Is(err, powercut.ErrNotAllowed) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// TestPowerCutsOfAMigration simulates power cuts at random moments of a migration, and of the
// creation of a ledger in a new home. The ledger must open with all its content.
// ROUSE_TEST_POWERCUTS sets the number of cuts.
func TestPowerCutsOfAMigration(t *testing.T) {
	t.Parallel()
	cuts, err := strconv.Atoi(os.Getenv("ROUSE_TEST_POWERCUTS"))
	if err != nil {
		t.Skip("ROUSE_TEST_POWERCUTS is not set; .ci/run sets it")
	}

	for _, fresh := range []bool{true, false} {
		home := t.TempDir()
		if !fresh {
			makeForMigration(t, filepath.Join(home, "ledger.db"))
		}
		trace := recordWorkload(t, home, powercut.Options{Env: []string{workloadIs + "=migrated"}})

		for i := range cuts / 2 {
			r := rand.New(rand.NewPCG(13, uint64(i)))
			cut, dir := r.IntN(trace.Len()+1), t.TempDir()
			if err := errors.Join(trace.State(cut, r, dir), keepInodes(filepath.Join(dir, "ledger.db"))); err != nil {
				t.Fatal(err)
			}

			l, err := ledger.OpenMigrating(t.Context(), ledger.Options{Path: filepath.Join(dir, "ledger.db")}, secondMigration)
			if err != nil {
				t.Errorf("fresh %v, cut %d, behind step %d of %d: %v", fresh, i, cut, trace.Len(), err)
				continue
			}
			if !fresh {
				checkMigrated(t, l)
			}
			if err := errors.Join(l.Close(), os.RemoveAll(dir)); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%d power cuts in %d steps, of a new ledger %v: all open", cuts/2, trace.Len(), fresh)
	}
}

// TestFailingSyncs reports failed syncs to a program that uses a ledger, so that it is unknown
// whether the writes are on disk. The program looks up the key before it decides, so that no run is
// lost or duplicated. ROUSE_TEST_FAILING_SYNCS sets the number of runs of each of three agents.
func TestFailingSyncs(t *testing.T) {
	t.Parallel()
	each, err := strconv.Atoi(os.Getenv("ROUSE_TEST_FAILING_SYNCS"))
	if err != nil {
		t.Skip("ROUSE_TEST_FAILING_SYNCS is not set; .ci/run sets it")
	}

	home := t.TempDir()
	if err := ledgertest.Blank(filepath.Join(home, "ledger.db")); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 5))
	failed := 0
	trace := recordWorkload(t, home, powercut.Options{
		Env: []string{workloadIs + "=" + strconv.Itoa(each)},
		FailSync: func(path string) bool {
			fails := r.IntN(4) == 0
			if fails {
				failed++
			}
			return fails
		},
	})

	l := openIn(t, home)
	runs, err := l.Runs.List(t.Context(), runs.Filter{Limit: 10 * each})
	if err != nil || len(runs) != 3*each {
		t.Errorf("%d runs, want %d: %v", len(runs), 3*each, err)
	}
	keys := map[string]bool{}
	for _, run := range runs {
		if keys[run.Key] || run.Outcome != domain.OutcomeSkipped {
			t.Errorf("%+v", run)
		}
		keys[run.Key] = true
	}
	ledgertest.Audited(t, l)

	kept := 0
	for _, line := range trace.Said(trace.Len()) {
		if strings.HasPrefix(line, "kept") {
			kept++
		}
	}
	if failed == 0 {
		t.Error("no sync failed")
	}
	t.Logf("%d syncs failed; %d writes failed and were there all the same; %d runs, none lost or twice", failed, kept, len(runs))
}

// keepInodes updates the inode numbers in the marker of a ledger, because a power cut would not
// change them.
func keepInodes(path string) error {
	marker, err := os.ReadFile(path + "-seal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for name, file := range map[string]string{"inode": path, "log_inode": path + "-wal"} {
		var now unix.Stat_t
		if unix.Stat(file, &now) == nil {
			marker = regexp.MustCompile(`"`+name+`":\d+`).ReplaceAll(marker, fmt.Appendf(nil, `"%s":%d`, name, now.Ino))
		}
	}
	return errors.Join(err, os.WriteFile(path+"-seal", marker, 0o600))
}

// checkAfterCut opens a ledger and checks that it has all recorded rows.
func checkAfterCut(t *testing.T, dir string, said []string) error {
	ctx := t.Context()
	l, err := ledger.Open(ctx, ledger.Options{Path: filepath.Join(dir, "ledger.db"), Blobs: filepath.Join(dir, "blobs")})
	if err != nil {
		return err
	}
	defer l.Close()

	for _, line := range said {
		what, key, _ := strings.Cut(strings.TrimSpace(line), " ")
		r, found, err := l.Runs.ByKey(ctx, key)
		switch {
		case err != nil || !found:
			return fmt.Errorf("%s was accepted and is lost: %w", key, err)
		case what == "finished" && r.Outcome != domain.OutcomeSuccess:
			return fmt.Errorf("%s was finished and is %s", key, r.State)
		case what == "called":
			calls, err := l.Steps.Calls(ctx, r.ID)
			if err != nil || len(calls) != 1 || calls[0].State != domain.CallDone {
				return fmt.Errorf("the call of %s is lost: %+v %w", key, calls, err)
			}
			var life, i int
			if _, err := fmt.Sscanf(key, "%d.%d", &life, &i); err != nil || string(calls[0].Envelope) != string(value(life, i)) {
				return fmt.Errorf("the call of %s has another answer, %w", key, err)
			}
		}
	}

	if err := integrity.Audit(ctx, l.DB, l.Blobs, integrity.Options{
		Begin: func(integrity.Check) {},
		Found: func(v integrity.Violation) error { return fmt.Errorf("audit: %s: %s", v.Check, v.Text) },
	}); err != nil {
		return err
	}

	// A client without a response repeats its request and gets the same run.
	request := ledger.Request{Job: "j0", Agent: "a", Trigger: domain.TriggerAPI, Key: "0.0.0"}
	before, known, err := l.Runs.ByKey(ctx, request.Key)
	if err != nil {
		return err
	}
	again, err := l.Enqueue(ctx, request)
	if err != nil || again[0].New == known || known && again[0].Run != before.ID {
		return fmt.Errorf("asked for again: %+v, and before %d (%v) %w", again, before.ID, known, err)
	}
	return l.Close()
}
