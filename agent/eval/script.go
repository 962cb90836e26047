package eval

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"sync"

	"rouse/agent/model"
)

// script is a model that gives the answers of a scenario.
type script struct {
	turns []Turn

	mu       sync.Mutex
	requests []string // what it was sent, as text
}

// Stream implements model.Provider.
func (s *script) Stream(_ context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		// One too many is not retryable: the run ends, and the problems say why.
		n := s.record(r)
		if n > len(s.turns) {
			yield(model.Event{}, &model.Error{Kind: model.KindBadRequest, Message: fmt.Sprintf("the script has %d turns, and was asked for one more", len(s.turns))})
			return
		}

		t := s.turns[n-1]
		if t.Fail != "" {
			yield(model.Event{}, &model.Error{Kind: model.KindUnavailable, Message: t.Fail, Retryable: true})
			return
		}

		if t.Say != "" && !yield(model.Event{Text: t.Say}, nil) {
			return
		}

		for i, c := range t.Calls {
			for name, args := range c {
				raw, err := json.Marshal(args)
				if err != nil {
					yield(model.Event{}, fmt.Errorf("the arguments of %s in turn %d are no JSON: %w", name, n, err))
					return
				}

				if args == nil { // a tool without arguments, in YAML
					raw = json.RawMessage("{}")
				}
				if !yield(model.Event{Call: &model.Call{ID: fmt.Sprintf("call_%d_%d", n, i+1), Name: name, Args: raw}}, nil) {
					return
				}
			}
		}
	}
}

// record keeps a request, and returns its number.
func (s *script) record(r model.Request) int {
	var text strings.Builder
	for _, m := range r.Messages {
		text.WriteString(m.Text + "\n")
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.requests = append(s.requests, text.String())
	return len(s.requests)
}

// requestsWith counts the requests that contain some words.
func (s *script) requestsWith(words string) int {
	s.mu.Lock()
	defer s.mu.Unlock()

	n := 0
	for _, text := range s.requests {
		if strings.Contains(text, words) {
			n++
		}
	}
	return n
}
