package example

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/cmd/internal/webhook"
)

// firstDay is the folder of a new user: a configuration of at most 25 lines, a scripted model and a
// ntfy server.
type firstDay struct {
	dir, config string
	ntfy        *ntfyServer
	daemon      *endtoend.Program
}

// newFirstDay writes the files of a new user and starts the daemon. MODEL and NTFY in the files
// stand for the addresses of the servers.
func newFirstDay(t *testing.T, files map[string]string, turns ...modeltest.Turn) *firstDay {
	t.Helper()
	ntfy := newNtfyServer(t)
	address := "http://127.0.0.1:1" // a playbook needs no model
	if len(turns) > 0 {
		address = modeltest.New(t, turns...).URL
	}
	replace := strings.NewReplacer("MODEL", address+"/v1", "NTFY", strings.TrimPrefix(ntfy.URL, "http://"))

	written := map[string]string{}
	for name, text := range files {
		written[name] = replace.Replace(text)
	}
	if lines := strings.Count(written["rouse.yaml"], "\n"); lines > 25 {
		t.Errorf("the configuration has %d lines, and a new user should need at most 25", lines)
	}

	dir := cmdtest.Write(t, written)
	for name := range files {
		if filepath.Ext(name) != ".sh" {
			continue
		}
		if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d := &firstDay{dir: dir, config: filepath.Join(dir, "rouse.yaml"), ntfy: ntfy}
	check := endtoend.Rouse(t, "config", "check", "--config", d.config)
	if err := check.Run(); err != nil || check.Err.String() != "" {
		t.Fatalf("config check: %v\n%s%s", err, check.Out.String(), check.Err.String())
	}
	d.daemon = endtoend.Serve(t, d.config)
	return d
}

// write puts a complete file into the folder at once.
func (d *firstDay) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// read returns the content of a file in the folder, or "" if it does not exist.
func (d *firstDay) read(name string) string {
	text, err := os.ReadFile(filepath.Join(d.dir, name))
	if err != nil {
		return ""
	}
	return string(text)
}

// run runs a job and returns its record, with any outcome.
func (d *firstDay) run(t *testing.T, job string) api.Run {
	t.Helper()
	cmd := endtoend.Rouse(t, "run", job, "--wait", "--json", "--config", d.config)
	_ = cmd.Run() // it fails if the run does
	var run api.Run
	if err := json.Unmarshal(cmd.Out.Bytes(), &run); err != nil {
		t.Fatalf("%v: %s%s", err, cmd.Out.String(), cmd.Err.String())
	}
	return run
}

// last returns the newest run of a job.
func (d *firstDay) last(t *testing.T, job string) api.Run {
	t.Helper()
	var runs []api.Run
	endtoend.RunJSON(t, &runs, "runs", "--json", "--job", job, "--config", d.config)
	runs = slices.DeleteFunc(runs, func(r api.Run) bool { return r.ID == "" }) // planned wakes precede the runs
	if len(runs) == 0 {
		t.Fatalf("no run of %s is on record", job)
	}
	return runs[0]
}

// told waits for a notice that contains all words.
func (d *firstDay) told(t *testing.T, words ...string) {
	t.Helper()
	d.daemon.ExplainFailures(t)
	cmdtest.Until(t, "a notice with "+strings.Join(words, ", "), func() bool {
		for _, message := range d.ntfy.messages() {
			all := true
			for _, w := range words {
				all = all && strings.Contains(message, w)
			}
			if all {
				return true
			}
		}
		return false
	})
}

// ntfyServer is a fake ntfy server that keeps the messages.
type ntfyServer struct {
	*httptest.Server
	mu   sync.Mutex
	sent []string
}

func newNtfyServer(t *testing.T) *ntfyServer {
	s := &ntfyServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.sent = append(s.sent, r.URL.String()+" "+r.Header.Get("Title")+"\n"+string(body))
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"sPs71M8A2T","time":1767225600,"event":"message","topic":"alerts"}`)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *ntfyServer) messages() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.sent...)
}

// turn is one tool call of a scripted model.
func turn(tool, args string) modeltest.Turn {
	return modeltest.Turn{Calls: []model.Call{{ID: "c", Name: tool, Args: json.RawMessage(args)}}}
}

const firstDayModel = `version: 1
home: ./home
models: [{name: scripted, provider: openai, model: scripted, base_url: "MODEL", api_key: none}]
notifications: [{name: ntfy, kind: url, url: "ntfy://NTFY/alerts?scheme=http"}]
`

// TestFirstDay sets up five automations of a new user, each in an empty folder. They work, and each
// failure arrives over ntfy.
func TestFirstDay(t *testing.T) {
	endtoend.Unraced(t)
	t.Parallel()
	t.Run("digest", testFirstDigest)
	t.Run("sorter", testFirstSorter)
	t.Run("webhook", testFirstWebhook)
	t.Run("backup", testFirstBackup)
	t.Run("page watch", testFirstPageWatch)
}

// testFirstDigest writes a digest of the files since the last success. In the second run, the model
// forgets to write it.
func testFirstDigest(t *testing.T) {
	t.Parallel()
	d := newFirstDay(t, map[string]string{"papers/old.md": "An old paper about bees.", "rouse.yaml": firstDayModel + `agents:
  - name: reader
    workdir: ./desk
    grants: {read: [./papers]}
jobs:
  - name: digest
    agent: reader
    schedule: "0 7 * * 1-5"
    prompt: Write a digest of the files in ../papers since {{ .LastSuccess }} to digest.md.
    expect: [{file: ./desk/digest.md}]
    notify: {on: [failure], channels: [ntfy]}
`},
		turn("file_read", `{"path":"../papers"}`),
		turn("file_write", `{"path":"digest.md","content":"One new paper: bees.\n"}`),
		turn("complete", `{"summary":"One new paper, about bees."}`),
		turn("complete", `{"summary":"Two new papers; the digest is written."}`))
	if r := d.run(t, "digest"); r.Outcome != "success" || d.read("desk/digest.md") == "" {
		t.Fatalf("%+v", r)
	}
	if r := d.run(t, "digest"); r.Outcome != "error" {
		t.Fatalf("the digest was not written again, and the run is %+v", r)
	}
	d.told(t, "digest", "digest.md")
}

// testFirstSorter moves a dropped document without a shell and notes it in the database. For the
// second document, the model repeatedly tries a folder that is not granted.
func testFirstSorter(t *testing.T) {
	t.Parallel()
	refused := turn("file_move", `{"from":"../inbox/b.txt","to":"../private/b.txt"}`)
	d := newFirstDay(t, map[string]string{"inbox/.keep": "", "sorted/.keep": "", "rouse.yaml": firstDayModel + `agents:
  - name: clerk
    workdir: ./desk
    grants: {read: [./inbox], write: [./inbox, ./sorted]}
jobs:
  - name: sorter
    agent: clerk
    watch: {path: ./inbox, responsiveness: fast}
    prompt: Move {{ .File.Path }} to a folder of ../sorted that fits, and add a row to the table documents.
    notify: {on: [failure], channels: [ntfy]}
`},
		turn("file_read", `{"path":"../inbox/a.txt"}`),
		turn("file_move", `{"from":"../inbox/a.txt","to":"../sorted/invoices/a.txt"}`),
		turn("db_create_table", `{"name":"documents","purpose":"Where each document went","columns":[{"name":"file","type":"TEXT"}]}`),
		turn("db_insert", `{"table":"documents","row":{"file":"a.txt"}}`),
		turn("complete", `{"summary":"Moved a.txt to the invoices and noted it."}`),
		refused, refused, refused, refused, refused, refused)
	d.write(t, "inbox/a.txt", "Invoice 17: 100 EUR")
	cmdtest.Until(t, "the sorted file", func() bool { return d.read("sorted/invoices/a.txt") != "" })
	cmdtest.Until(t, "the end of the first run", func() bool { return d.last(t, "sorter").Outcome == "success" })

	d.write(t, "inbox/b.txt", "Invoice 18: 200 EUR")
	d.told(t, "sorter", "file_move")
	if r := d.last(t, "sorter"); r.Outcome != "error" || d.read("private/b.txt") != "" {
		t.Errorf("%+v", r)
	}
}

// testFirstWebhook files an issue reported by GitHub. The second time, the model does not respond
// in time.
func testFirstWebhook(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-github-1234"
	d := newFirstDay(t, map[string]string{"rouse.yaml": firstDayModel + `agents:
  - name: triage
    workdir: ./desk
jobs:
  - name: issues
    agent: triage
    webhook: {path: /hooks/issues, scheme: github, secret: ` + secret + `}
    when: [{that: 'Delivery.Event == "issues" and Payload.action == "opened"'}]
    prompt: "Add this issue to issues.md, with a priority: {{ .Payload.issue.title }}"
    bounds: {wall: 20s}
    notify: {on: [failure], channels: [ntfy]}
`},
		turn("file_write", `{"path":"issues.md","content":"1 high: The login page is blank\n"}`),
		turn("complete", `{"summary":"The issue about the login page has a high priority."}`),
		modeltest.Turn{Hang: true})

	deliver := func(id, title string) {
		t.Helper()
		var hooks []api.Webhook
		endtoend.RunJSON(t, &hooks, "webhooks", "--json", "--config", d.config)
		body := []byte(`{"action":"opened","issue":{"title":"` + title + `"}}`)
		h, err := webhook.GitHub.Sign(secret, webhook.Delivery{ID: id, Event: "issues"}, body, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, hooks[0].URL, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = h
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			t.Fatalf("status %s", resp.Status)
		}
	}

	deliver("1", "The login page is blank")
	cmdtest.Until(t, "the filed issue", func() bool { return d.last(t, "issues").Outcome == "success" })
	if !strings.Contains(d.read("desk/issues.md"), "login page") {
		t.Error("the issue was not filed")
	}
	deliver("2", "The logo is green")
	d.told(t, "issues", "timeout")
}

// testFirstBackup runs a backup script beside the configuration. In the second run, the script
// hangs.
func testFirstBackup(t *testing.T) {
	t.Parallel()
	d := newFirstDay(t, map[string]string{"data/notes.txt": "notes", "rouse.yaml": `version: 1
home: ./home
notifications: [{name: ntfy, kind: url, url: "ntfy://NTFY/alerts?scheme=http"}]
agents:
  - name: keeper
    workdir: ./backups
    grants:
      read: [./data]
      commands: [{argv: [./backup.sh]}]
jobs:
  - name: backup
    agent: keeper
    schedule: "30 2 * * *"
    playbook: [{call: shell_run, with: {command: ./backup.sh}}]
    bounds: {wall: 20s}
    expect: [{file: ./backups/notes.txt}]
    notify: {on: [failure], channels: [ntfy]}
`, "backup.sh": "#!/bin/sh\ncp ../data/notes.txt notes.txt\n"})
	if r := d.run(t, "backup"); r.Outcome != "success" {
		t.Fatalf("%+v", r)
	}

	d.write(t, "backup.sh", "#!/bin/sh\nsleep 600\n")
	if r := d.run(t, "backup"); r.Outcome != "timeout" {
		t.Fatalf("%+v", r)
	}
	d.told(t, "backup", "timeout")
}

// testFirstPageWatch checks a page and plans the next check, which fails.
func testFirstPageWatch(t *testing.T) {
	t.Parallel()
	var looks atomic.Int32
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		looks.Add(1)
		_, _ = io.WriteString(w, "The price is 100 EUR.")
	}))
	t.Cleanup(page.Close)
	host := strings.TrimPrefix(page.URL, "http://")

	d := newFirstDay(t, map[string]string{"rouse.yaml": firstDayModel + `agents:
  - name: watcher
    workdir: ./desk
    grants: {network: [{host: "` + host + `", methods: [GET], private: true}]}
    self_scheduling: {enabled: true, mode: reactive, min_interval: 0s}
jobs:
  - name: price
    agent: watcher
    schedule: "0 8 * * *"
    prompt: Look at ` + page.URL + ` and plan your next look.
    notify: {on: [failure], channels: [ntfy]}
`},
		turn("web_fetch", `{"url":"`+page.URL+`"}`),
		turn("schedule_next_run", `{"in_seconds":1,"instructions":"Look at the price again."}`),
		turn("complete", `{"summary":"Price unchanged at 100 EUR."}`),
		turn("web_fetch", `{"url":"`+page.URL+`"}`),
		modeltest.Turn{Fail: model.KindBadRequest})
	if r := d.run(t, "price"); r.Outcome != "success" || r.Summary != "Price unchanged at 100 EUR." {
		t.Fatalf("%+v", r)
	}
	d.told(t, "watcher")
	if n := looks.Load(); n != 2 {
		t.Errorf("the page was read %d times", n)
	}
}
