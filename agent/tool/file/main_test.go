package file_test

import (
	"fmt"
	"os"
	"testing"

	"rouse/agent/preview"
	"rouse/agent/sandbox"
)

// viewer reads files for all tests, so that the sandbox is probed only once.
var viewer *preview.Viewer

// TestMain runs the tests, or a process that reads files for them.
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
