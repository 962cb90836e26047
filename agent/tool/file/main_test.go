package file_test

import (
	"fmt"
	"os"
	"testing"

	"rouse/agent/preview"
	"rouse/agent/sandbox"
)

// viewer reads the files of all tests: what this machine can confine is found out once.
var viewer *preview.Viewer

// TestMain is the tests, and the processes that read files for them.
func TestMain(m *testing.M) {
	sandbox.Child()
	preview.Child()

	box, err := sandbox.New(sandbox.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	viewer = preview.New(box)
	code := m.Run()
	if err := box.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}
