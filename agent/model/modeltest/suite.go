package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"rouse/agent/model"
)

// Answer collects the events of a stream.
type Answer struct {
	Text  string
	Calls []model.Call
	Usage model.Usage
	Stop  string
	Raw   json.RawMessage
	End   *model.End
	Err   error

	Unreported model.Unreported
	Retried    model.Retried
}

// Ask runs one turn. It fails the test if the stream violates the rules of model.Provider.
func Ask(t testing.TB, ctx context.Context, p model.Provider, r model.Request) Answer {
	t.Helper()
	var a Answer
	for e, err := range p.Stream(ctx, r) {
		switch {
		case a.Err != nil:
			t.Errorf("%+v (%v) comes after the error %v", e, err, a.Err)
		case err != nil && countFields(e) != 0:
			t.Errorf("an error comes with the event %+v", e)
		case err == nil && countFields(e) != 1:
			t.Errorf("an event has %d fields set: %+v", countFields(e), e)
		}

		a.Err = err
		a.Text += e.Text
		if e.Call != nil {
			a.Calls = append(a.Calls, *e.Call)
		}

		if e.Usage != nil {
			a.Usage = *e.Usage
		}

		if e.Unreported != nil {
			a.Unreported = *e.Unreported
		}

		if e.Retried != nil {
			a.Retried = *e.Retried
		}

		if e.Stop != "" {
			a.Stop = e.Stop
		}

		if e.Raw != nil {
			a.Raw = e.Raw
		}

		if e.End != nil {
			a.End = e.End
		}
	}

	return a
}

func countFields(e model.Event) int {
	n := 0
	for _, set := range []bool{e.Text != "", e.Call != nil, e.Usage != nil, e.Unreported != nil, e.Retried != nil, e.Stop != "", e.Raw != nil, e.End != nil} {
		if set {
			n++
		}
	}
	return n
}

var question = model.Request{
	System:   "Be brief.",
	Messages: []model.Message{{Role: model.RoleUser, Text: "Go."}},
	Tools:    []model.Tool{{Name: "db_query", Description: "asks", Schema: json.RawMessage(`{"type":"object","properties":{"sql":{"type":"string"},"values":{"type":"object"}}}`)}, {Name: "notify"}},
}

var (
	query  = model.Call{ID: "a", Name: "db_query", Args: json.RawMessage(`{"limit":3,"sql":"select 'ü', \"x\" from t"}`)}
	notify = model.Call{ID: "b", Name: "notify", Args: json.RawMessage(`{"title":"done"}`)}
)

// Limits are the timeouts of an adapter. Zero means its default.
type Limits struct{ Timeout, Idle time.Duration }

// Start returns a provider that plays the script. If that is impossible, it skips the test.
type Start func(t *testing.T, s Script, l Limits) model.Provider

// Run runs the suite that every adapter must pass.
func Run(t *testing.T, start Start) {
	t.Run("text", func(t *testing.T) {
		a := start.ask(t, Turn{Text: "Grüße, 世界."})
		if a.Err != nil || a.Text != "Grüße, 世界." || len(a.Calls) != 0 || a.Stop != model.StopDone {
			t.Errorf("answer: %+v", a)
		}
	})

	t.Run("usage", func(t *testing.T) { usage(t, start) })
	t.Run("a call", func(t *testing.T) { wantCalls(t, start.ask(t, Turn{Calls: []model.Call{query}}), query) })
	t.Run("parallel calls", func(t *testing.T) {
		a := start.ask(t, Turn{Text: "Both.", Calls: []model.Call{query, notify}})
		if wantCalls(t, a, query, notify); a.Text != "Both." || a.Stop != model.StopCalls {
			t.Errorf("answer: %+v", a)
		}
	})

	t.Run("ids", func(t *testing.T) { callIDs(t, start) })
	t.Run("turns", func(t *testing.T) { multiTurn(t, start) })
	t.Run("opaque", func(t *testing.T) { opaque(t, start) })
	t.Run("another's transcript", func(t *testing.T) { foreignTranscripts(t, start) })
	t.Run("images", func(t *testing.T) { images(t, start) })
	t.Run("endings", func(t *testing.T) { endings(t, start) })
	t.Run("faults", func(t *testing.T) { faults(t, start) })
	t.Run("retries", func(t *testing.T) { retries(t, start) })
	t.Run("timeouts", func(t *testing.T) { timeouts(t, start) })
	t.Run("large", func(t *testing.T) { large(t, start) })
	t.Run("cut", func(t *testing.T) { cut(t, start) })
	t.Run("mutated", func(t *testing.T) { mutated(t, start) })
	t.Run("cancelled before", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errStop)
		if a := Ask(t, ctx, start(t, Script{{Calls: []model.Call{query}}}, Limits{}), question); !errors.Is(a.Err, errStop) || len(a.Calls) != 0 {
			t.Errorf("answer: %+v", a)
		}
	})

	t.Run("cancelled in the middle", func(t *testing.T) { cancelled(t, start) })
	t.Run("left", func(t *testing.T) {
		for _, turn := range []Turn{{Calls: []model.Call{query}}, {Text: "one two", Hang: true}} {
			for _, err := range start(t, Script{turn}, Limits{}).Stream(t.Context(), question) {
				if err != nil {
					t.Error(err)
				}
				break // must end the stream and its request
			}
		}
	})
}

// ask returns one answer to the question.
func (start Start) ask(t *testing.T, script ...Turn) Answer {
	t.Helper()
	return Ask(t, t.Context(), start(t, script, Limits{}), question)
}

var errStop = errors.New("somebody said stop")

// wantCalls checks the calls of an answer. The adapter may generate their ids.
func wantCalls(t *testing.T, a Answer, want ...model.Call) {
	t.Helper()
	if a.Err != nil || len(a.Calls) != len(want) {
		t.Fatalf("answer: %.1000s", fmt.Sprintf("%+v", a))
	}

	ids := map[string]bool{}
	for i, c := range a.Calls {
		if c.Name != want[i].Name || !sameJSON(t, c.Args, want[i].Args) {
			t.Errorf("call %d: %s %.1000s, want %s %.1000s", i, c.Name, c.Args, want[i].Name, want[i].Args)
		}
		if c.ID == "" || ids[c.ID] {
			t.Errorf("call %d has the id %q, by which its result cannot be told", i, c.ID)
		}
		ids[c.ID] = true
	}
}

func sameJSON(t *testing.T, a, b json.RawMessage) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

// callIDs checks that the model's ids are kept, and that missing or duplicate ids are replaced.
func callIDs(t *testing.T, start Start) {
	if a := start.ask(t, Turn{Calls: []model.Call{query, notify}}); len(a.Calls) == 2 && (a.Calls[0].ID != query.ID || a.Calls[1].ID != notify.ID) {
		t.Errorf("the ids were changed: %+v", a.Calls)
	}
	for _, id := range []string{"", "twice"} {
		x, y := query, notify
		x.ID, y.ID = id, id
		a := start.ask(t, Turn{Calls: []model.Call{x, y}})
		if wantCalls(t, a, x, y); !generatedID.MatchString(a.Calls[1].ID) || (a.Calls[0].ID != id) != (id == "") {
			t.Errorf("ids: %+v", a.Calls)
		}
	}
}

var generatedID = regexp.MustCompile(`^call_[0-9a-f]{24}$`)

// withResults appends an answer and the results of its calls to the transcript.
func withResults(t *testing.T, r model.Request, a Answer) model.Request {
	t.Helper()
	m := model.Message{Role: model.RoleAssistant, Text: a.Text, Calls: a.Calls, Raw: a.Raw}
	stored, err := json.Marshal(m) // as after a restart
	if err != nil {
		t.Fatal(err)
	}

	m = model.Message{}
	if err := json.Unmarshal(stored, &m); err != nil {
		t.Fatal(err)
	}

	r.Messages, r.Results = append(slices.Clip(r.Messages), m), nil
	for _, c := range m.Calls {
		r.Messages = append(r.Messages, model.Message{Role: model.RoleTool, CallID: c.ID, Name: c.Name, Text: string(envelope)})
		r.Results = append(r.Results, model.Result{Call: c, Envelope: envelope})
	}

	return r
}

// envelope has a result that looks like a schema reference, which Gemini's API would resolve.
var envelope = json.RawMessage(`{"ok":true,"result":{"rows":[],"schema":{"$ref":"#/x"}}}`)

// multiTurn checks that the second request has the result of the first call.
func multiTurn(t *testing.T, start Start) {
	p := start(t, Script{{Calls: []model.Call{query}}, {Calls: []model.Call{notify}}}, Limits{})
	first := Ask(t, t.Context(), p, question)
	wantCalls(t, first, query)
	wantCalls(t, Ask(t, t.Context(), p, withResults(t, question, first)), notify)
}

// opaque checks that opaque data is sent back unchanged and in its position. This must also hold
// after the loop has appended a notice to a result.
func opaque(t *testing.T, start Start) {
	p := start(t, Script{{Text: "I look.", Calls: []model.Call{query, notify}, Opaque: "c2lnMQ"}, {Calls: []model.Call{notify}, Opaque: "c2lnMg"}, {Text: "Done."}}, Limits{})
	first := Ask(t, t.Context(), p, question)
	wantCalls(t, first, query, notify)
	r := withResults(t, question, first)
	second := Ask(t, t.Context(), p, r)
	wantCalls(t, second, notify)
	r = withResults(t, r, second)
	r.Messages[len(r.Messages)-1].Text += "\n\n[System Notice] 1 of 9 steps remaining."
	r.NoTools = true
	if third := Ask(t, t.Context(), p, r); third.Err != nil || third.Text != "Done." {
		t.Errorf("answer: %+v", third)
	}
}

// foreignTranscripts checks that a transcript of another provider or model can be continued.
func foreignTranscripts(t *testing.T, start Start) {
	for _, raw := range []string{`{"by":"another","model":"x","parts":[{"call":7}]}`, `[1]`, ``} {
		r := withResults(t, question, Answer{Text: "I look.", Raw: json.RawMessage(raw), Calls: []model.Call{
			{ID: "functions.db_query:0", Name: query.Name, Args: query.Args}, {ID: "functions.notify:1", Name: notify.Name, Args: notify.Args}}})
		r.Messages = append(r.Messages, model.Message{Role: model.RoleUser, Text: "Go on."}, model.Message{Role: model.RoleAssistant, Text: "Yes."},
			model.Message{Role: model.RoleAssistant, Text: "  "}, model.Message{Role: model.RoleUser, Text: "Now."})
		if a := Ask(t, t.Context(), start(t, Script{{Text: "Here."}}, Limits{}), r); a.Err != nil || a.Text != "Here." {
			t.Errorf("answer: %+v", a)
		}
	}
}

// cancelled checks that a cancelled stream ends with the cause and makes no call.
func cancelled(t *testing.T, start Start) {
	p := start(t, Script{{Text: "I begin", Calls: []model.Call{query}, Hang: true}}, Limits{})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)

	var got error
	for e, err := range p.Stream(ctx, question) {
		if e.Call != nil {
			t.Errorf("a call was made: %+v", e.Call)
		}
		got = err
		cancel(errStop)
	}
	if !errors.Is(got, errStop) {
		t.Errorf("the stream ended with %v", got)
	}
}
