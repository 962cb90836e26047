package daemon

import (
	"errors"
	"log"
	"os"
	"testing"

	"rouse/agent/preview"
	"rouse/agent/sandbox"
	"rouse/cmd/internal/cmdtest"
	"rouse/skills/module"
)

// TestMain lets the runs of the tests start confined children, which are this binary.
func TestMain(m *testing.M) {
	sandbox.Child()
	preview.Child()
	module.Child()
	if err := errors.Join(cmdtest.Isolate(), cmdtest.Widen()); err != nil {
		log.Fatal(err)
	}
	os.Exit(m.Run())
}
