package main

import (
	"encoding/json"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/cmdtest"
)

// TestAnswerForm checks a question that asks for several values (OSL-31, UNI-09). The owner answers
// on a terminal, field by field, or with JSON. Each invalid field gets its own error.
func TestAnswerForm(t *testing.T) {
	ask := `{"question":"Where to?","inputSchema":{"type":"object","required":["city","nights","address"],"properties":{
		"city":{"type":"string","description":"as on the ticket"},"nights":{"type":"integer","default":2,"minimum":1},"class":{"type":"string","enum":["first","second"]},
		"pets":{"type":"boolean"},"guests":{"type":"array","items":{"type":"string"}},"address":{"type":"object","required":["street"],"properties":{"street":{"type":"string"}}}}}}`
	// Without a daemon an answered run does not continue, so each run asks.
	turn := modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "clarify", Args: json.RawMessage(ask)}}}
	s := modeltest.New(t, turn, turn)

	testscript.Run(t, testscript.Params{
		Dir: "testdata/forms",
		Setup: func(e *testscript.Env) error {
			e.Setenv("MODEL", s.URL+"/v1")
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("OLLAMA_HOST", cmdtest.Nobody)
			e.Setenv("ROUSE_DASHBOARD_LISTEN", "127.0.0.1:0")
			e.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
			return nil
		},
	})
}
