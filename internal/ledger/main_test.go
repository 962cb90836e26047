package ledger_test

import (
	"context"
	"flag"
	"maps"
	"os"
	"slices"
	"testing"
)

// TestMain keeps the property tests short unless -rapid.checks is set. It is also the program of
// TestPowerCuts.
func TestMain(m *testing.M) {
	if dir := os.Getenv(workloadIn); dir != "" {
		os.Exit(beWorkload(dir))
	}

	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == f.DefValue {
		if err := f.Value.Set("25"); err != nil {
			os.Exit(2)
		}
	}
	os.Exit(m.Run())
}

// noCancel is the context of operations that outlive the test's own context.
var noCancel = context.Background()

func sortedKeys(m map[string]int64) []string { return slices.Sorted(maps.Keys(m)) }
