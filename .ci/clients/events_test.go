package clients

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"rouse/agent/model/wire"
)

// stream is a transport whose server answers with a text.
type stream string

func (s stream) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(string(s))), Request: r}, nil
}

// frames records the frames of an answer.
type frames []string

func (*frames) EncodeRequest() any               { return struct{}{} }
func (*frames) Adapt(int, wire.ServerError) bool { return false }
func (f *frames) Decode(e wire.Frame, _ *wire.Accumulator) (string, error) {
	*f = append(*f, e.Event+"|"+string(e.Data))
	return "", nil
}

// TestEvents compares the events of random streams with those that the decoder of a public client reads.
func TestEvents(t *testing.T) {
	words := []string{"data: ", "data:", "event: x", ": c", "{}", "\n", "\r\n", "\n\n", "id", " ", "[DONE]", "\u00fc"}
	source := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		b := strings.Builder{}
		b.WriteString("data: first\n\n") // an answer has to begin as a stream
		for range source.IntN(30) {
			b.WriteString(words[source.IntN(len(words))])
		}
		b.WriteString("\n\n")

		var want, got frames
		d := ssestream.NewDecoder(&http.Response{Header: http.Header{}, Body: io.NopCloser(strings.NewReader(b.String()))})
		for d.Next() {
			if data := bytes.TrimSpace(d.Event().Data); len(data) > 0 {
				want = append(want, d.Event().Type+"|"+string(data))
			}
		}

		c, err := wire.New(wire.Endpoint{BaseURL: "http://model.example", Model: "m", Transport: stream(b.String())}, wire.Dialect{Name: "test"})
		if err != nil {
			t.Fatal(err)
		}
		for range c.Stream(t.Context(), &got, 0) { // the end of the answer is not tested here
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q: %q, want %q", b.String(), got, want)
		}
	}
}
