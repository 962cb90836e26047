package file_test

import (
	"os"
	"testing"

	"rouse/agent/preview"
)

// TestMain is the tests, and the processes that read files for them.
func TestMain(m *testing.M) {
	preview.Child()
	os.Exit(m.Run())
}
