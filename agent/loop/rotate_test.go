package loop_test

import (
	"encoding/json"
	"strings"
	"testing"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/internal/domain"
)

// TestRotation: AYA-13, when the last turns do not fit into the context any more, it is replaced
// once by the task, the model's last text and a summary, with the newest result whole as far as
// there is room; the second time the run ends.
func TestRotation(t *testing.T) {
	for _, c := range []struct {
		turns, requests int
		exit            domain.Exit
	}{{3, 4, domain.ExitFinalResponse}, {5, 4, domain.ExitOverBudget}} {
		h := wordy(t, 30_000, c.turns)
		h.o.Window, h.o.MaxOutput = 16_000, 1000
		second := h.model.turns[1]
		h.model.turns[1] = func(r model.Request) []any { return append([]any{"The first one is about zero."}, second(r)...) }
		sent := recordRequests(h.bench)
		if res := h.run(t, t.Context()); res.Exit != c.exit {
			t.Fatalf("%d turns ended with %s: %s", c.turns, res.Exit, res.Error)
		}
		if len(*sent) != c.requests {
			t.Fatalf("%d turns: %d requests", c.turns, len(*sent))
		}

		rotated := (*sent)[2]
		if len(rotated) != 1 || !strings.HasPrefix(rotated[0].Text, "go\n\n[Your context was full") {
			t.Fatalf("the third request is %.300s", bytesOf(t, rotated))
		}

		for _, part := range []string{"You said last: The first one is about zero.", "--- Agent Working Memory ---", `Tool: look {"path":"/f0"}`, `Tool: look {"path":"/f1"}`, strings.Repeat("0001 ", 100)} {
			if !strings.Contains(rotated[0].Text, part) {
				t.Errorf("%q is not in %.2000s", part, rotated[0].Text)
			}
		}

		if told := strings.Join(h.notices(), "\n"); strings.Count(told, "has started over") != 1 {
			t.Errorf("told: %s", told)
		}
		if later := (*sent)[3]; len(later) != 3 || later[0].Text != rotated[0].Text {
			t.Errorf("the fourth request is %.300s", bytesOf(t, later))
		}
	}
}

// In phases the working memory rides with each request, so that only the last words are
// handed over.
func TestRotationInPhases(t *testing.T) {
	h := wordy(t, 30_000, 3)
	h.o.Policy, h.o.Window, h.o.MaxOutput = loop.Phased(), 16_000, 1000
	sent := recordRequests(h.bench)
	if res := h.run(t, t.Context()); res.Exit != domain.ExitFinalResponse {
		t.Fatalf("ended with %s: %s", res.Exit, res.Error)
	}
	if all := bytesOf(t, (*sent)[2]); strings.Count(all, "--- Agent Working Memory ---") != 1 || !strings.Contains(all, "starts over here") || !strings.Contains(all, `/f1`) {
		t.Errorf("the third request is %.3000s", all)
	}
}

// A server that finds a context too large which should have fitted is believed once.
func TestOverflow(t *testing.T) {
	full := &model.Error{Kind: model.KindContextOverflow, Message: "too many tokens"}
	h := newFileTools(t, steps(one("look", `{"path":"/a"}`), nil, one("find", `{}`))...)
	h.model.turns[1] = say(full)
	sent := recordRequests(h.bench)
	if res := h.run(t, t.Context()); res.Exit != domain.ExitFinalResponse || len(*sent) != 4 || len((*sent)[2]) != 1 || !strings.Contains((*sent)[2][0].Text, `look {"path":"/a"}`) {
		t.Errorf("%+v, %d requests", res, len(*sent))
	}

	h = newFileTools(t, say(full))
	if res := h.run(t, t.Context()); res.Outcome != "error" || len(h.model.requests) != 1 {
		t.Errorf("a task that is too large: %+v, %d requests", res, len(h.model.requests))
	}
}

// The summary is built again from the record when the run continues after a kill.
func TestRotationGoesOn(t *testing.T) {
	h := wordy(t, 0, 1)
	h.o.Window, h.o.MaxOutput = 16_000, 1000
	result, err := json.Marshal(map[string]any{"ok": true, "result": strings.Repeat("long ", 8000)})
	if err != nil {
		t.Fatal(err)
	}

	for _, id := range []string{"1", "2", "3"} {
		h.o.Messages = append(h.o.Messages, model.Message{Role: model.RoleAssistant, Text: "words " + id, Calls: []model.Call{{ID: id, Name: "find", Args: json.RawMessage(`{}`)}}},
			model.Message{Role: model.RoleTool, CallID: id, Name: "find", Text: string(result)})
	}

	sent := recordRequests(h.bench)
	if res := h.run(t, t.Context()); res.Exit != domain.ExitFinalResponse || len((*sent)[0]) != 1 || !strings.Contains((*sent)[0][0].Text, "You said last: words 3") {
		t.Errorf("%+v: %.2000s", res, bytesOf(t, (*sent)[0]))
	}
}
