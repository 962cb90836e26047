package replay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"

	"rouse/agent/model"
)

// Provider answers from a recording. It is safe for concurrent use.
type Provider struct {
	name  string // name of the recording
	turns []Exchange
	fits  []Exchange // exchanges selected by texts in the request
}

// Open reads a recording from a file.
func Open(path string) (*Provider, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the recording cannot be read: %w", err)
	}
	return Parse(path, text)
}

// Parse parses the content of a recording. The path is used in errors.
func Parse(path string, text []byte) (*Provider, error) {
	r, err := Read(bytes.NewReader(text))
	var p *Provider
	if err == nil {
		p, err = New(path, r)
	}
	if err != nil {
		return nil, fmt.Errorf("the recording %s: %w", path, err)
	}
	return p, nil
}

// New returns a provider that answers from a recording. The name is used in errors.
func New(name string, r Recording) (*Provider, error) {
	p := &Provider{name: name}
	for _, x := range playableTurns(r.Exchanges) {
		if len(x.Contains) > 0 {
			p.fits = append(p.fits, x)
		} else {
			p.turns = append(p.turns, x)
		}
	}
	if len(p.turns)+len(p.fits) == 0 {
		return nil, errors.New("holds no exchange with a model, so it answers nothing")
	}
	return p, nil
}

// playableTurns returns the answers with which a run continued: the last try of each turn, without
// failures and empty answers. It always keeps the last exchange.
func playableTurns(all []Exchange) []Exchange {
	var out []Exchange
	seen := map[string]bool{}
	for i, x := range all {
		last := i == len(all)-1
		if !last && len(x.Contains) == 0 && (x.Fault != nil || !x.inTranscript()) {
			continue
		}
		// Another try of the same step follows. Exchanges written by hand have no steps.
		if !last && x.Step > 0 && x.Attempt == all[i+1].Attempt && x.Step == all[i+1].Step {
			continue
		}

		x.Calls = slices.Clone(x.Calls)
		// The ids identify the position of a transcript in the recording. They must be unique and
		// the same on each read.
		for j := range x.Calls {
			c := &x.Calls[j]
			if c.ID == "" || seen[c.ID] {
				sum := sha256.Sum256(fmt.Appendf(nil, "%d.%d", i, j))
				c.ID = "call_" + hex.EncodeToString(sum[:12])
			}

			seen[c.ID] = true
			if len(c.Args) == 0 {
				c.Args = json.RawMessage("{}")
			}

			c.Key = "" // the key belongs to the recorded run
		}

		out = append(out, x)
	}

	return out
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if ctx.Err() != nil {
			yield(model.Event{}, context.Cause(ctx))
			return
		}

		x, err := p.answerTo(r)
		if err != nil {
			yield(model.Event{}, err)
			return
		}

		x.Events(yield)
	}
}

// Events streams an answer in the same way as a provider.
func (x Exchange) Events(yield func(model.Event, error) bool) {
	if x.Text != "" && !yield(model.Event{Text: x.Text}, nil) {
		return
	}

	if x.Fault == nil { // calls of a failed answer are not made
		for i := range x.Calls {
			c := x.Calls[i]
			if !yield(model.Event{Call: &c}, nil) {
				return
			}
		}
		if len(x.Raw) > 0 && !yield(model.Event{Raw: x.Raw}, nil) {
			return
		}
	}

	if x.Usage != nil {
		u := x.Usage.Clamped()
		if !yield(model.Event{Usage: &u}, nil) {
			return
		}
	}
	if x.Unreported != nil && !yield(model.Event{Unreported: clamped(*x.Unreported)}, nil) {
		return
	}

	if x.Fault != nil {
		yield(model.Event{}, x.Fault.Err())
		return
	}

	stop := x.Stop
	if stop == "" { // an exchange written by hand
		stop = model.StopDone
		if len(x.Calls) > 0 {
			stop = model.StopCalls
		}
	}

	yield(model.Event{Stop: stop}, nil)
}

// answerTo returns the answer to the same request. If there is none, it returns the first answer
// selected by texts in the request. Otherwise it returns the answer after the last one in the
// transcript.
func (p *Provider) answerTo(r model.Request) (Exchange, error) {
	// The search below may confuse similar answers.
	for _, x := range p.turns {
		if x.Request != nil && len(x.Request.Messages) == len(r.Messages) && len(Compare(*x.Request, r)) == 0 {
			return x, nil
		}
	}

	for _, x := range p.fits {
		if x.fits(r) {
			return x.again(len(r.Messages)), nil
		}
	}

	at := 0
	for _, m := range r.Messages {
		if m.Role != model.RoleAssistant {
			continue
		}

		// Similar answers are distinguished by their order.
		if i := p.turnOf(m, at); i >= 0 {
			at = i + 1
		}
	}
	switch {
	case at >= len(p.turns) && len(p.fits) > 0:
		return Exchange{}, badRequest("the recording %s has no answer to this, neither to what it contains nor in its turn; the last message is %s", p.name, lastMessage(r))
	case at >= len(p.turns):
		return Exchange{}, badRequest("the recording %s has %d answers, and the run asks for one more; its last message is %s", p.name, len(p.turns), lastMessage(r))
	}

	x := p.turns[at]
	if x.Request == nil {
		return x, nil
	}

	if found := Compare(*x.Request, r); len(found) > 0 {
		more := ""
		if len(found) > 1 {
			more = fmt.Sprintf(" (and %d more differences)", len(found)-1)
		}
		return x, badRequest("answer %d of the recording %s is to another request: %s%s; record the run again, or keep the answers alone: rouse replay RUN --save FILE --answers", at+1, p.name, found[0], more)
	}

	return x, nil
}

// fits reports whether a request contains all texts in x.Contains.
func (x Exchange) fits(r model.Request) bool {
	last := ""
	if n := len(r.Messages); n > 0 {
		last = r.Messages[n-1].Text
	}
	return !slices.ContainsFunc(x.Contains, func(text string) bool {
		return !strings.Contains(last, text) && !strings.Contains(r.System, text)
	})
}

// again returns a copy of an answer that may occur several times in a transcript. The number of
// messages makes the ids of its calls unique.
func (x Exchange) again(messages int) Exchange {
	x.Calls = slices.Clone(x.Calls)
	for i := range x.Calls {
		x.Calls[i].ID = fmt.Sprintf("%s_%d", x.Calls[i].ID, messages)
	}
	return x
}

// turnOf returns the index of a transcript's answer in the recording, or -1. The transcript may
// lack calls that a run did not make.
func (p *Provider) turnOf(m model.Message, from int) int {
	i := slices.IndexFunc(p.turns[from:], func(x Exchange) bool {
		if x.Text != m.Text || (len(m.Calls) == 0) != (len(x.Calls) == 0) && m.Text == "" {
			return false
		}
		return !slices.ContainsFunc(m.Calls, func(c model.Call) bool {
			return !slices.ContainsFunc(x.Calls, func(k model.Call) bool { return k.ID == c.ID && k.Name == c.Name })
		})
	})
	if i < 0 {
		return -1
	}

	return from + i
}

func lastMessage(r model.Request) string {
	if len(r.Messages) == 0 {
		return "missing"
	}
	m := r.Messages[len(r.Messages)-1]
	return fmt.Sprintf("%s: %q", describe(m), excerptOf(m))
}

func badRequest(format string, args ...any) error {
	return &model.Error{Kind: model.KindBadRequest, Message: fmt.Sprintf(format, args...)}
}
