package wire_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/openai"
)

// TestUnreported checks the possible costs without a reported usage: each request that reached the
// server, with the size of its answer. Rejected and undelivered requests cost nothing. The adapter
// must not repeat a request that may have cost something.
func TestUnreported(t *testing.T) {
	t.Parallel()
	call := model.Call{ID: "a", Name: "look", Args: []byte(`{"at":"the north"}`)}
	half := func(stream []byte) ([]byte, bool) {
		return stream[:strings.LastIndex(string(stream), "north")+5], true
	}
	none := map[string]string{"Retry-After": "0"}
	for name, c := range map[string]struct {
		turn     modeltest.Turn
		requests int
		least    int // bytes
	}{
		"an answer with its usage":    {modeltest.Turn{Text: "Yes.", Usage: model.Usage{Input: 5, Output: 1}}, 0, 0},
		"an answer without one":       {modeltest.Turn{Text: "Yes."}, 1, 4},
		"closed without an answer":    {modeltest.Turn{Close: true}, 1, 0},
		"broken off":                  {modeltest.Turn{Text: "Let me", Damage: func(b []byte) ([]byte, bool) { return b[:len(b)/2], true }}, 1, 1},
		"broken off in a call":        {modeltest.Turn{Calls: []model.Call{call}, Damage: half}, 1, len("look")},
		"a gateway that waited":       {modeltest.Turn{Status: http.StatusGatewayTimeout, Header: none, Raw: "late"}, 1, 0},
		"busy":                        {modeltest.Turn{Status: http.StatusServiceUnavailable, Header: none, Raw: "busy"}, 0, 0},
		"wrong key":                   {modeltest.Turn{Fail: model.KindAuth}, 0, 0},
		"an error after some of it":   {modeltest.Turn{Text: "Let me", Fail: model.KindUnavailable}, 1, 6},
		"a refusal in a stream's way": {modeltest.Turn{Raw: `data: {"error":{"message":"slow down","code":"rate_limit"}}` + "\n\n"}, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, way := modeltest.Pipe(t, c.turn)
			a := modeltest.Ask(t, t.Context(), scripted(t, s.URL, way), model.Request{Messages: []model.Message{{Role: model.RoleUser, Text: "Go."}}})
			if u := a.Unreported; u.Requests != c.requests || u.Bytes < c.least || u.Requests == 0 && u.Bytes > 0 || u.Bytes > 100 {
				t.Errorf("%s: %+v (%v)", name, u, a.Err)
			}
			if asked := len(s.Requests()); c.requests > 0 && asked != c.requests {
				t.Errorf("%s: %d requests, of which %d are told", name, asked, c.requests)
			}
		})
	}

	// No server listens on port 1. Another test could take a port that a test has released.
	if a := modeltest.Ask(t, t.Context(), scripted(t, "http://127.0.0.1:1", nil), model.Request{}); a.Err == nil || a.Unreported != (model.Unreported{}) {
		t.Errorf("refused: %+v", a)
	}
}

func scripted(t *testing.T, url string, way http.RoundTripper) model.Provider {
	t.Helper()
	p, err := openai.New(openai.Options{BaseURL: url + "/v1", Model: "scripted", Transport: way})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRetriedAndFeedback checks that a turn reports the failed requests before its success, and
// that an unreadable call gives feedback for the model.
func TestRetriedAndFeedback(t *testing.T) {
	t.Parallel()
	busy := modeltest.Turn{Status: http.StatusServiceUnavailable, Raw: "busy"}
	ask := func(t *testing.T, turns ...modeltest.Turn) modeltest.Answer {
		s, way := modeltest.Pipe(t, turns...)
		return modeltest.Ask(t, t.Context(), scripted(t, s.URL, way), model.Request{Messages: []model.Message{{Role: model.RoleUser, Text: "Go."}}})
	}
	synctest.Test(t, func(t *testing.T) {
		if a := ask(t, busy, busy, modeltest.Turn{Text: "Yes."}); a.Err != nil || a.Retried != (model.Retried{Times: 2, Last: "503 Service Unavailable"}) {
			t.Errorf("%+v", a)
		}
	})
	for args, want := range map[string]string{
		`{"at": "the north`: `with arguments that are not a JSON object (after 17 bytes: unexpected end of JSON input): {"at": "the north`,
		`{"at": north}`:     `invalid character 'o' in literal null`,
		`[1]`:               "it is another kind of value",
	} {
		synctest.Test(t, func(t *testing.T) {
			a := ask(t, modeltest.Turn{Calls: []model.Call{{ID: "a", Name: "look", Args: []byte(args)}}})
			var e *model.Error
			if !errors.As(a.Err, &e) || !strings.HasPrefix(e.Feedback, "Your last answer called look with arguments") || !strings.Contains(e.Feedback, want) {
				t.Errorf("%s: %v, %+v", args, a.Err, e)
			}
		})
	}
}
