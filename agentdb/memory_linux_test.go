//go:build !race

package agentdb_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
)

// TestMemoryOfBombs checks that an agent's SQL cannot use up the daemon's memory. Values that are
// alive together are limited, although each may have 16 MiB. A child process runs the test, so
// that its peak is separate. The race detector would only make SQLite slow.
func TestMemoryOfBombs(t *testing.T) {
	t.Parallel()
	if os.Getenv("ROUSE_TEST_MEMORY_CHILD") != "" {
		runBombs(t)
		return
	}

	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMemoryOfBombs$", "-test.v")
	cmd.Env = append(os.Environ(), "ROUSE_TEST_MEMORY_CHILD=1", "GOCOVERDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	peak := regexp.MustCompile(`peak (\d+) MiB`).FindSubmatch(out)
	if peak == nil {
		t.Fatalf("the child told no peak:\n%s", out)
	}
	if n, err := strconv.Atoi(string(peak[1])); err != nil || n > 900 {
		t.Errorf("the child took %s MiB:\n%s", peak[1], out)
	}
}

func runBombs(t *testing.T) {
	// The memory limit must stop them, even on a slow machine.
	db, err := agentdb.Open(t.Context(), agentdb.Options{Path: filepath.Join(t.TempDir(), "db.sqlite"), Timeout: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	other := fresh(t)
	expenses(t, other)
	expenses(t, db)
	const big = "hex(zeroblob(8000000))"
	many := strings.Repeat(big+", ", 44) + big // 690 MiB, and twice as much if copied
	for name, sql := range map[string]string{
		"columns":   "select " + many,
		"arguments": "select length(max(" + many + "))",
		"groups":    "with recursive r(n) as (select 1 union all select n + 1 from r limit 50) select n, length(group_concat(" + big + ")) from r group by n",
	} {
		var bad *dberr.Error
		if _, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: sql}); err != nil && !errors.As(err, &bad) {
			t.Errorf("%s, asked: %v", name, err)
		}
		if _, err := db.Execute(t.Context(), changelog.By{Run: 1}, agentdb.ExecuteSpec{SQL: sql}); err != nil && !errors.As(err, &bad) {
			t.Errorf("%s, executed: %v", name, err)
		}

		if name == "arguments" {
			if bad == nil || !strings.Contains(bad.Message, "memory") {
				t.Errorf("%s: %v", name, bad)
			}
		}

		if _, err := other.Insert(t.Context(), changelog.By{Run: 1}, "expenses", []map[string]any{{"category": name}}); err != nil {
			t.Errorf("after %s another database: %v", name, err)
		}
	}

	if _, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: "select count(*) from expenses"}); err != nil {
		t.Errorf("afterwards: %v", err)
	}

	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}

	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	kib, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
	if err != nil {
		t.Fatal(err)
	}

	t.Logf("peak %d MiB", kib>>10)
}
