package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/preview"
	"rouse/agent/sandbox"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/daemon"
	"rouse/cmd/internal/homedir"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/skills/module"
)

// TestMain lets runs in tests start confined child processes, which execute this binary.
func TestMain(m *testing.M) {
	sandbox.Child()
	preview.Child()
	module.Child()
	if err := errors.Join(cmdtest.Isolate(), cmdtest.Widen()); err != nil {
		log.Fatal(err)
	}
	os.Exit(m.Run())
}

// policy is the strictest policy under which pages must work: only scripts, styles and images of
// this site.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// configuration has a job of each kind shown on pages.
const configuration = `version: 1
home: ./home
timezone: Europe/Berlin
agents:
  - name: bookkeeper
    workdir: ./books
    self_scheduling: { mode: project }
  - name: idler
jobs:
  - name: books
    agent: bookkeeper
    schedule: "0 8 * * 1-5"
    playbook:
      - call: db_create_table
        with: { name: expenses, purpose: what was spent, columns: [{ name: id, type: INTEGER, primary_key: true }, { name: what, type: TEXT }, { name: euro, type: REAL }], if_not_exists: true }
      - call: db_insert
        with: { table: expenses, rows: [{ what: coffee, euro: 3.5 }, { what: paper, euro: 12 }, { what: ink, euro: 30.25 }] }
      - call: db_define_view
        with: { name: by_what, sql: "select what, sum(euro) as euro from expenses group by what", render_hint: bar, refresh: manual, description: what it went to }
      - call: file_write
        with: { path: report.md, content: "# Report\n\n3 rows\n" }
  - name: fails
    agent: bookkeeper
    notify: { on: [success, failure, waiting], channels: [desktop] }
    playbook:
      - call: file_write
        with: { path: before.md, content: "written before it failed\n" }
      - call: file_read
        with: { path: nowhere.txt }
  - { name: asks, agent: bookkeeper, prompt: Ask me. }
  - { name: rests, agent: idler, enabled: false, prompt: Rest. }
`

// asking holds the turns of a model that asks the owner a question and then writes a file.
var asking = []modeltest.Turn{
	{Text: "I have to know one thing.", Calls: []model.Call{{ID: "1", Name: "clarify", Args: []byte(`{"question":"Which account is 'GLS'?","options":["Girokonto","Tagesgeld"]}`)}}},
	{Text: "Now I can write it down.", Calls: []model.Call{{ID: "2", Name: "file_write", Args: []byte(`{"path":"account.md","content":"noted\n"}`)}}},
	{Calls: []model.Call{{ID: "3", Name: "complete", Args: []byte(`{"summary":"Noted the account that was named."}`)}}},
}

// withModel returns the configuration with a scripted model.
func withModel(t *testing.T, turns ...modeltest.Turn) string {
	return withModelOf(t, configuration, turns...)
}

// withModelOf adds a scripted model to a configuration.
func withModelOf(t *testing.T, config string, turns ...modeltest.Turn) string {
	return config + fmt.Sprintf("models: [{ name: test, provider: openai, base_url: \"%s/v1\", model: test, context_window: 32768 }]\n", modeltest.New(t, turns...).URL)
}

// home is a daemon in this process, with its pages on a loopback server.
type home struct {
	*daemon.Daemon
	t      *testing.T
	dir    string
	server *httptest.Server
	api    *api.Client
	http   *http.Client // does not follow redirects
}

// open starts a daemon with a configuration. seed, if not nil, first writes into its ledger.
func open(t *testing.T, config string, seed func(*ledger.Ledger)) *home {
	t.Helper()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": config})
	if seed != nil {
		seedIn(t, dir, time.Now, seed)
	}
	return openIn(t, dir)
}

// seedIn writes into the ledger of a home that is not in use, with the given clock.
func seedIn(t *testing.T, dir string, now func() time.Time, seed func(*ledger.Ledger)) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "home"), 0o700); err != nil {
		t.Fatal(err)
	}
	o := homedir.LedgerOptions(filepath.Join(dir, "home"))
	o.Now = now
	l, err := ledger.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	seed(l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func openIn(t *testing.T, dir string) *home {
	t.Helper()
	cfg, err := plan.Load(filepath.Join(dir, "rouse.yaml"), "")
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.Open(t.Context(), daemon.Options{Home: string(cfg.Home), Config: cfg, Serves: true, Adopt: true, Logger: logging.Quiet()})
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	ready, over := make(chan struct{}), make(chan error, 1)
	go func() { over <- d.Serve(ctx, func(context.Context) error { close(ready); return nil }) }()
	h := &home{Daemon: d, t: t, dir: dir, api: api.InProcess(d.Handler)}
	h.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		d.Pages.ServeHTTP(w, r)
	}))
	h.http = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	stop := sync.OnceFunc(func() {
		h.server.CloseClientConnections()
		h.server.Close()
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
		d.Close()
	})
	t.Cleanup(stop)

	select {
	case <-ready:
	case err := <-over:
		t.Fatalf("the daemon ended: %v", err)
	case <-time.After(cmdtest.Patience):
		t.Fatal("the daemon did not get ready")
	}
	return h
}

// fire starts a job and waits until its run has finished or waits for a person.
func (h *home) fire(job string) api.RunDetail {
	h.t.Helper()
	var run api.Run
	if err := h.api.Post(h.t.Context(), "/v1/runs", api.RunRequest{Job: job}, &run); err != nil {
		h.t.Fatal(err)
	}
	return h.settled(run.ID)
}

func (h *home) settled(id string) (d api.RunDetail) {
	h.t.Helper()
	cmdtest.Until(h.t, "the end of run "+id, func() bool {
		d = h.run(id)
		return d.State == domain.StateFinished || d.State == domain.StateWaiting && (d.WaitingFor == domain.WaitInput || d.WaitingFor == domain.WaitApproval)
	})
	return d
}

func (h *home) run(id string) (d api.RunDetail) {
	h.t.Helper()
	if err := h.api.Get(h.t.Context(), "/v1/runs/"+id, nil, &d); err != nil {
		h.t.Fatal(err)
	}
	return d
}

// get fetches a page, which must exist.
func (h *home) get(path string) string {
	h.t.Helper()
	status, body := h.fetch(path)
	if status != http.StatusOK {
		h.t.Fatalf("%s: %d\n%s", path, status, body)
	}
	return body
}

func (h *home) fetch(path string) (status int, body string) {
	h.t.Helper()
	answer, err := h.http.Get(h.server.URL + path)
	if err != nil {
		h.t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return answer.StatusCode, string(raw)
}

// post submits a form and returns the redirect target, or "" if the form was rejected.
func (h *home) post(path string, pairs ...string) (to string, status int, body string) {
	h.t.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	answer, err := h.http.PostForm(h.server.URL+path, form)
	if err != nil {
		h.t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return answer.Header.Get("Location"), answer.StatusCode, string(raw)
}

// done submits a form that must be accepted.
func (h *home) done(path string, pairs ...string) (to string) {
	h.t.Helper()
	to, status, body := h.post(path, pairs...)
	if status != http.StatusSeeOther {
		h.t.Fatalf("POST %s %v: %d\n%s", path, pairs, status, body)
	}
	return to
}

// expect checks that a page contains all the given texts.
func (h *home) expect(path string, texts ...string) string {
	h.t.Helper()
	body := h.get(path)
	for _, text := range texts {
		if !strings.Contains(body, text) {
			h.t.Errorf("%s does not show %q:\n%.3000s", path, text, body[strings.Index(body, "<main"):])
		}
	}
	return body
}

func object(t *testing.T, v any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// runs returns the runs of a job with an outcome, newest first.
func (h *home) runs(job string, outcome domain.Outcome) (out []api.Run) {
	h.t.Helper()
	if err := h.api.Get(h.t.Context(), "/v1/runs", url.Values{"job": {job}, "outcome": {string(outcome)}}, &out); err != nil {
		h.t.Fatal(err)
	}
	return out
}
