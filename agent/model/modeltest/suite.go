package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"rouse/agent/model"
)

// Answer is what a stream gave.
type Answer struct {
	Text  string
	Calls []model.Call
	Usage model.Usage
	Stop  string
	End   *model.End
	Err   error
}

// Ask takes one answer in, and fails the test when the stream breaks its own rules.
func Ask(t testing.TB, ctx context.Context, p model.Provider, r model.Request) Answer {
	t.Helper()
	var a Answer
	for e, err := range p.Stream(ctx, r) {
		switch {
		case a.Err != nil:
			t.Errorf("%+v (%v) comes after the error %v", e, err, a.Err)
		case err != nil && e != (model.Event{}):
			t.Errorf("an error comes with the event %+v", e)
		case err == nil && fields(e) != 1:
			t.Errorf("an event has %d fields set: %+v", fields(e), e)
		}
		a.Err = err
		a.Text += e.Text
		if e.Call != nil {
			a.Calls = append(a.Calls, *e.Call)
		}
		if e.Usage != nil {
			a.Usage = *e.Usage
		}
		if e.Stop != "" {
			a.Stop = e.Stop
		}
		if e.End != nil {
			a.End = e.End
		}
	}
	return a
}

func fields(e model.Event) int {
	n := 0
	for _, set := range []bool{e.Text != "", e.Call != nil, e.Usage != nil, e.Stop != "", e.End != nil} {
		if set {
			n++
		}
	}
	return n
}

var question = model.Request{
	System:   "Be brief.",
	Messages: []model.Message{{Role: model.RoleUser, Text: "Go."}},
	Tools:    []model.Tool{{Name: "db_query", Description: "asks", Schema: json.RawMessage(`{"type":"object"}`)}, {Name: "notify"}},
}

var (
	query  = model.Call{ID: "a", Name: "db_query", Args: json.RawMessage(`{"limit":3,"sql":"select 'ü', \"x\" from t"}`)}
	notify = model.Call{ID: "b", Name: "notify", Args: json.RawMessage(`{"title":"done"}`)}
)

// Run is the suite. start gives a provider that plays the script; where it cannot, it
// skips the test and says why.
func Run(t *testing.T, start func(t *testing.T, s Script) model.Provider) {
	t.Run("text", func(t *testing.T) {
		a := Ask(t, t.Context(), start(t, Script{{Text: "Grüße, 世界."}}), question)
		if a.Err != nil || a.Text != "Grüße, 世界." || len(a.Calls) != 0 || a.Stop != model.StopDone {
			t.Errorf("answer: %+v", a)
		}
	})
	t.Run("usage", func(t *testing.T) {
		want := model.Usage{Input: 100, Output: 7, Cached: 90}
		if a := Ask(t, t.Context(), start(t, Script{{Text: "x", Usage: want}}), question); a.Err != nil || a.Usage != want {
			t.Errorf("answer: %+v", a)
		}
	})
	t.Run("a call", func(t *testing.T) {
		made(t, Ask(t, t.Context(), start(t, Script{{Calls: []model.Call{query}}}), question), query)
	})
	t.Run("parallel calls", func(t *testing.T) {
		made(t, Ask(t, t.Context(), start(t, Script{{Text: "Both.", Calls: []model.Call{query, notify}}}), question), query, notify)
	})
	t.Run("turns", func(t *testing.T) { turns(t, start) })
	t.Run("refused", func(t *testing.T) {
		a := Ask(t, t.Context(), start(t, Script{{Status: 401, Raw: `{"error":{"message":"no"}}`}}), question)
		var e *model.Error
		if !errors.As(a.Err, &e) || e.Kind != model.KindAuth || e.Retryable {
			t.Errorf("answer: %+v", a)
		}
	})
	t.Run("cancelled before", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errStop)
		if a := Ask(t, ctx, start(t, Script{{Calls: []model.Call{query}}}), question); !errors.Is(a.Err, errStop) || len(a.Calls) != 0 {
			t.Errorf("answer: %+v", a)
		}
	})
	t.Run("cancelled in the middle", func(t *testing.T) { cancelled(t, start) })
	t.Run("left", func(t *testing.T) {
		for _, turn := range []Turn{{Calls: []model.Call{query}}, {Text: "one two", Hang: true}} {
			for _, err := range start(t, Script{turn}).Stream(t.Context(), question) {
				if err != nil {
					t.Error(err)
				}
				break // which must end the stream, and whatever feeds it
			}
		}
	})
}

var errStop = errors.New("somebody said stop")

// made checks the calls of an answer; their ids are the adapter's.
func made(t *testing.T, a Answer, want ...model.Call) {
	t.Helper()
	if a.Err != nil || len(a.Calls) != len(want) {
		t.Fatalf("answer: %+v", a)
	}
	ids := map[string]bool{}
	for i, c := range a.Calls {
		if c.Name != want[i].Name || !sameJSON(t, c.Args, want[i].Args) {
			t.Errorf("call %d: %s %s, want %s %s", i, c.Name, c.Args, want[i].Name, want[i].Args)
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

// turns: the second answer needs the result of the first one's call.
func turns(t *testing.T, start func(t *testing.T, s Script) model.Provider) {
	p := start(t, Script{{Calls: []model.Call{query}}, {Calls: []model.Call{notify}}})
	first := Ask(t, t.Context(), p, question)
	made(t, first, query)
	envelope := json.RawMessage(`{"ok":true,"result":{"rows":[]}}`)
	r := question
	r.Messages = append(r.Messages[:1:1], model.Message{Role: model.RoleAssistant, Calls: first.Calls},
		model.Message{Role: model.RoleTool, CallID: first.Calls[0].ID, Name: query.Name, Text: string(envelope)})
	r.Results = []model.Result{{Call: first.Calls[0], Envelope: envelope}}
	made(t, Ask(t, t.Context(), p, r), notify)
}

// cancelled: a stream that is stopped says why, and makes no call.
func cancelled(t *testing.T, start func(t *testing.T, s Script) model.Provider) {
	p := start(t, Script{{Text: "I begin", Calls: []model.Call{query}, Hang: true}})
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
