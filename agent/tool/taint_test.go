package tool_test

import (
	"encoding/json"
	"testing"

	"rouse/agent/tool"
)

func TestTaintRoundTrip(t *testing.T) {
	for taint := tool.Taint(0); taint <= tool.AllTaints; taint++ {
		if got := tool.ParseTaint(taint.String()); got != taint {
			t.Errorf("%q was read as %q", taint, got)
		}
	}

	if got := (tool.Untrusted | tool.Outward).String(); got != "AC" {
		t.Errorf("untrusted content and an outward effect are written %q", got)
	}

	raw, err := json.Marshal(tool.Taint(0).Labels())
	if err != nil || string(raw) != "[]" {
		t.Errorf("no labels are %s, %v", raw, err)
	}
}
