package modeltest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"rouse/agent/model"
)

// Fuzz: whatever bytes a server sends, nothing breaks and no half call gets through. open
// gives an adapter that reaches its server by a transport; seeds are answers beside the
// cuts of a proper one.
func Fuzz(f *testing.F, open func(http.RoundTripper) (model.Provider, error), seeds ...string) {
	stream := recordStream(f, open)
	for i := range 21 {
		f.Add(stream[:len(stream)*i/20])
	}

	for _, s := range seeds {
		f.Add([]byte(s))
	}

	f.Fuzz(func(t *testing.T, sent []byte) {
		p, err := open(cannedTransport(sent))
		if err != nil {
			t.Fatal(err)
		}
		checkCalls(t, Ask(t, t.Context(), p, question), sent)
	})
}

// recordStream is the stream of the turn that is damaged, in the words of an adapter's server.
func recordStream(f *testing.F, open func(http.RoundTripper) (model.Provider, error)) []byte {
	var tape recorder
	p, err := open(&tape)
	if err != nil {
		f.Fatal(err)
	}
	if a := Ask(f, f.Context(), p, question); a.Err != nil || len(a.Calls) != len(damagedTurn.Calls) {
		f.Fatalf("answer: %+v", a)
	}
	return tape.stream
}

// recorder keeps what a server sends.
type recorder struct{ stream []byte }

func (t *recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	(&Server{script: Script{damagedTurn}}).ServeHTTP(w, r)
	t.stream = bytes.Clone(w.Body.Bytes())
	return w.Result(), nil
}

// cannedTransport is a server that answers with bytes as they are.
type cannedTransport []byte

func (c cannedTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(c))}, nil
}
