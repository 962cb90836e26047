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

// Pass is a point at which a module began again with its workspace as it is: after a pause,
// after its steps were used up, or after others changed the workspace (OSL-13, OSL-14, OSL-27). A
// module that ignores its workspace makes its calls once more.
type Pass struct {
	Steps int // that were reported until then
	// known are the keys of the calls since the last checkpoint, which answer repeated calls (C-5).
	known map[string][]string
}

// Module is the history of a run that a module answers in.
type Module struct {
	Passes  []Pass
	Passed  map[string]bool       // keys of calls at which a pass ended: they are behind the run
	answers map[string]inbox.Item // what the owner has answered, by the key of the call that asked
}

// newModule reads the calls of a run in their order. Attempts before continues have failed.
func newModule(calls []ledger.Call, items []inbox.Item, continues int) Module {
	h := Module{Passed: map[string]bool{}, answers: map[string]inbox.Item{}}
	for _, i := range items {
		asked := i.Kind == inbox.KindInput && i.Action.Tool == "" || i.Kind == inbox.KindPause // and no sign-in, whose call is made again
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

// baseOf is the method and the arguments in the key of a call: without the pass, and which of the equal ones it is.
func baseOf(key string) string {
	if _, rest, ok := strings.Cut(key, "/"); ok {
		key = rest
	}
	if at := strings.LastIndex(key, ":"); at >= 0 {
		key = key[:at]
	}
	return key
}

// Answer is what a module gets for a call with which it waited for its owner; ok is false while that is open.
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

// EndedWith says whether an attempt ended with asking what has been answered since: nobody has been behind that call yet.
func (h Module) EndedWith(key string, attempt int) bool {
	return h.answers[key].Attempt == attempt
}

// Recall finds the call of the pass before that the n-th of some equal ones is, "" where it is none of them.
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
