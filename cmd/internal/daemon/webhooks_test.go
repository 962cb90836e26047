package daemon

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/webhook"
	"rouse/internal/ledger"
	"rouse/internal/ledger/label"
	"rouse/internal/ledger/runs"
)

const hooked = `version: 1
home: ./home
agents: [{name: ann, workdir: ./work}]
jobs:
  - {name: bank, agent: ann, webhook: {path: /hooks/bank, secret: the-secret-of-the-bank, scheme: github, max_body: 200KiB}, prompt: "{{ .Body }}"}
  - {name: off, agent: ann, enabled: false, webhook: {path: /hooks/off, secret: other-secret}, prompt: x}
`

// sender sends requests to the webhook of the job bank.
type sender struct {
	t *testing.T
	*Daemon
}

func newSender(t *testing.T) sender {
	t.Helper()
	d := openHere(t, hooked)
	listenAt(t, d, func(s *plan.Setup) { s.Config.Dashboard.Listen = "127.0.0.1:0" })
	return sender{t, d}
}

// send sends a delivery and returns the status, the run and the Retry-After header.
func (s sender) send(id, body string) (status int, run string, after string) {
	s.t.Helper()
	h, err := webhook.GitHub.Sign("the-secret-of-the-bank", webhook.Delivery{ID: id, Event: "push"}, []byte(body), time.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.Door.URL("/hooks/bank"), strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header = h

	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Error(err)
		return 0, "", ""
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	var out struct{ Run string }
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		s.t.Errorf("%s: %v", raw, err)
	}
	return resp.StatusCode, out.Run, resp.Header.Get("Retry-After")
}

// A delivery that is repeated many times concurrently is one run. It is untrusted, and its body is
// stored unchanged.
func TestDeliveriesAreRuns(t *testing.T) {
	t.Parallel()
	s := newSender(t)
	large := strings.Repeat("blob:sha256:<b>\u202e", 8000) // larger than a value in a row, and similar to a reference
	status, run, _ := s.send("d-0", large)
	if status != http.StatusAccepted || run != "1" {
		t.Fatalf("%d, run %q", status, run)
	}
	r, err := s.ledger.Runs.Get(t.Context(), 1)
	if err != nil || r.Trigger != "webhook" || r.Taint != label.TaintUntrusted {
		t.Errorf("%+v (%v)", r, err)
	}
	if body, err := s.ledger.Runs.DeliveryBody(t.Context(), 1); err != nil || body != large {
		t.Errorf("%d bytes are kept of %d (%v)", len(body), len(large), err)
	}

	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 125 {
				if status, run, _ := s.send("d-1", `{"n":1}`); (status != http.StatusAccepted && status != http.StatusOK) || run != "2" {
					t.Errorf("%d, run %q", status, run)
				}
			}
		})
	}
	all.Wait()
	if runs, err := s.ledger.Runs.List(t.Context(), runs.Filter{Job: "bank"}); err != nil || len(runs) != 2 {
		t.Errorf("%d runs (%v)", len(runs), err)
	}
}

// Senders get a Retry-After header while the job is paused or the queue is full. Repeated
// deliveries of accepted requests are accepted. Refusals are recorded, with a limited size.
func TestBusyWebhooks(t *testing.T) {
	t.Parallel()
	s := newSender(t)
	s.send("known", `{}`)
	if _, err := s.Pause(t.Context(), api.PauseRequest{Scope: "job", Name: "bank", For: "2h"}); err != nil {
		t.Fatal(err)
	}
	status, _, after := s.send("new", `{}`)
	if left, err := strconv.Atoi(after); err != nil || status != http.StatusServiceUnavailable || left > 7200 || left < 7000 {
		t.Errorf("paused: %d, after %s", status, after)
	}
	if status, run, _ := s.send("known", `{}`); status != http.StatusOK || run != "1" {
		t.Errorf("paused, and known: %d, run %s", status, run)
	}
	for range 20 {
		s.send("new", `{}`)
	}
	w, err := s.Why(t.Context(), "bank", "", 20)
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, e := range w.Between {
		if e.What == "webhook" && e.Did == "refused" && strings.Contains(e.Text, "/hooks/bank: the job of this webhook is paused") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d refusals are told: %+v", told, w.Between)
	}
	if hooks, err := s.Webhooks(t.Context()); err != nil || len(hooks) != 2 || hooks[0].Refuses == "" || hooks[0].LastRun != "1" || hooks[1].Enabled {
		t.Errorf("%+v (%v)", hooks, err)
	}

	if _, err := s.Resume(t.Context(), "job", "bank"); err != nil {
		t.Fatal(err)
	}
	var requests []ledger.Request
	for i := range 998 {
		requests = append(requests, ledger.Request{Key: fmt.Sprint("k", i), Job: "bank", Agent: "ann", Trigger: "webhook"})
	}
	if _, err := s.ledger.Enqueue(t.Context(), requests...); err != nil {
		t.Fatal(err)
	}
	if status, run, _ := s.send("last", `{}`); status != http.StatusAccepted || run != "1000" {
		t.Errorf("the last one: %d, run %s", status, run)
	}
	if status, _, after := s.send("too many", `{}`); status != http.StatusServiceUnavailable || after != "60" {
		t.Errorf("full: %d, after %s", status, after)
	}
}

// Invalid requests get an error status and start no run. This includes the path of a disabled job,
// another host name, and a signature of another body.
func TestWrongDeliveries(t *testing.T) {
	t.Parallel()
	s := newSender(t)
	for what, c := range map[string]struct {
		path, host, body, signed string
		status                   int
	}{
		"disabled":          {"/hooks/off", "", "{}", "{}", 404},
		"no webhook":        {"/hooks/", "", "{}", "{}", 404},
		"another name":      {"/hooks/bank", "evil.example", "{}", "{}", 421},
		"another body":      {"/hooks/bank", "", "{} ", "{}", 401},
		"too much":          {"/hooks/bank", "", strings.Repeat("x", 240<<10), "{}", 413}, // the rest of a huge body is not read, so the response may be lost
		"no text":           {"/hooks/bank", "", "\xff\xfe", "\xff\xfe", 415},
		"a path around it":  {"/hooks/../v1/runs", "", "{}", "{}", 404},
		"the API by a hook": {"/hooks/v1/runs", "", "{}", "{}", 404},
	} {
		h, err := webhook.GitHub.Sign("the-secret-of-the-bank", webhook.Delivery{ID: "d"}, []byte(c.signed), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.TrimSuffix(s.Door.URL("/"), "/")+c.path, bytes.NewReader([]byte(c.body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header, r.Host = h, c.host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s: %d, want %d", what, resp.StatusCode, c.status)
		}
		if resp.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: the answer is for browsers to guess at", what)
		}
	}
	if runs, err := s.ledger.Runs.List(t.Context(), runs.Filter{}); err != nil || len(runs) > 0 {
		t.Errorf("%+v (%v)", runs, err)
	}
}

// Idle connections of strangers do not block deliveries.
func TestKeptConnectionsGiveWay(t *testing.T) {
	t.Parallel()
	s := newSender(t)
	at, err := url.Parse(s.Door.URL("/"))
	if err != nil {
		t.Fatal(err)
	}
	for range maxConnections {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprintf(c, "GET /v1/runs HTTP/1.1\r\nHost: %s\r\n\r\n", at.Host); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(cmdtest.Patience)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body) // keep the connection for another request
		resp.Body.Close()
	}

	answered := make(chan int, 1)
	go func() {
		status, _, _ := s.send("d", "{}")
		answered <- status
	}()
	select {
	case status := <-answered:
		if status != http.StatusAccepted {
			t.Errorf("a delivery is answered %d", status)
		}
	case <-time.After(idleFor / 2):
		t.Fatal("a delivery waits until a stranger leaves")
	}
}
