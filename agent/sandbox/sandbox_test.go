package sandbox_test

import (
	"os"
	"testing"

	"rouse/agent/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Child()
	os.Exit(m.Run())
}

