package loop_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/contract"
	"rouse/internal/domain"
)

// TestUsableWindow: OSA-21, 85 percent of a context are used, 128,000 tokens are the default, and
// an answer has at most a quarter.
func TestUsableWindow(t *testing.T) {
	row := contract.Of(t, "OSA-21")
	if loop.DefaultWindow != row.Number("128,000") || loop.TextTokens("four") != 1 {
		t.Errorf("a model that is not known has %d tokens", loop.DefaultWindow)
	}
	for size, want := range map[int]int{0: 108_800, -1: 108_800, row.Number("4,096"): row.Number("3,481"), 10_000: 8500, 200_000: 170_000} {
		if got := loop.UsableWindow(size); got != want {
			t.Errorf("of %d tokens %d are used, want %d", size, got, want)
		}
	}
	for _, c := range []struct{ window, output, beside, want int }{
		{10_000, 1000, 500, 7000}, {10_000, 0, 500, 8500 - 500 - 2125}, {100_000, 0, 0, 85_000 - row.Number("4,096")}, {10_000, 9000, 0, 8500 - 2125}, {10_000, 0, 9000, 8500 - 9000 - 2125},
	} {
		if got := loop.HistoryRoom(c.window, c.output, c.beside); got != c.want {
			t.Errorf("%+v: the history has %d", c, got)
		}
	}
}

// recordRequests records the messages sent to the model, without notices.
func recordRequests(b *bench) *[][]model.Message {
	var sent [][]model.Message
	for i, turn := range b.model.turns {
		b.model.turns[i] = func(r model.Request) []any {
			var seen []model.Message
			for _, m := range r.Messages {
				m.Text, _, _ = strings.Cut(m.Text, "[System Notice]")
				m.Text = strings.TrimRight(m.Text, "\n")
				if m.Text != "" || len(m.Calls) > 0 {
					seen = append(seen, m)
				}
			}

			sent = append(sent, seen)
			return turn(r)
		}
	}

	return &sent
}

func bytesOf(t *testing.T, messages []model.Message) string {
	t.Helper()
	text, err := json.Marshal(messages)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(text), "]")
}

// wordy returns file tools with reads of a number of bytes.
func wordy(t *testing.T, size, turns int) *fileTools {
	var calls [][]model.Call
	for i := range turns {
		calls = append(calls, one("look", fmt.Sprintf(`{"path":"/f%d"}`, i)))
	}

	h := newFileTools(t, steps(calls...)...)
	for i := range turns {
		h.files[fmt.Sprintf("/f%d", i)] = strings.Repeat(fmt.Sprintf("%04d ", i), size/5)
	}
	return h
}

// TestWindow: OSA-21, OSA-22, a long run stays within its model's context. Each request starts with
// the bytes already sent until something must be omitted. Omitted parts stay omitted. The task and
// the last three turns stay, and calls keep their results.
func TestWindow(t *testing.T) {
	row := contract.Of(t, "OSA-22")
	h := wordy(t, 4000, 30)
	h.o.Window, h.o.MaxOutput = 16_000, 1000
	sent := recordRequests(h.bench)
	if res := h.run(t, t.Context()); res.Exit != domain.ExitFinalResponse {
		t.Fatalf("ended with %s: %s", res.Exit, res.Error)
	}
	if len(*sent) != 31 {
		t.Fatalf("%d requests", len(*sent))
	}

	compactions := 0
	gone := map[string]bool{}
	for i, req := range *sent {
		total := 0
		for _, m := range req {
			total += (len(m.Text)+3)/4 + 4
		}
		if total > 16_000*85/100 {
			t.Errorf("request %d has about %d tokens", i, total)
		}
		if !strings.HasPrefix(req[0].Text, "go") {
			t.Errorf("request %d does not begin with the task: %q", i, req[0].Text)
		}
		if i == 0 {
			continue
		}

		before := (*sent)[i-1]
		if !strings.HasPrefix(bytesOf(t, req), bytesOf(t, before)) {
			compactions++
			kept := map[string]bool{}
			for _, m := range req {
				kept[m.CallID] = true
			}

			for _, m := range before {
				if m.Role == model.RoleTool && !kept[m.CallID] {
					gone[m.CallID] = true
				}
			}

			if !strings.Contains(req[0].Text, row.Quote("left out to fit")) {
				t.Errorf("request %d does not say that something was left out", i)
			}
		}

		open := map[string]bool{}
		for _, m := range req {
			if gone[m.CallID] {
				t.Errorf("request %d shows %s again", i, m.CallID)
			}

			for _, c := range m.Calls {
				open[c.ID] = true
			}
			if m.Role == model.RoleTool && !open[m.CallID] {
				t.Errorf("request %d has a result without its call", i)
			}

			delete(open, m.CallID)
		}
		if len(open) > 0 {
			t.Errorf("request %d has calls without results: %v", i, open)
		}

		last := fmt.Sprintf("%04d", i-1)
		if i >= 3 && !strings.Contains(bytesOf(t, req), fmt.Sprintf("%04d", i-3)) || !strings.Contains(bytesOf(t, req), last) {
			t.Errorf("request %d does not hold the last three turns", i)
		}
	}

	if compactions == 0 || compactions > 6 {
		t.Errorf("room was made %d times in 30 steps", compactions)
	}

	told := 0
	for _, n := range h.notices() {
		told += strings.Count(n, "nearly full")
	}
	if told == 0 || told > compactions+1 {
		t.Errorf("told %d times that the context is nearly full, room was made %d times", told, compactions)
	}
}

// TestWindowKeepsThreeTurns: OSA-22, the last three turns are shown in full even if there is little
// more room.
func TestWindowKeepsThreeTurns(t *testing.T) {
	h := wordy(t, 4000, 20)
	h.o.Window, h.o.MaxOutput = 6200, 1000
	sent := recordRequests(h.bench)
	if res := h.run(t, t.Context()); res.Exit != domain.ExitFinalResponse {
		t.Fatalf("ended with %s: %s", res.Exit, res.Error)
	}
	for i, req := range *sent {
		for turn := max(0, i-3); turn < i; turn++ {
			if whole := strings.Repeat(fmt.Sprintf("%04d ", turn), 800); !strings.Contains(bytesOf(t, req), whole) {
				t.Errorf("request %d does not show turn %d whole", i, turn)
			}
		}
	}
	if last := bytesOf(t, (*sent)[20]); strings.Contains(last, "0010 0010") {
		t.Error("nothing had to go, so that nothing was tried")
	}
}

// TestWindowOfATranscript: OSA-22, in a transcript that this attempt has not sent, old results are
// replaced by one line each before whole turns are omitted. The line is the same each time.
func TestWindowOfATranscript(t *testing.T) {
	h := newFileTools(t, steps(one("find", `{}`))...)
	for i := range 12 {
		id := fmt.Sprint("c", i)
		text, err := tool.Success(strings.Repeat("x", 3000)).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		h.o.Messages = append(h.o.Messages, model.Message{Role: model.RoleAssistant, Calls: []model.Call{{ID: id, Name: "find", Args: json.RawMessage(`{}`)}}},
			model.Message{Role: model.RoleTool, CallID: id, Name: "find", Text: string(text)})
	}

	h.o.Window, h.o.MaxOutput = 8000, 500
	sent := recordRequests(h.bench)
	h.run(t, t.Context())
	first := (*sent)[0]
	if len(first) != 25 {
		t.Fatalf("%d messages: turns were dropped", len(first))
	}
	if !strings.Contains(first[2].Text, "of this result were left out") || !strings.Contains(first[24].Text, "xxxx") {
		t.Errorf("the oldest result is %q", first[2].Text)
	}
	if !strings.HasPrefix(bytesOf(t, (*sent)[1]), bytesOf(t, first)) {
		t.Error("the second request begins with other bytes")
	}
}

// TestWindowCutsTheLastTurns: OSA-22, in a small context the results of the last turns are cut if
// they do not fit, the latest result last. Each explains how to get the rest. The run does not end,
// and no request is too large.
func TestWindowCutsTheLastTurns(t *testing.T) {
	for _, c := range []struct{ window, size, turns int }{{8192, 30_000, 4}, {4096, 3000, 12}, {4096, 40_000, 5}, {2048, 3000, 6}} {
		h := wordy(t, c.size, c.turns)
		for path, text := range h.files {
			h.files[path] = strings.ReplaceAll(text, "0 0", "0\n0")
		}

		h.o.Window = c.window
		sent := recordRequests(h.bench)
		if res := h.run(t, t.Context()); res.Exit != domain.ExitFinalResponse || strings.Contains(strings.Join(h.notices(), ""), "started over") {
			t.Fatalf("%+v ended with %s: %s", c, res.Exit, res.Error)
		}

		for i, req := range *sent {
			total := 0
			for _, m := range req {
				total += (len(m.Text)+3)/4 + 4
			}
			if total > c.window*85/100 {
				t.Errorf("%+v: request %d has about %d tokens", c, i, total)
			}

			if i == 0 {
				continue
			}
			latest := req[len(req)-1]
			if !strings.Contains(latest.Text, fmt.Sprintf("%04d", i-1)) {
				t.Errorf("%+v: request %d shows nothing of the latest result: %.300s", c, i, latest.Text)
			}
			if !strings.Contains(latest.Text, "cut to fit your context: the first ") && c.size > c.window*2 {
				t.Errorf("%+v: request %d does not say that its latest result is cut: %.300s", c, i, latest.Text)
			}
		}
	}
}

// TestWindowKeepsSkills: AGS-12, the instructions of a skill are neither shortened nor omitted, in
// whichever turn they came. Similar texts are.
func TestWindowKeepsSkills(t *testing.T) {
	h := wordy(t, 4000, 30)
	h.o.Window, h.o.MaxOutput = 16_000, 1000
	content := strings.Repeat("Do it like this. ", 100)
	asSkill := `"result":{"skill_content":"` + content + `"}}`
	for i, c := range []struct{ said, result string }{
		{"", `{"ok":true,"result":{"skill":"csv","skill_content":"` + content + `"}}`},
		{"", `{"ok":true,"result":{"text":"{\"skill_content\":\"` + content + `\"}"}}`},
		{"", `{"ok":true,"result":{"rows":[{"skill_content":"` + content + `"}]}}`},
		{"", `{"kind":"not_found","ok":false,` + asSkill},
		{`{"ok":true,` + asSkill, `{"ok":true,"result":"said"}`},
	} {
		id := fmt.Sprint("s", i)
		h.o.Messages = append(h.o.Messages, model.Message{Role: model.RoleAssistant, Text: c.said, Calls: []model.Call{{ID: id, Name: "find", Args: json.RawMessage(`{}`)}}},
			model.Message{Role: model.RoleTool, CallID: id, Name: "find", Text: c.result})
	}

	sent := recordRequests(h.bench)
	if res := h.run(t, t.Context()); res.Exit != domain.ExitFinalResponse {
		t.Fatalf("ended with %s: %s", res.Exit, res.Error)
	}

	last := (*sent)[len(*sent)-1]
	if !strings.Contains(last[0].Text, "left out to fit") {
		t.Fatal("nothing was left out")
	}

	var kept []string
	for _, m := range last {
		if strings.Contains(m.Text, content) {
			kept = append(kept, fmt.Sprintf("%s %s", m.Role, m.CallID))
		}
	}
	if got := strings.Join(kept, ", "); got != "tool s0" {
		t.Errorf("of the skill and of what looks like one there are %s", got)
	}
}

// TestOverBudget: OSA-02, OSA-03, a history that cannot fit ends the run with a remedy. The step
// that was not taken is not charged.
func TestOverBudget(t *testing.T) {
	h := newFileTools(t, steps(one("find", `{}`))...)
	h.o.Messages = []model.Message{{Role: model.RoleUser, Text: strings.Repeat("task ", 10_000)}}
	h.o.Window = 4096
	res := h.run(t, t.Context())
	if res.Exit != domain.ExitOverBudget || res.Outcome != "error" || res.Steps != 0 || !strings.Contains(res.Error, "context_window") {
		t.Errorf("%+v", res)
	}
}
