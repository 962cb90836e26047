package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agentdb/schema"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/plan"
	"rouse/internal/ledger"
)

const passphrase = "correct horse battery-staple Quixotic"

const withPassphrase = `version: 1
home: ./home
models: [{name: m, provider: openai, model: x, base_url: "http://127.0.0.1:1/v1", api_key: "\x63orrect horse battery-staple Quixotic"}]
agents: [{name: ann, workdir: ./work, self_scheduling: {mode: ambient}}]
jobs:
  - name: fails
    agent: ann
    webhook:
      path: /hooks/fails
      secret: >-
        correct horse
        battery-staple Quixotic
    playbook:
      - {call: file_read, with: {path: not-there}}
`

// Secrets in texts from the API or a webhook are redacted in the ledger, the log, notices,
// responses and the page of a job.
func TestSinksAreRedacted(t *testing.T) {
	t.Parallel()
	s := serveHere(t, map[string]string{"rouse.yaml": withPassphrase})
	clean := func(where string, content []byte) {
		t.Helper()
		for _, form := range []string{passphrase, url.QueryEscape(passphrase), "Quixotic"} {
			if i := bytes.Index(content, []byte(form)); i >= 0 {
				t.Errorf("%s contains %q: %q", where, form, content[max(0, i-80):min(len(content), i+80)])
			}
		}
	}

	run := s.Finished(s.Fire("fails"))
	var incidents []api.Incident
	if err := s.client.Get(t.Context(), "/v1/incidents", nil, &incidents); err != nil || len(incidents) == 0 {
		t.Fatalf("%+v, %v", incidents, err)
	}

	quoted := `"now ` + passphrase + ` is known"`
	for _, c := range []struct{ method, path, body, answer string }{
		{"POST", "/v1/pauses", `{"scope":"job","name":"fails","for":"1h","reason":` + quoted + `}`, "now [secret] is known"},
		{"GET", "/v1/pauses", "", "now [secret] is known"},
		{"POST", "/v1/pauses", `{"scope":"job","name":` + quoted + `}`, "[secret]"},
		{"POST", "/v1/pauses/end", `{"scope":"job","name":"fails"}`, ""},
		{"POST", "/v1/slots", `{"agent":"ann","in":"2h","instructions":` + quoted + `}`, "now [secret] is known"},
		{"POST", "/v1/incidents/" + incidents[0].ID + "/acknowledge", `{"note":` + quoted + `}`, "now [secret] is known"},
		{"POST", "/v1/runs", `{"job":` + quoted + `}`, "[secret]"},
		{"POST", "/v1/notices", `{"channel":` + quoted + `,"text":"x"}`, "[secret]"},
		{"GET", "/v1/why?job=" + url.QueryEscape(passphrase), "", "[secret]"},
		{"GET", "/v1/runs?job=" + url.QueryEscape(passphrase) + "&state=" + url.QueryEscape(passphrase), "", ""},
		{"POST", "/v1/agents/ann/query", `{"sql":"select '` + passphrase + `' as said"}`, "[secret]"},
		{"GET", "/v1/agents/" + url.PathEscape(passphrase) + "/schema", "", "[secret]"},
		{"GET", "/v1/doctor?offline=true", "", ""},
		{"GET", "/v1/jobs", "", ""},
		{"GET", "/v1/runs/" + run.ID, "", ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body))
		if c.body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		w := httptest.NewRecorder()
		s.Handler.ServeHTTP(w, r)
		clean(c.method+" "+c.path, w.Body.Bytes())
		if !strings.Contains(w.Body.String(), c.answer) || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s: %d %s, want %q", c.method, c.path, w.Code, w.Body, c.answer)
		}
	}

	if err := s.ledger.Outbox.Append(t.Context(), ledger.Notice{Channel: "desktop", Title: passphrase, Body: passphrase}); err != nil {
		t.Fatal(err)
	}
	s.Daemon.log.Error("said "+passphrase, "error", errors.New(passphrase), "names", []string{passphrase}, "server", http.Header{"X-Key": {passphrase}})
	clean("the log", []byte(s.log.String()))

	w := httptest.NewRecorder()
	s.Pages.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/agents/"+url.PathEscape(passphrase), nil))
	clean("a page", w.Body.Bytes())
	if !strings.Contains(w.Body.String(), "[secret]") {
		t.Errorf("%d %s", w.Code, w.Body)
	}

	d, err := s.Definition("fails")
	if err != nil || !strings.Contains(d.Text, "[secret]") || !strings.Contains(d.Text, "path: not-there") {
		t.Errorf("%+v, %v", d, err)
	}
	clean("the page of the job", []byte(d.Text))
	copies, err := s.backups.Configs(false)
	if err != nil || len(copies) != 1 || !copies[0].Redacted {
		t.Fatalf("%+v, %v", copies, err)
	}
	clean("the backup", copies[0].Content)

	s.stop()
	err = filepath.WalkDir(filepath.Join(s.dir, "home"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		clean(path, content)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// rouse explain --request shows a prompt without the secret in it.
func TestFirstRequestIsRedacted(t *testing.T) {
	t.Parallel()
	text := withPassphrase + "  - {name: asks, agent: ann, prompt: \"The word is correct horse battery\\x2dstaple Quixotic, is it not?\"}\n"
	cfg, err := plan.Load(filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": text}), "rouse.yaml"), "")
	if err != nil {
		t.Fatal(err)
	}
	first, err := plan.FirstRequestOf(t.Context(), cfg, logging.Quiet(), "asks", schema.Schema{})
	if err != nil || bytes.Contains(first.Body, []byte("Quixotic")) || !bytes.Contains(first.Body, []byte("The word is [secret], is it not?")) {
		t.Errorf("%s (%v)", first.Body, err)
	}
}

// The body of a delivery is stored without secrets and remains valid JSON.
func TestDeliveriesAreRedacted(t *testing.T) {
	t.Parallel()
	s := newSender(t)
	status, run, _ := s.send("other-secret-1", `{"token":"other-secret","n":12345678901234567890}`)
	if status != http.StatusAccepted {
		t.Fatal(status)
	}
	var d api.RunDetail
	if err := api.InProcess(s.Handler).Get(t.Context(), "/v1/runs/"+run, nil, &d); err != nil {
		t.Fatal(err)
	}
	if raw, err := json.Marshal(d); err != nil || strings.Contains(string(raw), "other-secret") {
		t.Errorf("%s (%v)", raw, err)
	}
	body, err := s.ledger.Runs.DeliveryBody(t.Context(), 1)
	if err != nil || body != `{"token":"[secret]","n":12345678901234567890}` {
		t.Errorf("%s (%v)", body, err)
	}
	if status, again, _ := s.send("other-secret-1", `{"token":"other-secret","n":12345678901234567890}`); status != http.StatusOK || again != run {
		t.Errorf("sent again: %d, run %s", status, again)
	}
}

// After a reload, new secrets are redacted in the log too.
func TestLogLearnsSecrets(t *testing.T) {
	t.Parallel()
	path := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": withPassphrase}), "rouse.yaml")
	cfg, err := plan.Load(path, "")
	if err != nil {
		t.Fatal(err)
	}
	for format, want := range map[string]string{"json": `"msg":"it is [secret]"`, "text": `msg="it is [secret]"`} {
		var out bytes.Buffer
		v := &logging.Var{}
		log := logging.New(&config.Config{Log: config.Log{Format: format}, Timezone: "UTC"}, v, &out)
		v.Set(cfg)
		v.Set(&config.Config{Timezone: "UTC"})
		log.Warn("it is "+passphrase, "error", errors.New(passphrase), "n", 1)
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "Quixotic") || !strings.Contains(out.String(), "error") {
			t.Errorf("%s: %s", format, out.String())
		}
	}
}
