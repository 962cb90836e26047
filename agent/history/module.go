package history

import (
	"encoding/json"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/moduleapi"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
)

// Pass is a point at which a module started again with the current workspace: after a pause, after
// its steps were used up, or after another run changed the workspace. A module that ignores its
// workspace repeats its calls.
type Pass struct {
	Steps int // number of steps reported so far
	// known holds the keys of the calls since the last checkpoint. Their results answer repeated
	// calls.
	known map[string][]string
}

// Module is the history of a run that a module executes.
type Module struct {
	Passes  []Pass
	Passed  map[string]bool       // keys of calls at which a pass ended; they are not repeated
	answers map[string]inbox.Item // owner's answers, by the key of the call that asked
}

// newModule reads the calls of a run in order. Attempts before continues have failed.
func newModule(calls []ledger.Call, items []inbox.Item, continues int) Module {
	h := Module{Passed: map[string]bool{}, answers: map[string]inbox.Item{}}
	for _, i := range items {
		asked := i.Kind == inbox.KindInput && i.Action.Tool == "" || i.Kind == inbox.KindPause // a call that asked for a sign-in is made again
		if asked && i.State == inbox.ItemAnswered && i.Call != "" {
			h.answers[i.Call] = i
		}
	}

	steps, since, seen := 0, map[string][]string{}, map[string]bool{}
	begin := func(key string, from int) {
		copied := map[string][]string{}
		for base, keys := range since {
			copied[base] = slices.Clone(keys)
		}
		h.Passes, h.Passed[key] = append(h.Passes, Pass{from, copied}), true
	}

	for _, c := range calls {
		failed := c.Attempt < continues
		if failed && isConflict(c) {
			begin(c.Key, steps)
		}
		if c.State != domain.CallDone || seen[c.Key] {
			continue
		}

		seen[c.Key] = true
		if mark, ok := moduleapi.ReadMark(c.Tool, c.Args); ok {
			steps = mark.Steps
			clear(since)
			_, continued := h.answers[c.Key]
			switch {
			case mark.Pause && continued:
				begin(c.Key, steps)
			case mark.Over && failed:
				begin(c.Key, 0)
			}
			continue
		}
		if !moduleapi.ReadsWorkspace(c.Tool) {
			since[baseOf(c.Key)] = append(since[baseOf(c.Key)], c.Key)
		}
	}
	return h
}

func isConflict(c ledger.Call) bool {
	var e struct{ Kind tool.Kind }
	return c.State == domain.CallFailed && json.Unmarshal(c.Envelope, &e) == nil && e.Kind == tool.KindConflict
}

// baseOf returns the method and the arguments in the key of a call. It omits the pass and the
// number of the repetition.
func baseOf(key string) string {
	if _, rest, ok := strings.Cut(key, "/"); ok {
		key = rest
	}
	if at := strings.LastIndex(key, ":"); at >= 0 {
		key = key[:at]
	}
	return key
}

// Answer returns the owner's answer for a call that waited for it. ok is false if the owner has not
// answered.
func (h Module) Answer(key string) (value json.RawMessage, ok bool) {
	i, ok := h.answers[key]
	switch {
	case !ok || i.Kind == inbox.KindPause:
		return nil, ok
	case len(i.InputSchema) > 0:
		return json.RawMessage(i.Answer), true
	}

	text, err := json.Marshal(i.Answer)
	return text, err == nil
}

// EndedWith reports whether an attempt ended with a question that has been answered since. If so,
// the run has not continued after that call yet.
func (h Module) EndedWith(key string, attempt int) bool {
	return h.answers[key].Attempt == attempt
}

// Recall returns the key of the n-th call with the given base in the previous pass. It returns ""
// if there is no such call.
func (h Module) Recall(pass int, base string, n int) string {
	if pass == 0 {
		return ""
	}
	keys := h.Passes[pass-1].known[base]
	if n > len(keys) {
		return ""
	}
	return keys[n-1]
}
