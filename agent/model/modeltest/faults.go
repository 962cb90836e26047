package modeltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"rouse/agent/model"
)

// usage checks that tokens are counted, and that impossible counts neither reduce the cost nor fail
// the turn.
func usage(t *testing.T, start Start) {
	want := model.Usage{Input: 100, Output: 7, Cached: 90}
	a := start.ask(t, Turn{Text: "x", Usage: want})
	if a.Usage.Cached == 0 {
		want.Cached = 0 // optional for servers
	}

	want.Written = a.Usage.Written // optional for servers
	if a.Err != nil || a.Usage != want || want.Written > want.Input-want.Cached {
		t.Errorf("answer: %+v", a)
	}
	if a := start.ask(t, Turn{Text: "x"}); a.Err != nil || a.Text != "x" || a.Usage != (model.Usage{}) && a.Usage.Input+a.Usage.Output == 0 {
		t.Errorf("without a word about usage: %+v", a)
	}

	for _, lie := range []model.Usage{{Input: -5, Output: -7, Cached: -1}, {Input: 1, Output: 1, Cached: 99}, {Input: 1 << 62, Output: 1 << 62, Cached: 1 << 61}} {
		a := start.ask(t, Turn{Text: "x", Usage: lie})
		u := a.Usage
		if a.Err != nil || a.Text != "x" || u.Input < 0 || u.Output < 0 || u.Cached < 0 || u.Cached+u.Written > u.Input || u.Input > 1<<50 || u.Output > 1<<50 {
			t.Errorf("%+v became %+v", lie, a)
		}
	}
}

// endings checks that stop reasons are translated, and that only complete calls are made.
func endings(t *testing.T, start Start) {
	calls := []model.Call{query}
	for name, c := range map[string]struct {
		turn Turn
		stop string // or the kind of the error
		kind model.ErrorKind
	}{
		"nothing":                {Turn{}, model.StopDone, ""},
		"a text that is cut off": {Turn{Text: "And so", Finish: model.StopLength}, model.StopLength, ""},
		"an unknown word":        {Turn{Text: "Hm.", Finish: "banana"}, "banana", ""},
		"cut off inside a call":  {Turn{Calls: calls, Finish: model.StopLength}, "", model.KindTruncated},
		"withheld with a call":   {Turn{Calls: calls, Finish: model.StopFilter}, "", model.KindBadRequest},
		"unknown with a call":    {Turn{Calls: calls, Finish: "banana"}, "", model.KindTruncated},
	} {
		t.Run(name, func(t *testing.T) {
			a := start.ask(t, c.turn)
			if c.kind == "" {
				if a.Err != nil || a.Stop != c.stop || a.Text != c.turn.Text || len(a.Calls) > 0 {
					t.Errorf("answer: %+v, want %q", a, c.stop)
				}
				return
			}

			e := wantError(t, a, c.kind, name == "unknown with a call")
			if told := strings.Contains(e.Feedback, query.Name); told != (c.turn.Finish == model.StopLength) { // so that the model writes in parts
				t.Errorf("feedback: %q", e.Feedback)
			}
		})
	}

	t.Run("withheld", func(t *testing.T) {
		a := start.ask(t, Turn{Text: "So", Finish: model.StopFilter})
		if a.Err != nil || a.Text != "So" || (a.Stop != model.StopFilter && a.Stop != model.StopRefusal) {
			t.Errorf("answer: %+v", a)
		}
	})
}

// wantError checks that a turn failed as expected and without a call.
func wantError(t *testing.T, a Answer, kind model.ErrorKind, retryable bool) model.Error {
	t.Helper()
	var e *model.Error
	if !errors.As(a.Err, &e) || e.Kind != kind || e.Retryable != retryable || e.Message == "" {
		t.Fatalf("%d bytes, %d calls, %q and %v, want an error of the kind %s (%v)", len(a.Text), len(a.Calls), a.Stop, a.Err, kind, retryable)
	}
	if len(a.Calls) != 0 || a.Stop != "" {
		t.Errorf("a failed turn came with %d calls and %q", len(a.Calls), a.Stop)
	}
	if strings.Contains(a.Err.Error(), "canary") {
		t.Errorf("a key is in the message: %v", a.Err)
	}

	return *e
}

// faults checks that each fault of a server becomes an error with the right Retryable.
func faults(t *testing.T, start Start) {
	broken, list, nameless := query, query, query
	broken.Args, list.Args, nameless.Name = json.RawMessage(`{"sql":`), json.RawMessage(`[1]`), ""
	now := map[string]string{"Retry-After": "0"}
	for name, c := range map[string]struct {
		turn      Turn
		kind      model.ErrorKind
		retryable bool
	}{
		"wrong key":               {Turn{Fail: model.KindAuth}, model.KindAuth, false},
		"wrong key, in any words": {Turn{Status: 401, Raw: `{"error":{"message":"no"}}`}, model.KindAuth, false},
		"refused":                 {Turn{Fail: model.KindBadRequest}, model.KindBadRequest, false},
		"too long":                {Turn{Fail: model.KindContextOverflow}, model.KindContextOverflow, false},
		"down":                    {Turn{Status: 502, Header: now, Raw: `<html><title>Bad Gateway</title></html>`}, model.KindUnavailable, true},
		"fails in the middle":     {Turn{Text: "I beg", Fail: model.KindUnavailable}, model.KindUnavailable, true},
		"a web page":              {Turn{Header: map[string]string{"Content-Type": "text/html"}, Raw: `<html>login</html>`}, model.KindInvalidResponse, false},
		"empty":                   {Turn{Damage: func([]byte) ([]byte, bool) { return nil, false }}, model.KindTruncated, true},
		"garbage":                 {Turn{Damage: func(b []byte) ([]byte, bool) { return bytes.ReplaceAll(b, []byte("{"), []byte("{[")), false }, Text: "x"}, model.KindInvalidResponse, true},
		"broken arguments":        {Turn{Calls: []model.Call{broken}}, model.KindInvalidResponse, true},
		"arguments of a list":     {Turn{Calls: []model.Call{list}}, model.KindInvalidResponse, true},
		"no name":                 {Turn{Calls: []model.Call{nameless}}, model.KindInvalidResponse, true},
	} {
		t.Run(name, func(t *testing.T) { wantError(t, start.ask(t, c.turn), c.kind, c.retryable) })
	}
}

// retries checks that a busy server is asked again, and that long delays are left to the caller.
func retries(t *testing.T, start Start) {
	for _, kind := range []model.ErrorKind{model.KindRateLimited, model.KindUnavailable} {
		t.Run(string(kind), func(t *testing.T) {
			busy := Turn{Status: 503, Raw: "busy", Header: map[string]string{"Retry-After": "0"}}
			if kind == model.KindRateLimited {
				busy.Status = 429
			}

			a := start.ask(t, busy, busy, Turn{Text: "Now.", Calls: []model.Call{query}})
			if wantCalls(t, a, query); a.Text != "Now." {
				t.Errorf("answer: %+v", a)
			}

			busy.Header = map[string]string{"Retry-After": "3600"}
			if e := wantError(t, start.ask(t, busy, Turn{Text: "too soon"}), kind, true); e.RetryAfter != time.Hour {
				t.Errorf("an hour became %s", e.RetryAfter)
			}

			busy.Header = map[string]string{"Retry-After": time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}
			if e := wantError(t, start.ask(t, busy, Turn{Text: "too soon"}), kind, true); e.RetryAfter < 59*time.Minute || e.RetryAfter > time.Hour {
				t.Errorf("in an hour became %s", e.RetryAfter)
			}
		})
	}
}

// timeouts checks the limits for the time without data and for the whole turn. The error must name
// the exceeded limit.
func timeouts(t *testing.T, start Start) {
	const soon, late = 100 * time.Millisecond, time.Minute
	for name, c := range map[string]struct {
		turn Turn
		l    Limits
		say  string
	}{
		"no answer":    {Turn{Hang: true}, Limits{late, soon}, "sent nothing for 100ms"},
		"falls silent": {Turn{Text: "I begin", Calls: []model.Call{query}, Hang: true}, Limits{late, soon}, "sent nothing for 100ms"},
		"in a call":    {Turn{Calls: []model.Call{query}, Damage: firstHalf, Hang: true, Text: "I begin"}, Limits{late, soon}, "sent nothing for 100ms"},
		"never ends":   {Turn{Text: "more", RepeatEvery: 5 * time.Millisecond}, Limits{soon, late}, "did not finish its answer within 100ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := Ask(t, t.Context(), start(t, Script{c.turn}, c.l), question)
			if e := wantError(t, a, model.KindUnavailable, true); !strings.Contains(e.Message, c.say) {
				t.Errorf("%s, want %q", e.Message, c.say)
			}
		})
	}
}

// firstHalf returns a stream that stops in the middle.
func firstHalf(stream []byte) ([]byte, bool) { return stream[:len(stream)/2], false }

// large checks that a long answer is accepted and an endless one is not.
func large(t *testing.T, start Start) {
	long := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	c := query
	c.Args = json.RawMessage(`{"sql":"` + long + `"}`)
	a := start.ask(t, Turn{Text: long, Calls: []model.Call{c}})
	if wantCalls(t, a, c); a.Text != long {
		t.Errorf("%d bytes became %d", len(long), len(a.Text))
	}

	t.Run("endless", func(t *testing.T) {
		wantError(t, start.ask(t, Turn{Text: long, RepeatEvery: time.Nanosecond}), model.KindInvalidResponse, false)
	})
}
