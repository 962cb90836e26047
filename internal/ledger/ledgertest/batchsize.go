package ledgertest

import (
	"os"
	"strconv"
	"testing"
)

// batchSize is how many instants come due at once: ROUSE_TEST_BATCH, or few enough that a
// plain go test stays quick, also under the race detector, which makes SQLite fifty times slower.
func batchSize(t *testing.T) int {
	t.Helper()
	text := os.Getenv("ROUSE_TEST_BATCH")
	if text == "" {
		return 1000
	}

	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 {
		t.Fatalf("ROUSE_TEST_BATCH is %q, which is not a number of instants", text)
	}
	return n
}
