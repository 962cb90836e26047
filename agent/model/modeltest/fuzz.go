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
	stream := recorded(f, open)
	for i := range 21 {
		f.Add(stream[:len(stream)*i/20])
	}

	for _, s := range seeds {
		f.Add([]byte(s))
	}

	f.Fuzz(func(t *testing.T, sent []byte) {
		p, err := open(canned(sent))
		if err != nil {
			t.Fatal(err)
		}
		proper(t, Ask(t, t.Context(), p, question), sent)
	})
}

// recorded is the stream of the turn that is damaged, in the words of an adapter's server.
func recorded(f *testing.F, open func(http.RoundTripper) (model.Provider, error)) []byte {
	var tape tape
	p, err := open(&tape)
	if err != nil {
		f.Fatal(err)
	}
	if a := Ask(f, f.Context(), p, question); a.Err != nil || len(a.Calls) != len(whole.Calls) {
		f.Fatalf("answer: %+v", a)
	}
	return tape.stream
}

// tape keeps what a server sends.
type tape struct{ stream []byte }

func (t *tape) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	(&Server{script: Script{whole}}).ServeHTTP(w, r)
	t.stream = bytes.Clone(w.Body.Bytes())
	return w.Result(), nil
}

// canned is a server that answers with bytes as they are.
type canned []byte

func (c canned) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(c))}, nil
}
