package modeltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agent/model"
)

// usage: the tokens are counted, and a server that lies about them neither gives any back
// nor costs the answer.
func usage(t *testing.T, start Start) {
	want := model.Usage{Input: 100, Output: 7, Cached: 90}
	a := start.ask(t, Turn{Text: "x", Usage: want})
	if a.Usage.Cached == 0 {
		want.Cached = 0 // not every server tells
	}

	want.Written = a.Usage.Written // nor what it keeps
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

// endings: each reason is told in the words of model, and only calls that are whole go on.
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

			wantError(t, a, c.kind, name == "unknown with a call")
		})
	}

	t.Run("withheld", func(t *testing.T) {
		a := start.ask(t, Turn{Text: "So", Finish: model.StopFilter})
		if a.Err != nil || a.Text != "So" || (a.Stop != model.StopFilter && a.Stop != model.StopRefusal) {
			t.Errorf("answer: %+v", a)
		}
	})
}

// wantError wants a turn that failed as it should, without a call.
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

// faults: what a server can do wrong is an error that says whether to try again.
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
		"a web page":              {Turn{Header: map[string]string{"Content-Type": "text/html"}, Raw: `<html>login</html>`}, model.KindNonsense, false},
		"empty":                   {Turn{Mangle: func([]byte) ([]byte, bool) { return nil, false }}, model.KindTruncated, true},
		"garbage":                 {Turn{Mangle: func(b []byte) ([]byte, bool) { return bytes.ReplaceAll(b, []byte("{"), []byte("{[")), false }, Text: "x"}, model.KindNonsense, true},
		"broken arguments":        {Turn{Calls: []model.Call{broken}}, model.KindNonsense, true},
		"arguments of a list":     {Turn{Calls: []model.Call{list}}, model.KindNonsense, true},
		"no name":                 {Turn{Calls: []model.Call{nameless}}, model.KindNonsense, true},
	} {
		t.Run(name, func(t *testing.T) { wantError(t, start.ask(t, c.turn), c.kind, c.retryable) })
	}
}

// retries: a server that is busy is asked again, in its own time; one that wants to be left
// alone for long is not waited for here.
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

// clocks: silence and the whole time of a turn are bounded, and the error says which.
func timeouts(t *testing.T, start Start) {
	const soon, late = 100 * time.Millisecond, time.Minute
	for name, c := range map[string]struct {
		turn Turn
		l    Limits
		say  string
	}{
		"no answer":    {Turn{Hang: true}, Limits{late, soon}, "sent nothing for 100ms"},
		"falls silent": {Turn{Text: "I begin", Calls: []model.Call{query}, Hang: true}, Limits{late, soon}, "sent nothing for 100ms"},
		"in a call":    {Turn{Calls: []model.Call{query}, Mangle: firstHalf, Hang: true, Text: "I begin"}, Limits{late, soon}, "sent nothing for 100ms"},
		"never ends":   {Turn{Text: "more", Endless: 5 * time.Millisecond}, Limits{soon, late}, "did not finish its answer within 100ms"},
	} {
		t.Run(name, func(t *testing.T) {
			a := Ask(t, t.Context(), start(t, Script{c.turn}, c.l), question)
			if e := wantError(t, a, model.KindUnavailable, true); !strings.Contains(e.Message, c.say) {
				t.Errorf("%s, want %q", e.Message, c.say)
			}
		})
	}
}

// firstHalf is what has come of a stream.
func firstHalf(stream []byte) ([]byte, bool) { return stream[:len(stream)/2], false }

// large: what is long is taken, and what has no end is not.
func large(t *testing.T, start Start) {
	long := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	c := query
	c.Args = json.RawMessage(`{"sql":"` + long + `"}`)
	a := start.ask(t, Turn{Text: long, Calls: []model.Call{c}})
	if wantCalls(t, a, c); a.Text != long {
		t.Errorf("%d bytes became %d", len(long), len(a.Text))
	}

	t.Run("endless", func(t *testing.T) {
		wantError(t, start.ask(t, Turn{Text: long, Endless: time.Nanosecond}), model.KindNonsense, false)
	})
}

// damagedTurn is the turn whose stream is damaged.
var damagedTurn = Turn{Text: "Now.", Usage: model.Usage{Input: 9, Output: 3}, Opaque: "c2ln", Calls: []model.Call{
	{ID: "call_a", Name: "db_query", Args: json.RawMessage(`{"sql":"select 'ü' from t where a > 1","limit":100}`)},
	{ID: "call_b", Name: "file_write", Args: json.RawMessage(`{"path":"out/report.md","content":"# Report\\n\\n- one\\n- two"}`)},
}}

// proper: calls come only with a proper end, each of them readable.
func checkCalls(t *testing.T, a Answer, sent []byte) {
	t.Helper()
	if len(a.Calls) > 0 && (a.Err != nil || a.Stop != model.StopCalls) {
		t.Errorf("calls came without a proper end (%v, %q) from\n%s", a.Err, a.Stop, sent)
	}

	for _, c := range a.Calls {
		if !json.Valid(c.Args) || c.Args[0] != '{' || c.Name == "" || c.ID == "" {
			t.Errorf("a broken call got through: %+v from\n%s", c, sent)
		}
	}
}

func isDamagedCall(c model.Call) bool {
	return slices.ContainsFunc(damagedTurn.Calls, func(o model.Call) bool { return o.Name == c.Name && canonical(o.Args) == canonical(c.Args) })
}

// damage stands between a server and its client. The two are goroutines of their own.
type damage struct {
	mu   sync.Mutex
	do   func(stream []byte) (sent []byte, abort bool)
	sent []byte
}

func (d *damage) mangle(stream []byte) ([]byte, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sent, abort := d.do(stream)
	d.sent = sent
	return sent, abort
}

// next says what happens to the next stream.
func (d *damage) next(do func(stream []byte) ([]byte, bool)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.do = do
}

// last is what was sent of the last one.
func (d *damage) last() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sent
}

// cut: a stream that ends too early, wherever and in either way, makes no call or all of
// them, and the loss is noticed.
func cut(t *testing.T, start Start) {
	var d damage
	turn := damagedTurn
	turn.Mangle = d.mangle
	p := start(t, Script{turn}, Limits{})
	for at := 0; ; at += 7 {
		d.next(func(stream []byte) ([]byte, bool) { return stream[:min(at, len(stream))], at%2 == 0 })
		a := Ask(t, t.Context(), p, question)
		sent := d.last()
		if len(sent) < at {
			return
		}

		checkCalls(t, a, sent)
		if len(a.Calls) > 0 && (len(a.Calls) != 2 || !isDamagedCall(a.Calls[0]) || !isDamagedCall(a.Calls[1])) {
			t.Fatalf("cut at byte %d: %+v", at, a.Calls)
		}
		if len(a.Calls) == 0 && a.Err == nil {
			t.Fatalf("cut at byte %d: the loss was not noticed", at)
		}
		if t.Failed() {
			return
		}
	}
}

// mutated: of streams that are damaged at random a call gets through only with arguments
// that the model finished. Only a stream that lost every piece of them cannot be told from
// one that never had any.
func mutated(t *testing.T, start Start) {
	source := rand.New(rand.NewPCG(1, 2))
	var d damage
	turn := damagedTurn
	turn.Mangle = d.mangle
	p := start(t, Script{turn}, Limits{})
	through := 0
	for range mutations(t) {
		bits, abort := false, source.IntN(4) == 0
		d.next(func(stream []byte) (sent []byte, _ bool) {
			sent, bits = mutate(source, stream)
			return sent, abort
		})
		a := Ask(t, t.Context(), p, question)
		sent := d.last()
		checkCalls(t, a, sent)

		for _, c := range a.Calls {
			through++
			if !isDamagedCall(c) && !bits && string(c.Args) != "{}" {
				t.Errorf("a partial call got through: %+v from\n%s", c, sent)
			}
		}

		if t.Failed() {
			return
		}
	}

	if through == 0 {
		t.Error("no call got through at all: this proves nothing")
	}
}

// mutations are as many as ROUSE_TEST_MUTATIONS says of each kind of server.
func mutations(t *testing.T) int {
	text := os.Getenv("ROUSE_TEST_MUTATIONS")
	if text == "" {
		return 500
	}

	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("ROUSE_TEST_MUTATIONS is %q, which is no number of mutations", text)
	}
	return n
}

// mutate also says whether it changed bits, which nothing but the transport can notice.
func mutate(r *rand.Rand, stream []byte) (out []byte, bits bool) {
	lines := bytes.SplitAfter(stream, []byte("\n"))
	for range 1 + r.IntN(3) {
		i := r.IntN(len(lines))
		lines = slices.Clone(lines)
		switch r.IntN(5) {
		case 0: // a line is lost
			lines = slices.Delete(lines, i, i+1)
		case 1: // or comes twice
			lines = slices.Insert(lines, i, lines[i])
		case 2: // or later
			j := r.IntN(len(lines))
			lines[i], lines[j] = lines[j], lines[i]
		case 3: // or is cut
			lines[i] = lines[i][:r.IntN(len(lines[i])+1)]
		case 4: // or damaged
			bits = true
			lines[i] = slices.Clone(lines[i])
			if len(lines[i]) > 0 {
				lines[i][r.IntN(len(lines[i]))] ^= 1 << r.IntN(8)
			}
		}
		if len(lines) == 0 {
			return nil, bits
		}
	}

	out = bytes.Join(lines, nil)
	return out[:len(out)-r.IntN(len(out)/2+1)*r.IntN(2)], bits
}
