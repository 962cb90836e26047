package ledgertest

import (
	"os"
	"strconv"
	"testing"
)

// batchSize returns how many scheduled runs come due at once. ROUSE_TEST_BATCH sets it. The default
// keeps a plain go test fast, even with the race detector, which slows down SQLite considerably.
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
