package daemon

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/logging"
	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
)

// serverEvent is one event of a stream of server-sent events.
type serverEvent struct {
	id string
	api.Event
}

// nextEvent reads the next event.
func nextEvent(t *testing.T, in *bufio.Reader) (out serverEvent) {
	t.Helper()
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ended: %v", err)
		}
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch key {
		case "id":
			out.id = value
		case "data":
			if err := json.Unmarshal([]byte(value), &out.Event); err != nil {
				t.Fatal(err)
			}
		case "":
			if out.Kind != "" { // a live event has no id
				return out
			}
		}
	}
}

// TestServerSentEvents checks a stream of new events: filters, resuming after the last event, and
// the dispatch of each event.
func TestServerSentEvents(t *testing.T) {
	t.Parallel()
	f := newAPIFixture(t)
	f.reported() // earlier events are not sent

	open := func(path, after string) *bufio.Reader {
		resp := f.send(http.MethodGet, path, "", nil, func(r *http.Request) {
			r.Header.Set("Accept", "text/event-stream")
			if after != "" {
				r.Header.Set("Last-Event-ID", after)
			}
		})
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%s %v", resp.Status, resp.Header)
		}
		return bufio.NewReader(resp.Body)
	}

	stream := open("/v1/events?kind=run.*&kind=artifact.shared&job=report", "")
	f.done = nil
	run := f.reported()
	f.run(api.RunRequest{Job: "fails"}) // a run of another job
	var got []string
	var seen []serverEvent
	for len(got) == 0 || got[len(got)-1] != "run.finished COMPLETED" {
		e := nextEvent(t, stream)
		if e.Run != run.ID || e.id != e.ID {
			t.Errorf("%+v", e)
		}
		seen = append(seen, e)
		got = append(got, strings.TrimSpace(e.Kind+" "+string(e.Dispatch)))
	}
	if want := "run.queued, run.started STARTED, artifact.shared OUTPUT, run.finished COMPLETED"; strings.Join(got, ", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}

	// An interrupted client resumes after its last event, even if its URL has another position.
	resumed := open("/v1/events?kind=run.*&job=report&after=0", seen[1].id)
	if e := nextEvent(t, resumed); e.ID != seen[3].ID {
		t.Errorf("it goes on with %+v, want %+v", e, seen[3])
	}

	// All kinds of dispatches.
	asked := f.started(0)
	events := []ledger.Event{}
	for kind, data := range map[string]string{
		"run.started": "{}", "call.started": "{}", event.Progress: "{}", "run.waiting": "{}", "artifact.shared": "{}", "step.finished": "{}",
	} {
		events = append(events, ledger.Event{Run: asked.Run, Kind: kind, Data: json.RawMessage(data)})
	}
	for _, outcome := range []domain.Outcome{domain.OutcomeNothing, domain.OutcomeTimeout, domain.OutcomeInterrupted, domain.OutcomeCancelled} {
		events = append(events, ledger.Event{Run: asked.Run, Kind: "run.finished", Data: json.RawMessage(`{"outcome":"` + string(outcome) + `"}`)})
	}
	live := open("/v1/events", "")
	if err := f.ledger.Events.Append(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
	row := contract.Of(t, "OSA-26")
	means := map[api.Dispatch]int{}
	for range events {
		e := nextEvent(t, live)
		for e.Run != strconv.FormatInt(asked.Run, 10) {
			e = nextEvent(t, live)
		}
		means[e.Dispatch]++
	}
	for _, kind := range row.Between(row.Quote("dispatch")+"`: ", ". If") {
		if means[api.Dispatch(kind)] == 0 {
			t.Errorf("nothing means %s: %v", kind, means)
		}
	}

	// The stream of one run starts with it and ends with it.
	whole, err := io.ReadAll(open("/v1/events?run="+run.ID, ""))
	if err != nil || !strings.Contains(string(whole), `"run.queued"`) || !strings.Contains(string(whole), `"run.finished"`) {
		t.Errorf("%s, %v", whole, err)
	}
}

// TestAgentsAreAsked checks a request to an agent and its summary or question. The runs are normal
// runs with the trigger api, in a session if the request names one.
func TestAgentsAreAsked(t *testing.T) {
	t.Parallel()
	f := newAPIFixture(t)
	row := contract.Of(t, "OSA-25")
	ask := func(agent, body string) (out api.AgentRun, status int) {
		resp := f.send(http.MethodPost, "/v1/agents/"+agent+"/run", "application/json", strings.NewReader(body), nil)
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil && resp.StatusCode == http.StatusOK {
			t.Fatal(err)
		}
		return out, resp.StatusCode
	}

	done, _ := ask("ann", `{"prompt":"Do it."}`)
	if done.Summary != "All of it is done, as it was asked for." || done.Item != nil || done.Run.Outcome != domain.OutcomeSuccess || done.Run.Trigger != domain.TriggerAPI || done.Run.Steps != 1 {
		t.Errorf("%+v", done)
	}
	question, _ := ask("quinn", `{"prompt":"Book it."}`)
	if question.Item == nil || question.Item.Message != "Which account?" || question.Run.State != domain.StateWaiting {
		t.Errorf("%+v", question)
	}
	again, _ := ask("ann", `{"prompt":"Do more.","`+row.Quote("session")+`":"thread 7","fresh":true}`)
	for body, want := range map[string]int{`{"prompt":" "}`: http.StatusBadRequest, `{"prompt":"x","wait":-1}`: http.StatusBadRequest} {
		if _, status := ask("ann", body); status != want {
			t.Errorf("%s: %d", body, status)
		}
	}
	if r := f.recorded(again.Run.ID); again.Run.Outcome != domain.OutcomeSuccess || r.Session != "thread 7" || !r.NewSession {
		t.Errorf("of a session: %+v, recorded %+v", again, r)
	}
	if _, status := ask("nobody", `{"prompt":"x"}`); status != http.StatusNotFound {
		t.Errorf("an agent that is none: %d", status)
	}

	// If no daemon executes runs, the request is refused at once.
	f.stop()
	d, err := Open(t.Context(), Options{Home: f.Dir(), Config: f.Current().Config, Logger: logging.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var failure *api.Error
	if err := api.InProcess(d.Handler).Post(t.Context(), "/v1/agents/ann/run", api.AgentRunRequest{Prompt: "x"}, nil); !errors.As(err, &failure) || failure.Status != http.StatusConflict {
		t.Errorf("without a daemon: %v", err)
	}
}

// recorded returns the recorded details of the request for a run.
func (f *apiFixture) recorded(id string) (d ledger.TriggerDetail) {
	f.t.Helper()
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		f.t.Fatal(err)
	}
	run, err := f.ledger.Runs.Get(f.t.Context(), n)
	if err == nil {
		err = json.Unmarshal(run.Detail, &d)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return d
}

// A session is refused if the run would not have one, with an alternative.
func TestSessionsAreRefused(t *testing.T) {
	t.Parallel()
	f := newAPIFixture(t)
	for want, ask := range map[string]api.RunRequest{
		"a session is for an agent and a prompt":                 {Job: "report", Session: "k"},
		"the job report keeps no session":                        {Job: "report", NewSession: true},
		"there is no session that could begin":                   {Agent: "ann", Prompt: "x", NewSession: true},
		"the key of a session has up to 200 characters, not 201": {Agent: "ann", Prompt: "x", Session: strings.Repeat("ü", 201)},
	} {
		var failure *api.Error
		if err := f.client.Post(t.Context(), "/v1/runs", ask, nil); !errors.As(err, &failure) || failure.Status != http.StatusBadRequest || !strings.Contains(failure.Message, want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestAskedByHTTP checks the responses of both URLs.
func TestAskedByHTTP(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSA-28")
	f := newAPIFixture(t)
	post := func(address, body string) map[string]any {
		t.Helper()
		method, path, _ := strings.Cut(address, " ")
		resp := f.send(method, path, "application/json", strings.NewReader(body), nil)
		got := map[string]any{}
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %v %v", address, resp.Status, got, err)
		}
		return got
	}

	run := row.Quote("POST /v1/agents/{id}/run")
	got := post(strings.ReplaceAll(run, "{id}", "ann"), `{"prompt":"Do it."}`)
	if got[row.Quote("summary")] != "All of it is done, as it was asked for." || got["run"].(map[string]any)["trigger"] != row.Quote("api") {
		t.Errorf("%v", got)
	}
	if got := post(strings.ReplaceAll(run, "{id}", "quinn"), `{"prompt":"Book it."}`); got[row.Quote("item")].(map[string]any)["message"] != "Which account?" {
		t.Errorf("%v", got)
	}

	chat := row.Quote("POST /v1/chat/completions")
	body := `{"` + row.Quote("model") + `":"ann","messages":[{"role":"user","content":"Do it."}]`
	choice := post(chat, body+"}")["choices"].([]any)[0].(map[string]any)
	if choice["finish_reason"] != row.Quote("stop") || choice["message"].(map[string]any)["content"] != "All of it is done, as it was asked for." {
		t.Errorf("%v", choice)
	}
}

// TestMetrics checks that the metrics match the record.
func TestMetrics(t *testing.T) {
	t.Parallel()
	f := newAPIFixture(t)
	read := func() string {
		resp := f.send(http.MethodGet, "/metrics", "", nil, nil)
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s %v", resp.Status, text, err)
		}
		return string(text)
	}
	read()

	f.reported()
	f.run(api.RunRequest{Job: "fails"})
	f.run(api.RunRequest{Agent: "ann", Prompt: "Do it."})
	f.question()
	scheduled := time.Now().Add(-time.Minute)
	if _, err := f.ledger.Enqueue(t.Context(), ledger.Request{Job: "report", Agent: "ann", Trigger: domain.TriggerSchedule, ScheduledAt: scheduled}); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "the run of the schedule", func() bool { return strings.Contains(read(), `rouse_runs_total{job="report",outcome="success"} 2`) })

	text := read()
	for _, want := range []string{
		`rouse_runs_total{job="fails",outcome="error"} 1`, `rouse_runs_total{job="",outcome="success"} 1`,
		`rouse_run_duration_seconds_count{job="report"} 2`, `rouse_run_queue_seconds_count{job="report"} 2`,
		`rouse_run_lateness_seconds_count{job="report"} 1`, `rouse_run_lateness_seconds_bucket{job="report",le="15"} 0`, `rouse_run_lateness_seconds_bucket{job="report",le="300"} 1`,
		`rouse_tokens_total{direction="in",job=""}`, `rouse_cost_usd_total{job=""}`, `rouse_steps_total{job=""} 1`,
		`rouse_runs{state="waiting"} 1`, `rouse_inbox_open`, `rouse_runs_blocked 0`, `rouse_lanes 4`, `rouse_ready 1`, `rouse_watch_works{job="drops"} 1`, `rouse_watch_lag_seconds{job="drops"}`, `rouse_outbox_undelivered`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
}
