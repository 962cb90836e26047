package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"rouse/agent/loop/textcall"
	"rouse/agent/model"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// maxMisread is the number of consecutive unusable answers that ends the run. An unusable answer
// has neither a result nor a valid call.
const maxMisread = 2

// readText separates reasoning from the result, and converts calls written as text into calls.
func (r *run) readText(t *turn, noTools bool) {
	if len(t.calls) > 0 || t.end != nil {
		return
	}
	if noTools || len(r.Registry.ModelTools()) == 0 {
		if a := textcall.Split(t.text); a.Fault == "" {
			t.result = a.Text
		}
		return
	}

	a := textcall.Read(t.text, func(name string) (json.RawMessage, bool) {
		known, ok := r.Registry.Lookup(name)
		if !ok {
			return nil, false
		}
		return known.ModelSchema(), true
	})
	switch {
	case r.quotesInput(a.Calls):
		t.fault = "repeats a call from a text that you were given"
	case len(a.Calls) > 0:
		// The raw message of the adapter contains the calls as text, so it is dropped.
		t.text, t.result, t.raw = a.Thinking, "", nil
		for _, c := range a.Calls {
			t.calls = append(t.calls, model.Call{Name: c.Name, Args: c.Args})
		}
		t.notices = append(t.notices, fmt.Sprintf("[Call as text] The model wrote %s as text; the text was read as a call.", text.Plural(len(a.Calls), "call")))
	case a.Fault != "" && (!a.Quotes || r.misread == 0): // the same answer after a retry is an example, not a call
		t.fault, t.unended = a.Fault, a.Thinking != "" && a.Text == ""
	default:
		t.result = a.Text
	}
}

// quotesInput reports whether a call appears in a text that the model has read. Such a text may be
// untrusted.
func (r *run) quotesInput(calls []textcall.Call) bool {
	if len(calls) == 0 {
		return false
	}

	var read strings.Builder
	for _, m := range r.messages {
		switch m.Role {
		case model.RoleUser:
			read.WriteString(withoutLayout(m.Text))
		case model.RoleTool:
			var envelope any
			if json.Unmarshal([]byte(m.Text), &envelope) == nil {
				eachString(envelope, func(s string) { read.WriteString(withoutLayout(s)) })
			}
		}
	}
	return slices.ContainsFunc(calls, func(c textcall.Call) bool { return strings.Contains(read.String(), withoutLayout(c.Source)) })
}

// lineNumber matches the line numbers that file_read adds.
var lineNumber = regexp.MustCompile(`(?m)^ *\d+\|`)

func withoutLayout(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsSpace(c) {
			return -1
		}
		return c
	}, lineNumber.ReplaceAllString(s, ""))
}

func eachString(v any, yield func(string)) {
	switch v := v.(type) {
	case string:
		yield(v)
	case []any:
		for _, one := range v {
			eachString(one, yield)
		}
	case map[string]any:
		for _, one := range v {
			eachString(one, yield)
		}
	}
}

// askForCall asks again after an unusable answer. It ends the run if the answers stay unusable.
func (r *run) askForCall(t turn) (over bool) {
	if r.misread++; r.misread < maxMisread {
		switch {
		case t.stop == model.StopLength && t.unended:
			r.addNotice("Your last answer was only reasoning, and it was cut off because it was too long. Reason briefly, then call a tool or give the result.")
		case t.stop == model.StopLength:
			r.addNotice("Your last answer was cut off within a call because it was too long. Nothing was called. Write it in parts: several calls with less in each.")
		case t.unended:
			r.addNotice("Your last answer was not used, because it %s. End your reasoning, then call a tool or give the result.", t.fault)
		default:
			r.addNotice("Your last answer was not used, because it %s. Nothing was called. Make a tool call instead of writing one as text, or give the result in plain words. The answer was: %s", t.fault, text.Truncate(text.OneLine(t.text), maxShownArgs))
		}
		return false
	}

	remedy := "serve the model with its chat template and tool calls (llama.cpp: --jinja), or use another model"
	if t.stop == model.StopLength {
		remedy = "raise max_output, or use another model"
	}
	r.end(domain.ExitEnded, domain.OutcomeError, "call as text", "the model gave no usable answer %d times in a row: the last one %s; %s", r.misread, t.fault, remedy)
	return true
}

// askInParts asks again once after an answer that was cut off inside a call. Otherwise it returns
// the failure, which ends the run.
func (r *run) askInParts(ctx context.Context, failure error) error {
	var e *model.Error
	if ctx.Err() != nil || !errors.As(failure, &e) || e.Kind != model.KindTruncated || e.Retryable || e.Feedback == "" {
		return failure
	}
	if r.cutOff++; r.cutOff > 1 {
		return fmt.Errorf("%d answers in a row were too long: %w", r.cutOff, failure)
	}
	r.addNotice("%s", e.Feedback)
	return nil
}
