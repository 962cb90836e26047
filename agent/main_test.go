package agent_test

import (
	"os"
	"testing"

	"rouse/agent/preview"
	"rouse/agent/sandbox"
	"rouse/skills/module"
)

// TestMain runs the tests, or the behavior of a process that the tests start from this binary.
func TestMain(m *testing.M) {
	sandbox.Child()
	module.Child()
	preview.Child()
	if says := os.Getenv(mcpKey); says != "" {
		serveMCP(says)
		os.Exit(0)
	}
	if does := os.Getenv(fakeAgentKey); does != "" {
		fakeAgent(does)
		os.Exit(0)
	}
	os.Exit(m.Run())
}
