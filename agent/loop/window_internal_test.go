package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
)

// tokensOf returns the cost of messages: four bytes per token, four tokens per message, 1,600 per
// image.
func tokensOf(messages ...model.Message) int {
	n := 0
	for _, m := range messages {
		bytes := len(m.Text) + len(m.Raw)
		for _, c := range m.Calls {
			bytes += len(c.Name) + len(c.Args) + len(c.ID)
		}
		n += (bytes+3)/4 + 4 + 1600*len(m.Images)
	}
	return n
}

// drawTurn draws an answer with its calls and their results, or a message of a person.
func drawTurn(t *rapid.T, turn int) (messages []model.Message) {
	if rapid.IntRange(0, 9).Draw(t, "who") == 0 {
		return []model.Message{{Role: model.RoleUser, Text: strings.Repeat("w", rapid.IntRange(1, 200).Draw(t, "word"))}}
	}

	answer := model.Message{Role: model.RoleAssistant, Text: strings.Repeat("a", rapid.IntRange(0, 200).Draw(t, "text")), Raw: json.RawMessage(strings.Repeat("r", rapid.IntRange(0, 1).Draw(t, "raw")*37))}
	var results []model.Message
	for i := range rapid.IntRange(1, 3).Draw(t, "calls") {
		id := fmt.Sprintf("call%d-%d", turn, i)
		answer.Calls = append(answer.Calls, model.Call{ID: id, Name: "look", Args: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))})

		content := strings.Repeat("x", rapid.IntRange(0, 3000).Draw(t, "size"))
		e := tool.Success(map[string]string{"text": content})
		switch rapid.IntRange(0, 19).Draw(t, "kind") {
		case 0:
			e = tool.Success(map[string]string{"skill_content": content + "!"})
		case 1:
			e = tool.Failure(tool.KindNotFound, "%s", content)
		}
		text, err := e.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		m := model.Message{Role: model.RoleTool, CallID: id, Name: "look", Text: string(text)}
		if rapid.IntRange(0, 49).Draw(t, "image") == 0 {
			m.Images = []model.Image{{}}
		}
		results = append(results, m)
	}
	return append([]model.Message{answer}, results...)
}

// TestWindowProperties: OSA-22, properties of the visible history as it grows. Its size is counted
// correctly. It is unchanged while it fits. No more is omitted than necessary. The task, the
// instructions of skills, and calls with their results stay together.
func TestWindowProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		registry, err := tool.NewRegistry()
		if err != nil {
			t.Fatal(err)
		}
		w := &window{budget: rapid.SampledFrom([]int{300, 1000, 3000, 5000, 8000}).Draw(t, "budget"), tools: registry, omitted: map[int]bool{}, shortened: map[int]string{}}
		history := []model.Message{{Role: model.RoleUser, Text: strings.Repeat("t", rapid.IntRange(1, 400).Draw(t, "task"))}}
		var seen []model.Message
		for turn := range rapid.IntRange(1, 30).Draw(t, "turns") {
			more := drawTurn(t, turn)
			history = append(history, more...)
			before, omitted, room := append(seen[:len(seen):len(seen)], more...), len(w.omitted), w.budget
			if omitted > 0 {
				room-- // the note about omitted turns is counted with the first message and rounded separately
			}
			if turn == 0 {
				before = history
			}

			var fits bool
			seen, fits = w.fit(history)
			counted := w.total(history)
			if total := tokensOf(seen...); fits != (counted <= w.budget) || counted != total && (counted != total+1 || len(w.omitted) == 0) {
				t.Fatalf("%d tokens of %d fit: %t; %d are counted", total, w.budget, fits, counted)
			}
			if tokensOf(before...) <= room && !reflect.DeepEqual(seen, before) {
				t.Fatalf("%d tokens fit into %d, and something was left out", tokensOf(before...), w.budget)
			}

			// The last omitted turn was necessary for the additional room. Protected turns are
			// omitted only after all others.
			last, protected := 0, false
			for i := range history {
				_, shortened := w.shortened[i]
				protected = protected || (shortened || w.omitted[i]) && i >= w.protectedFrom(history)
				if w.omitted[i] {
					last = i
				}
			}
			if len(w.omitted) > omitted && !protected {
				first := last
				for history[first].Role == model.RoleTool {
					first--
				}
				if total := tokensOf(seen...) + tokensOf(history[first:last+1]...); total < w.budget*7/10 { // or equal, because the note is rounded separately
					t.Fatalf("messages %d to %d were left out, with which it would have been %d of %d", first, last, total, w.budget)
				}
			}
			checkWhole(t, history, seen)
		}
	})
}

// checkWhole fails unless the task, the last message and the instructions of skills are present,
// and each visible call has its result.
func checkWhole(t *rapid.T, history, seen []model.Message) {
	if !strings.HasPrefix(seen[0].Text, history[0].Text) || len(seen) < len(history) != strings.HasSuffix(seen[0].Text, omittedNote) {
		t.Fatalf("of %d messages %d are seen, and the first is %q", len(history), len(seen), seen[0].Text)
	}

	open, results := map[string]bool{}, map[string]string{}
	for _, m := range seen {
		for _, c := range m.Calls {
			open[c.ID] = true
		}
		if m.Role != model.RoleTool {
			continue
		}
		if !open[m.CallID] {
			t.Fatalf("the result %s has no call", m.CallID)
		}
		delete(open, m.CallID)
		results[m.CallID] = m.Text
	}
	if len(open) > 0 {
		t.Fatalf("calls without a result: %v", open)
	}

	for i, m := range history {
		_, visible := results[m.CallID]
		if m.Role == model.RoleTool && strings.Contains(m.Text, "skill_content") && results[m.CallID] != m.Text {
			t.Fatalf("the instructions of message %d are gone", i)
		}
		if m.Role == model.RoleTool && i == len(history)-1 && !visible {
			t.Fatal("the last result is gone")
		}
	}
}

// words returns a message with a number of tokens.
func words(tokens int) model.Message {
	return model.Message{Role: model.RoleUser, Text: strings.Repeat("w", 4*(tokens-4))}
}

// TestWindowBounds: OSA-21, a history may be as long as the budget. A model is told once when nine
// tenths are used, and again after room was made.
func TestWindowBounds(t *testing.T) {
	registry, err := tool.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	task, turns := words(100), []model.Message{}
	for range 10 {
		m := words(100)
		m.Role = model.RoleAssistant
		turns = append(turns, m)
	}
	fresh := func(budget int) *window {
		return &window{budget: budget, tools: registry, omitted: map[int]bool{}, shortened: map[int]string{}}
	}

	history := append([]model.Message{task}, turns...)
	if seen, fits := fresh(1100).fit(history); len(seen) != 11 || !fits {
		t.Errorf("of as much as there is room for %d messages are seen, and it fits: %t", len(seen), fits)
	}
	if seen, fits := fresh(1099).fit(history); len(seen) != 7 || !fits { // 700 tokens plus the note about the rest, 769 at most
		t.Errorf("of a token more %d messages are seen, and it fits: %t", len(seen), fits)
	}
	if seen, fits := fresh(400).fit(history[:1]); len(seen) != 1 || !fits {
		t.Errorf("of the task alone %d messages are seen, and it fits: %t", len(seen), fits)
	}
	if _, fits := fresh(99).fit(history[:1]); fits {
		t.Error("a task that is longer than there is room fits")
	}

	told := []bool{fresh(1000).nearlyFull([]model.Message{words(899)})}
	w := fresh(1000)
	told = append(told, w.nearlyFull([]model.Message{words(900)}), w.nearlyFull([]model.Message{words(900), words(50)}))
	w.omitted[1] = true
	w.recount([]model.Message{words(800), words(50)})
	told = append(told, w.nearlyFull([]model.Message{words(800), words(50)}), w.nearlyFull([]model.Message{words(800), words(50), words(200)}))
	if want := []bool{false, true, false, false, true}; !reflect.DeepEqual(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

// answering returns an answer with a number of tokens and calls of a tool.
func answering(tokens int, name string, ids ...string) model.Message {
	m := model.Message{Role: model.RoleAssistant}
	for _, id := range ids {
		m.Calls = append(m.Calls, model.Call{ID: id, Name: name, Args: json.RawMessage(`{}`)})
	}
	for tokensOf(m) < tokens {
		m.Text += "a"
	}
	return m
}

// resulting returns a result with a number of bytes.
func resulting(bytes int, id string) model.Message {
	const around = `{"ok":true,"result":""}`
	return model.Message{Role: model.RoleTool, CallID: id, Text: strings.TrimSuffix(around, `"}`) + strings.Repeat("x", bytes-len(around)) + `"}`}
}

// turnOf returns an answer with one call, and its result.
func turnOf(answer int, name, id string, result int) []model.Message {
	return []model.Message{answering(answer, name, id), resulting(4*(result-perMessage), id)}
}

// becameOf describes the visible form of each message of a history: whole (w), cut (c), a line (l)
// or omitted (-).
func becameOf(history, seen []model.Message) string {
	id := func(m model.Message) string {
		if len(m.Calls) > 0 {
			return "calls " + m.Calls[0].ID
		}
		return m.CallID
	}

	out := ""
	for _, m := range history {
		i := slices.IndexFunc(seen, func(s model.Message) bool { return id(s) == id(m) })
		switch {
		case i < 0:
			out += "-"
		case strings.TrimSuffix(seen[i].Text, omittedNote) == m.Text && len(seen[i].Images) == len(m.Images):
			out += "w"
		case strings.Contains(seen[i].Text, "bytes of this result were left out") && len(seen[i].Images) == 0:
			out += "l"
		case strings.Contains(seen[i].Text, "cut to fit your context"):
			out += "c"
		default:
			out += "?"
		}
	}
	return out
}

// TestWindowMakesRoom: OSA-22, no more is omitted than necessary. First unsent results, then turns,
// and in the last turns long results before turns. A result that would not be shorter as a line
// stays.
func TestWindowMakesRoom(t *testing.T) {
	look, err := tool.Define(tool.Spec{Name: "look", Description: "looks", Effect: domain.EffectRead, Class: tool.ClassRead}, func(context.Context, tool.Invocation, struct{}) (tool.Envelope, error) {
		return tool.Success("seen"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	registry, err := tool.NewRegistry(look)
	if err != nil {
		t.Fatal(err)
	}

	brief, asLong := resulting(24, "brief"), resulting(len(oneLine(resulting(100, ""))), "long")
	if len(oneLine(asLong)) != len(asLong.Text) {
		t.Fatalf("%d bytes are replaced by %d", len(asLong.Text), len(oneLine(asLong)))
	}
	line := tokensOf(model.Message{Text: oneLine(turnOf(20, "", "", 400)[1])})
	last := slices.Concat(turnOf(20, "gone", "x", 20), turnOf(20, "gone", "y", 20), turnOf(20, "gone", "z", 20))
	withLong := []model.Message{answering(50, "gone", "long"), asLong}
	fields := turnOf(100, "look", "a", 3000)
	fields[1].Text = strings.NewReplacer(`"result":"`, `"result":{"text":"`, `"}`, `"}}`).Replace(fields[1].Text)
	picture, shown := slices.Clone(fields), []model.Message{answering(100, "look", "brief"), brief}
	picture[1].Images, shown[1].Images = []model.Image{{}}, []model.Image{{}}

	ids, results := []string{"brief", "long"}, []model.Message{brief, asLong}
	for i := range 14 {
		ids, results = append(ids, fmt.Sprint(i)), append(results, resulting(4*(60-perMessage), fmt.Sprint(i)))
	}
	many := append([]model.Message{answering(100, "gone", ids...)}, results...)

	note := (len(omittedNote) + 3) / 4
	type turns = [][]model.Message
	small := func(id string) []model.Message { return turnOf(80, "gone", id, 20) }
	for name, c := range map[string]struct {
		budget  int
		turns   turns
		seen    int // tokens at the end, in addition to the note about omitted turns; the task has the size of the note
		becomes string
	}{
		"all that there is room for":         {1000, turns{turnOf(100, "gone", "a", 400), last}, 1000, "w ww wwwwww"},
		"one result is enough":               {1000, turns{turnOf(50, "gone", "a", 400), turnOf(50, "gone", "b", 200), last}, 700, "w wl ww wwwwww"},
		"one result and a token":             {1000, turns{turnOf(50, "gone", "a", 400), turnOf(50, "gone", "b", 200), last}, 701 - 200 + line, "w wl wl wwwwww"},
		"a result as long as its line":       {1000, turns{withLong, turnOf(50, "gone", "a", 400), last}, 700, "w ww wl wwwwww"},
		"results are just enough":            {1000, turns{turnOf(200, "gone", "a", 400), last}, 1000, "w wl wwwwww"},
		"results and a token":                {1000, turns{turnOf(200, "gone", "a", 400), last}, 1001 - 200 - line, "w -- wwwwww"},
		"turns, until there is as much room": {1000, turns{small("a"), small("b"), small("c"), small("d"), small("e"), small("f"), last}, 700, "w -- -- -- -- ww ww wwwwww"},
		"one of the last results":            {1000, turns{turnOf(20, "gone", "a", 600), turnOf(20, "gone", "b", 600), small("c")}, 1000, "w wl ww ww"},
		"the longer of the last results":     {1000, turns{turnOf(20, "gone", "a", 500), turnOf(20, "gone", "b", 600), small("c")}, 1000, "w ww wl ww"},
		"one of the last turns":              {1000, turns{turnOf(400, "gone", "a", 20), turnOf(400, "gone", "b", 20), small("c")}, 1000 - note, "w -- ww ww"},
		"all but the latest":                 {1000, turns{turnOf(400, "gone", "a", 20), turnOf(400, "gone", "b", 20), small("c")}, 1001 - note - 420, "w -- -- ww"},
		"some results of the latest":         {1000, turns{small("a"), small("b"), many}, 1000 - note, "w -- -- www llllllllll wwww"},
		"a picture":                          {4000, turns{picture}, 2000, "w wl"},
		"a picture without words":            {1600, turns{shown}, 1000, "w wl"},
		"a result that can be cut":           {2000, turns{fields}, 0, "w wc"},
	} {
		t.Run(name, func(t *testing.T) {
			want, task := strings.ReplaceAll(c.becomes, " ", ""), c.seen
			history := slices.Concat(append(turns{{words(300)}}, c.turns...)...)
			for i, m := range history[1:] {
				switch want[i+1] {
				case 'w':
					task -= tokensOf(m)
				case 'l':
					task -= tokensOf(model.Message{Text: oneLine(m)})
				}
			}
			if c.seen > 0 {
				history[0] = words(task)
			}

			w := &window{budget: c.budget, tools: registry, omitted: map[int]bool{}, shortened: map[int]string{}}
			seen, fits := w.fit(history)
			if got := becameOf(history, seen); got != want || !fits || tokensOf(seen...) > c.budget {
				t.Errorf("%s, and it fits: %t, with %d tokens; want %s", got, fits, tokensOf(seen...), want)
			}
		})
	}
}
