package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/internal/contract"
	"rouse/internal/domain"
)

// crowded returns a model that reads many files in each turn. Even one line per result does not fit
// into its context.
func crowded(t *testing.T, turns int) *fileTools {
	t.Helper()
	var calls []model.Call
	for i := range 60 {
		calls = append(calls, call("look", fmt.Sprintf(`{"path":"/f%02d"}`, i)))
	}

	h := newFileTools(t, steps(slices.Repeat([][]model.Call{calls}, turns)...)...)
	for i := range 60 {
		h.files[fmt.Sprintf("/f%02d", i)] = strings.Repeat(fmt.Sprintf("%04d ", i), 500)
	}
	h.o.Window, h.o.MaxOutput, h.o.Bounds.Calls = 4000, 500, 1000
	return h
}

// TestRotation: AYA-13, if the last turn does not fit even with shortened results, the context is
// replaced once by the task, the model's last text and a summary. The second time the run ends.
func TestRotation(t *testing.T) {
	row := contract.Of(t, "AYA-13")
	for _, c := range []struct {
		turns int
		exit  domain.Exit
	}{{1, domain.ExitFinalResponse}, {2, domain.Exit(row.Quote("over_budget"))}} {
		h := crowded(t, c.turns)
		first := h.model.turns[0]
		h.model.turns[0] = func(r model.Request) []any { return append([]any{"They are about figures."}, first(r)...) }
		sent := recordRequests(h.bench)
		if res := h.run(t, t.Context()); res.Exit != c.exit {
			t.Fatalf("%d turns ended with %s: %s", c.turns, res.Exit, res.Error)
		}
		if len(*sent) != 2 {
			t.Fatalf("%d turns: %d requests", c.turns, len(*sent))
		}

		rotated := (*sent)[1]
		if len(rotated) != 1 || !strings.HasPrefix(rotated[0].Text, "go\n\n[Your context was full") {
			t.Fatalf("the second request is %.300s", bytesOf(t, rotated))
		}

		for _, part := range []string{"You said last: They are about figures.", "--- Agent Working Memory ---", "Tool: look\n    Input: {\"path\":\"/f59\"}"} {
			if !strings.Contains(rotated[0].Text, part) {
				t.Errorf("%q is not in %.2000s", part, rotated[0].Text)
			}
		}

		if told := strings.Join(h.notices(), "\n"); strings.Count(told, "has started over") != 1 {
			t.Errorf("told: %s", told)
		}
	}
}

// TestRotationKeepsAnswers: AYA-13, the owner's answers survive a rotation, so that the model does
// not ask again. If they do not all fit, the newest stay.
func TestRotationKeepsAnswers(t *testing.T) {
	h := crowded(t, 1)
	h.o.Messages = append(h.o.Messages,
		model.Message{Role: model.RoleAssistant, Text: "May I?"}, model.Message{Role: model.RoleUser, Text: "Your owner answers: yes"},
		model.Message{Role: model.RoleAssistant, Text: "Which ones?"}, model.Message{Role: model.RoleUser, Text: "Your owner answers: " + strings.Repeat("long ", 500)},
		model.Message{Role: model.RoleAssistant, Text: "And the others?"}, model.Message{Role: model.RoleUser, Text: "Your owner answers: leave them"})
	sent := recordRequests(h.bench)
	if res := h.run(t, t.Context()); res.Exit != domain.ExitFinalResponse {
		t.Fatalf("ended with %s: %s", res.Exit, res.Error)
	}

	rotated := (*sent)[1][0].Text
	older, newer := strings.Index(rotated, "You were told: Your owner answers: long"), strings.Index(rotated, "You were told: Your owner answers: leave them\n")
	if older < 0 || newer < older || strings.Count(rotated, "long ") > 400 || strings.Count(rotated, "You were told") != 2 {
		t.Errorf("%.4000s", rotated)
	}
}

// TestRotationInPhases checks that in phases only the model's last text is handed over, because
// each request has the working memory.
func TestRotationInPhases(t *testing.T) {
	h := crowded(t, 1)
	h.o.Policy = loop.Phased()
	sent := recordRequests(h.bench)
	if res := h.run(t, t.Context()); res.Exit != domain.ExitFinalResponse {
		t.Fatalf("ended with %s: %s", res.Exit, res.Error)
	}
	if all := bytesOf(t, (*sent)[1]); strings.Count(all, "--- Agent Working Memory ---") != 1 || !strings.Contains(all, "starts over here") || !strings.Contains(all, `/f59`) {
		t.Errorf("the second request is %.3000s", all)
	}
}

// TestOverflow checks that the context shrinks once after a server rejects a request that should
// have fitted.
func TestOverflow(t *testing.T) {
	full := &model.Error{Kind: model.KindContextOverflow, Message: "too many tokens"}
	h := newFileTools(t, steps(one("look", `{"path":"/a"}`), nil, one("find", `{}`))...)
	h.model.turns[1], h.o.Bounds.Steps = say(full), 3 // a rejected request is not a step
	h.o.Messages[0].Text = `{"ok":true}`              // looks like a result, but is not one
	sent := recordRequests(h.bench)
	if res := h.run(t, t.Context()); res.Exit != domain.ExitFinalResponse || len(*sent) != 4 || len((*sent)[2]) != 1 || !strings.Contains((*sent)[2][0].Text, "[Step 1] ACT: called look\n    Tool: look\n    Input: {\"path\":\"/a\"}") {
		t.Errorf("%+v, %d requests: %s", res, len(*sent), bytesOf(t, (*sent)[2]))
	}

	h = newFileTools(t, say(full), say("end"))
	h.o.Messages = append(h.o.Messages, model.Message{Role: model.RoleAssistant, Text: "It will be long."})
	sent = recordRequests(h.bench)
	if res := h.run(t, t.Context()); res.Exit != domain.ExitFinalResponse || len((*sent)[1]) != 1 || !strings.Contains((*sent)[1][0].Text, "You said last: It will be long.") {
		t.Errorf("a single answer: %+v, %s", res, bytesOf(t, (*sent)[1]))
	}

	h = newFileTools(t, say(full))
	if res := h.run(t, t.Context()); res.Outcome != "error" || len(h.model.requests) != 1 {
		t.Errorf("a task that is too large: %+v, %d requests", res, len(h.model.requests))
	}
}

// TestOverflowHalvesTheWindow checks that the assumed context is halved, whether it was configured
// or the default.
func TestOverflowHalvesTheWindow(t *testing.T) {
	for name, c := range map[string]struct{ window, most int }{
		"as it was given": {20_000, loop.UsableWindow(10_000)},
		"nobody gave one": {0, loop.UsableWindow(loop.DefaultWindow / 2)},
	} {
		t.Run(name, func(t *testing.T) {
			const reads = 60
			h := wordy(t, c.most/2, reads) // each an eighth of the space
			full := slices.Insert(h.model.turns, 1, say(&model.Error{Kind: model.KindContextOverflow, Message: "too many tokens"}))
			h.model.turns = full
			h.o.Window, h.o.MaxOutput, h.o.Bounds.Steps = c.window, 500, 2*reads
			res := h.run(t, t.Context())
			if res.Exit != domain.ExitFinalResponse {
				t.Fatalf("ended with %s: %s", res.Exit, res.Error)
			}

			longest := int64(0)
			for _, r := range h.model.requests[2:] {
				longest = max(longest, inputOf(r))
			}
			if room := int64(c.most); longest > room || longest < room*6/10 {
				t.Errorf("the longest request after it has about %d tokens, and half of the context has room for %d", longest, room)
			}
		})
	}
}

// TestOverflowWithSizes (OSA-21) checks that the sizes in a rejection are used. The history is
// shortened until the server accepts the request, and later runs are told the size.
func TestOverflowWithSizes(t *testing.T) {
	const reads = 40
	for name, c := range map[string]struct {
		window      int
		bytes       int // per token of this server
		needed      bool
		mostRefused int
	}{
		"nobody gave a window":  {0, 4, true, 1},
		"given too large":       {100_000, 4, true, 1},
		"tokens are short":      {0, 2, true, 2},
		"only the window":       {0, 4, false, 1},
		"only it, short tokens": {0, 3, false, 4},
	} {
		t.Run(name, func(t *testing.T) {
			const size = 8000 // context size of the server in tokens
			h := wordy(t, 6000, reads)
			server := &limitedServer{Provider: h.model, size: size, bytes: c.bytes, tells: c.needed}
			learned := 0
			h.o.Provider = server
			h.o.Window, h.o.MaxOutput, h.o.Bounds.Steps = c.window, 500, 2*reads
			h.o.LearnContext = func(n int) { learned = n }
			res := h.run(t, t.Context())
			if res.Exit != domain.ExitFinalResponse || len(h.calls) != reads {
				t.Fatalf("ended with %s after %d calls: %s", res.Exit, len(h.calls), res.Error)
			}
			if server.refused == 0 || server.refused > c.mostRefused || learned != size {
				t.Errorf("%d requests were refused, and the size is taken for %d", server.refused, learned)
			}
		})
	}
}

// TestOverflowWithoutEnd checks that a server that rejects every request ends the run, with the
// server's message.
func TestOverflowWithoutEnd(t *testing.T) {
	h := wordy(t, 6000, 5)
	server := &limitedServer{Provider: h.model, size: 300, bytes: 4, tells: true}
	h.o.Provider, h.o.MaxOutput, h.o.Messages[0].Text = server, 500, strings.Repeat("a long task ", 200)
	if res := h.run(t, t.Context()); res.Outcome != domain.OutcomeError || server.refused == 0 || server.refused > 3 || len(h.model.requests) > 0 {
		t.Errorf("%+v after %d refusals", res, server.refused)
	}
}

// limitedServer rejects requests that exceed its context.
type limitedServer struct {
	model.Provider
	size, bytes int // of the context in tokens; per token
	tells       bool
	refused     int
}

func (s *limitedServer) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	n := int(inputOf(r)) * 4 / s.bytes
	if n <= s.size {
		return s.Provider.Stream(ctx, r)
	}
	s.refused++
	e := &model.Error{Kind: model.KindContextOverflow, Message: "too many tokens", Window: s.size}
	if s.tells {
		e.Needed = n
	}
	return func(yield func(model.Event, error) bool) { yield(model.Event{}, e) }
}

// TestRotationGoesOn checks that a run continued after a kill rebuilds the same summary from the
// record.
func TestRotationGoesOn(t *testing.T) {
	h := wordy(t, 0, 1)
	h.o.Window, h.o.MaxOutput = 4000, 500
	asked := model.Message{Role: model.RoleAssistant, Text: "words 3"}
	var results []model.Message
	for i := range 90 {
		id := fmt.Sprint(i)
		asked.Calls = append(asked.Calls, model.Call{ID: id, Name: "find", Args: json.RawMessage(`{}`)})
		results = append(results, model.Message{Role: model.RoleTool, CallID: id, Name: "find", Text: `{"ok":true,"result":"` + strings.Repeat("long ", 800) + `"}`})
	}
	h.o.Messages = append(append(h.o.Messages, asked), results...)

	sent := recordRequests(h.bench)
	if res := h.run(t, t.Context()); res.Exit != domain.ExitFinalResponse || len((*sent)[0]) != 1 || !strings.Contains((*sent)[0][0].Text, "You said last: words 3") {
		t.Errorf("%+v: %.2000s", res, bytesOf(t, (*sent)[0]))
	}
}
