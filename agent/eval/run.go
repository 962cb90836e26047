package eval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
)

// Report is the result of a scenario, or of a case of a skill.
type Report struct {
	Name     string        `json:"name"`
	About    string        `json:"about"`
	Problems []string      `json:"problems"` // empty if all expectations are met
	Run      ledger.Run    `json:"-"`
	Took     time.Duration `json:"-"`
}

type scenarioRun struct {
	Scenario
	*World
	script *script // nil for a real model
}

// Run runs a scenario in dir, which it creates, or which must be empty. If m is not nil, that model
// performs the task instead of the script. An error means that the scenario could not be run.
func Run(ctx context.Context, dir string, s Scenario, m *plan.Model) (Report, error) {
	report := Report{Name: s.Name, About: s.About, Problems: []string{}}
	world, err := Open(ctx, dir, s.Files)
	if err != nil {
		return report, err
	}

	st := &scenarioRun{Scenario: s, World: world}
	if m == nil {
		st.script = &script{turns: s.Script}
		m = &plan.Model{Name: "script", Provider: st.script, Window: s.Window}
	}
	// The plan grants only the working folder and the database, so that a scenario cannot reach
	// beyond dir.
	st.Runner.Set(plan.Plan{Agents: map[string]plan.Agent{Worker: {
		Name: Worker, Workdir: st.Work, Database: true, Model: m, Phased: s.Phased, Bounds: loop.Bounds{Steps: s.Steps, Calls: s.Calls},
	}}})

	// The databases are closed even if the attempts failed, so that the folder can be inspected.
	began := time.Now()
	report.Run, err = st.Play(ctx, ledger.Request{Agent: Worker, Trigger: domain.TriggerManual, Detail: ledger.TriggerDetail{Prompt: st.Prompt}},
		func(inbox.Item) (string, bool) { return st.Answer, st.Answer != "" })
	report.Took = time.Since(began)
	if err == nil {
		report.Problems, err = st.compare(ctx, report.Run)
	}

	return report, errors.Join(err, st.Close())
}

// script is a model that gives the answers of a scenario.
type script struct {
	turns []Turn

	mu       sync.Mutex
	requests []string // received requests, as text
}

// Stream implements model.Provider.
func (s *script) Stream(_ context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		// A request too many is not retryable: the run ends, and the problems contain the reason.
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
