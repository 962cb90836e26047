package modeltest

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"rouse/agent/model"
)

// damagedTurn is the turn whose stream is damaged.
var damagedTurn = Turn{Text: "Now.", Usage: model.Usage{Input: 9, Output: 3}, Opaque: "c2ln", Calls: []model.Call{
	{ID: "call_a", Name: "db_query", Args: json.RawMessage(`{"sql":"select 'ü' from t where a > 1","limit":100}`)},
	{ID: "call_b", Name: "file_write", Args: json.RawMessage(`{"path":"out/report.md","content":"# Report\\n\\n- one\\n- two"}`)},
}}

// checkCalls checks that calls come only with a proper end and can be executed.
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

// damage changes the streams between a server and its client, which run in different goroutines.
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

// next sets the damage for the next stream.
func (d *damage) next(do func(stream []byte) ([]byte, bool)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.do = do
}

// last returns the data sent in the last stream.
func (d *damage) last() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sent
}

// cut checks a stream that ends too early, at any position, with or without a broken connection.
// The adapter must make all calls or no call, and must notice the loss.
func cut(t *testing.T, start Start) {
	var d damage
	turn := damagedTurn
	turn.Damage = d.mangle
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

// mutated checks that calls from randomly damaged streams have the arguments that the model sent. A
// stream that lost all arguments cannot be distinguished from one that never had any.
func mutated(t *testing.T, start Start) {
	source := rand.New(rand.NewPCG(1, 2)) // the same damage in each run, so that a failure can be repeated
	var d damage
	turn := damagedTurn
	turn.Damage = d.mangle
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

	// An adapter that drops all calls would pass everything above.
	if through == 0 {
		t.Error("no call got through at all: this proves nothing")
	}
}

// mutations returns ROUSE_TEST_MUTATIONS, the number of mutations per kind of server, or its
// default.
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

// mutate damages a stream. It also reports whether it changed bits, which only the transport can
// notice.
func mutate(r *rand.Rand, stream []byte) (out []byte, bits bool) {
	lines := bytes.SplitAfter(stream, []byte("\n"))
	for range 1 + r.IntN(3) {
		i := r.IntN(len(lines))
		lines = slices.Clone(lines)
		switch r.IntN(5) {
		case 0: // a line is lost
			lines = slices.Delete(lines, i, i+1)
		case 1: // a line is duplicated
			lines = slices.Insert(lines, i, lines[i])
		case 2: // two lines are swapped
			j := r.IntN(len(lines))
			lines[i], lines[j] = lines[j], lines[i]
		case 3: // a line is cut off
			lines[i] = lines[i][:r.IntN(len(lines[i])+1)]
		case 4: // a bit is flipped
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
