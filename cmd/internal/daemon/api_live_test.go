package daemon

import (
	"bufio"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/internal/domain"
	"rouse/internal/ledger/event"
)

const liveConfig = `
home: ./home
models: [{name: m, provider: openai, model: scripted, base_url: "DOES/v1", api_key: secret:key}]
agents: [{name: ann}]
limits: {queued: 1, asked_per_minute: 4, drain: 100ms}
jobs: [{name: report, agent: ann, prompt: Report.}]
`

// serveLive starts a daemon with a model that begins an answer and does not end it.
func serveLive(t *testing.T) *apiFixture {
	t.Helper()
	s := modeltest.New(t, modeltest.Turn{Text: "\x1b[2J<b>The key</b> is sk-canary-1234567, and so on: sk-can", Hang: true})
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": strings.ReplaceAll(liveConfig, "DOES", s.URL)})
	setSecret(t, filepath.Join(dir, "home"), "key", "sk-canary-1234567")
	f := &apiFixture{served: ServeIn(t, dir, "rouse.yaml")}
	f.base, f.token = strings.TrimSuffix(f.Door.URL("/"), "/"), f.readToken()
	return f
}

// begin starts a run and waits until it is running.
func (f *apiFixture) begin(job string) (run api.Run) {
	f.t.Helper()
	if err := f.client.Post(f.t.Context(), "/v1/runs", api.RunRequest{Job: job}, &run); err != nil {
		f.t.Fatal(err)
	}
	cmdtest.Until(f.t, "run "+run.ID+" is on", func() bool {
		var d api.RunDetail
		return f.client.Get(f.t.Context(), "/v1/runs/"+run.ID, nil, &d) == nil && d.State == domain.StateRunning
	})
	return run
}

// TestLiveEvents checks that a follower reads an answer in parts, without secrets, and how it
// ends. Live events are not recorded, and clients that do not request them do not get them.
func TestLiveEvents(t *testing.T) {
	t.Parallel()
	f := serveLive(t)
	open := func(query string) *bufio.Reader {
		resp := f.send(http.MethodGet, "/v1/events?"+query, "", nil, func(r *http.Request) { r.Header.Set("Accept", "text/event-stream") })
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
		return bufio.NewReader(resp.Body)
	}

	run := f.begin("report")
	stream := open("live=true&kind=step.draft&kind=step.output&kind=run.finished&run=" + run.ID)
	var text string
	for !strings.Contains(text, "so on: ") {
		e := nextEvent(t, stream)
		var data struct{ Text string }
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		switch {
		case e.ID != "" || e.id != "" || e.Run != run.ID || e.Job != "report":
			t.Errorf("%+v", e)
		case e.Kind == api.EventDraft && e.Dispatch == api.DispatchDraft:
			text = data.Text
		case e.Kind == api.EventOutput && e.Dispatch == api.DispatchOutput:
			text += data.Text
		default:
			t.Fatalf("%+v", e)
		}
	}
	if want := "\x1b[2J<b>The key</b> is [secret], and so on: "; text != want {
		t.Errorf("%q, want %q", text, want)
	}

	if e := nextEvent(t, open("live=true&kind=step.progress&kind=step.draft")); e.Kind != api.EventDraft { // a late client gets the whole text
		t.Errorf("%+v", e)
	}

	if err := f.client.Post(t.Context(), "/v1/runs/"+run.ID+"/cancel", api.Nothing{}, nil); err != nil {
		t.Fatal(err)
	}
	if e := nextEvent(t, stream); e.Kind != "run.finished" || e.Dispatch != api.DispatchCancelled || e.id == "" {
		t.Errorf("%+v", e)
	}

	id, err := strconv.ParseInt(run.ID, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	events, err := f.ledger.Events.List(t.Context(), event.Filter{Run: id, Limit: 100})
	for _, e := range events {
		if e.Kind == api.EventDraft || e.Kind == api.EventOutput || e.Kind == api.EventProgress {
			t.Errorf("it is on record: %+v", e)
		}
	}
	if err != nil || len(events) < 4 {
		t.Errorf("%v, %v", events, err)
	}
}

// TestAdmission checks that requests are refused with Retry-After if too many runs are queued or
// the caller sends too many requests. Refusals are recorded, and accepted runs remain accepted.
func TestAdmission(t *testing.T) {
	t.Parallel()
	f := serveLive(t)
	f.begin("report")
	ask := func(key string) (resp *http.Response, failure api.Error) {
		resp = f.send(http.MethodPost, "/v1/runs", "application/json", strings.NewReader(`{"job":"report"}`), func(r *http.Request) {
			if key != "" {
				r.Header.Set("Idempotency-Key", key)
			}
		})
		if resp.StatusCode == http.StatusOK {
			return resp, failure
		}
		if err := json.NewDecoder(resp.Body).Decode(&failure); err != nil {
			t.Fatal(err)
		}
		return resp, failure
	}

	if resp, failure := ask("first"); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %+v", resp.Status, failure)
	}
	for range 2 {
		resp, failure := ask("")
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "60" || failure.Kind != api.KindLimit || !strings.Contains(failure.Message, "limits.queued") {
			t.Errorf("%s %v %+v", resp.Status, resp.Header, failure)
		}
	}
	var full *api.Error
	if err := f.client.Post(t.Context(), "/v1/runs", api.RunRequest{Job: "report"}, nil); !errors.As(err, &full) || full.Kind != api.KindLimit {
		t.Errorf("at the socket: %v", err)
	}

	ask("") // the last of four
	resp, failure := ask("")
	if after, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || after < 1 || after > 15 || resp.StatusCode != http.StatusTooManyRequests || failure.Kind != api.KindLimit {
		t.Errorf("%s %v %+v", resp.Status, resp.Header, failure)
	}
	if resp, failure := ask("first"); resp.StatusCode != http.StatusOK {
		t.Errorf("what was accepted before: %s %+v", resp.Status, failure)
	}

	events, err := f.ledger.Events.List(t.Context(), event.Filter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var refused []string
	for _, e := range events {
		if e.Kind == "run.refused" && e.Job == "report" {
			refused = append(refused, string(e.Data))
		}
	}
	if got := strings.Join(refused, "\n"); len(refused) != 2 || !strings.Contains(got, "limits.queued") || !strings.Contains(got, "limits.asked_per_minute") {
		t.Errorf("on record:\n%s", got)
	}
}
