package openai

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
)

// The calls of the stream that is mutated.
var originals = []model.Call{
	{ID: "call_a", Name: "db_query", Args: json.RawMessage(`{"sql":"select 'ü' from t where a > 1","limit":100}`)},
	{ID: "call_b", Name: "file_write", Args: json.RawMessage(`{"path":"out/report.md","content":"# Report\n\n- one\n- two"}`)},
}

func wholeStream() []byte {
	chunks := modeltest.Chunks(modeltest.Turn{Text: "Now.", Calls: originals, Usage: model.Usage{Input: 9, Output: 3}})
	return []byte("data: " + strings.Join(chunks, "\n\ndata: ") + "\n\ndata: [DONE]\n\n")
}

// replay answers with whatever bytes it is given, and can break off after them.
func replay(t testing.TB, sent []byte, abort bool) modeltest.Answer {
	t.Helper()
	body := io.Reader(bytes.NewReader(sent))
	if abort {
		body = io.MultiReader(body, iotest.ErrReader(io.ErrUnexpectedEOF))
	}
	got, _ := ask(t, t.Context(), Options{}, func(int, *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(body)}, nil
	})
	return got
}

// check: calls come only with a proper end, each of them readable.
func check(t testing.TB, got modeltest.Answer, sent []byte) {
	t.Helper()
	if len(got.Calls) > 0 && (got.Err != nil || got.Stop != model.StopCalls) {
		t.Errorf("calls came without a proper end (%v, %q) from\n%s", got.Err, got.Stop, sent)
	}
	for _, c := range got.Calls {
		if !json.Valid(c.Args) || c.Args[0] != '{' || c.Name == "" || c.ID == "" {
			t.Errorf("a broken call got through: %+v from\n%s", c, sent)
		}
	}
}

// A stream that ends too early, at any byte and in either way, makes no call or all of them.
func TestCutStreams(t *testing.T) {
	whole := wholeStream()
	for i := range len(whole) {
		got := replay(t, whole[:i], i%2 == 0)
		check(t, got, whole[:i])
		all := slices.EqualFunc(got.Calls, originals, func(a, b model.Call) bool { return a.ID == b.ID && string(a.Args) == string(b.Args) })
		if len(got.Calls) > 0 && !all {
			t.Fatalf("cut at byte %d: %+v", i, got.Calls)
		}
		if len(got.Calls) == 0 && got.Err == nil {
			t.Fatalf("cut at byte %d: the loss was not noticed", i)
		}
	}
}

// Ten thousand mutated streams: a call gets through only with arguments that the model
// finished. Only a stream that lost every piece of them cannot be told from one that
// never had any.
func TestMutatedStreams(t *testing.T) {
	whole := wholeStream()
	source := rand.New(rand.NewPCG(1, 2))
	through := 0
	for range 10_000 {
		sent, damaged := mutate(source, whole)
		got := replay(t, sent, source.IntN(4) == 0)
		check(t, got, sent)
		for _, c := range got.Calls {
			through++
			known := slices.ContainsFunc(originals, func(o model.Call) bool { return string(o.Args) == string(c.Args) })
			if !known && !damaged && string(c.Args) != "{}" {
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

// mutate also says whether it changed bits, which nothing but the transport can notice.
func mutate(r *rand.Rand, whole []byte) (out []byte, damaged bool) {
	lines := bytes.SplitAfter(whole, []byte("\n\n"))
	for range 1 + r.IntN(3) {
		i := r.IntN(len(lines))
		switch r.IntN(5) {
		case 0: // a chunk is lost
			lines = slices.Delete(slices.Clone(lines), i, i+1)
		case 1: // or comes twice
			lines = slices.Insert(slices.Clone(lines), i, lines[i])
		case 2: // or later
			j := r.IntN(len(lines))
			lines = slices.Clone(lines)
			lines[i], lines[j] = lines[j], lines[i]
		case 3: // or is cut
			lines = slices.Clone(lines)
			lines[i] = lines[i][:r.IntN(len(lines[i])+1)]
		case 4: // or damaged
			damaged = true
			lines = slices.Clone(lines)
			lines[i] = slices.Clone(lines[i])
			if len(lines[i]) > 0 {
				lines[i][r.IntN(len(lines[i]))] ^= 1 << r.IntN(8)
			}
		}
		if len(lines) == 0 {
			return nil, damaged
		}
	}
	out = bytes.Join(lines, nil)
	return out[:len(out)-r.IntN(len(out)/2+1)*r.IntN(2)], damaged
}

// FuzzStream: whatever bytes a server sends, nothing breaks and no half call gets through.
func FuzzStream(f *testing.F) {
	whole := wholeStream()
	for i := range 20 {
		f.Add(whole[:len(whole)*i/20])
	}
	f.Add(whole)
	f.Add([]byte(`{"choices":[{"message":{"tool_calls":[{"function":{"name":"x","arguments":{}}}]},"finish_reason":"stop"}]}`))
	f.Add([]byte("event: error\ndata: [1]\n\n"))
	f.Add([]byte(`[{"error":"x"}]`))
	f.Fuzz(func(t *testing.T, sent []byte) {
		check(t, replay(t, sent, false), sent)
	})
}
