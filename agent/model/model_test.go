package model_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"rouse/agent/model"
)

// A transcript is stored as JSON and continued by another process.
func TestMessageKeepsItsShape(t *testing.T) {
	m := model.Message{Role: model.RoleAssistant, Text: "a", Calls: []model.Call{{ID: "1", Key: "p1", Name: "x", Args: json.RawMessage(`{"n":1}`)}}}
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"role":"assistant","text":"a","calls":[{"id":"1","key":"p1","name":"x","args":{"n":1}}]}`; string(raw) != want {
		t.Errorf("stored as %s, want %s", raw, want)
	}

	var back model.Message
	if err := json.Unmarshal(raw, &back); err != nil || !reflect.DeepEqual(back, m) {
		t.Errorf("read back as %+v (%v)", back, err)
	}
}
