package modeltest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"rouse/agent/model"
)

// Fuzz checks that no bytes sent by a server break the adapter or produce an incomplete call. open
// returns an adapter that uses a transport. The seeds are additional to a valid answer that is cut
// off at various positions.
func Fuzz(f *testing.F, open func(http.RoundTripper) (model.Provider, error), seeds ...string) {
	stream := recordStream(f, open)
	// From an empty to the complete stream, in steps of 5 %.
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

// recordStream returns the stream of damagedTurn as the adapter's server sends it.
func recordStream(f *testing.F, open func(http.RoundTripper) (model.Provider, error)) []byte {
	var r recorder
	p, err := open(&r)
	if err != nil {
		f.Fatal(err)
	}
	if a := Ask(f, f.Context(), p, question); a.Err != nil || len(a.Calls) != len(damagedTurn.Calls) {
		f.Fatalf("answer: %+v", a)
	}
	return r.stream
}

// recorder records the stream of a server.
type recorder struct{ stream []byte }

func (t *recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	(&Server{script: Script{damagedTurn}}).ServeHTTP(w, r)
	t.stream = bytes.Clone(w.Body.Bytes())
	return w.Result(), nil
}

// cannedTransport answers every request with the same bytes.
type cannedTransport []byte

func (c cannedTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(c))}, nil
}
