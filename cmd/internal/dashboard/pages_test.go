package dashboard_test

import (
	"bufio"
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/internal/domain"
	"rouse/internal/folderzip"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/workspace"
	"rouse/skills"
)

// Every page of an empty home explains the next step and renders correctly.
func TestEmptyPagesTeach(t *testing.T) {
	h := open(t, "version: 1\nhome: ./home\nagents: [{name: idler}]\n", nil)
	for path, text := range map[string]string{
		"/": "No jobs yet", "/inbox": "Nothing waits for you", "/runs": "Nothing has run yet", "/jobs": "There is no job", "/agents": "idler",
		"/agents/idler": "has no database yet", "/agents/idler/data": "Drop a file in", "/agents/idler/schema": "has no database yet", "/agents/idler/views": "has no database yet",
		"/agents/idler/activity": "It has not run yet", "/workspaces": "There is no workspace", "/health": "nothing was sent yet", "/incidents": "No incident is open", "/incidents?over=yes": "No incident is over",
	} {
		h.expect(path, text)
	}
	if _, err := os.Stat(filepath.Join(h.dir, "home", "agents", "idler", "db.sqlite")); err == nil {
		t.Error("looking at an agent made a database for it")
	}
}

// A missing page has an error page and the right status.
func TestPagesThatAreNotThere(t *testing.T) {
	h := open(t, configuration, nil)
	for _, path := range []string{"/nothing", "/runs/0", "/runs/999", "/runs/x", "/inbox/999", "/jobs/nobody", "/agents/nobody", "/agents/nobody/data", "/workspaces/9", "/assets/nothing.js", "/runs/999/undo", "/runs/1/text?of=x"} {
		if status, _ := h.fetch(path); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}
	for _, path := range []string{"/runs?before=x", "/runs?since=yesterday", "/agents/bookkeeper/activity?run=x"} {
		if status, _ := h.fetch(path); status != http.StatusBadRequest {
			t.Errorf("%s: %d", path, status)
		}
	}
}

// The page of a run shows its steps and changes. For a failed run, it shows the failing call.
func TestRunPage(t *testing.T) {
	h := open(t, configuration, nil)
	ran := h.fire("books")
	if ran.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%+v", ran)
	}
	h.expect("/runs/"+ran.ID, "db_insert", "report.md", "+# Report", "by_what", `data-count=`)

	// The file has changed since the run.
	if err := os.WriteFile(filepath.Join(h.dir, "books", "report.md"), []byte("written by somebody else\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if page := h.expect("/runs/"+ran.ID, "changed or moved since"); strings.Contains(page, "somebody else") {
		t.Error("what somebody else wrote is shown as the run's")
	}

	failed := h.fire("fails")
	page := h.expect("/runs/"+failed.ID, `id="failing" open><summary><code>file_read</code>`, "nowhere.txt", "+written before it failed")
	if strings.Count(page, `id="failing"`) != 1 {
		t.Error("the place of the failure is not one")
	}
	h.expect("/", "/runs/"+failed.ID+"#failing")
	h.expect("/runs/"+failed.ID+"/text?of=error", "nowhere.txt")

	to := h.done("/runs/"+failed.ID+"/retry", "back", "/runs/"+failed.ID)
	if to != "/runs/"+failed.ID {
		t.Errorf("a retry leads to %q", to)
	}
	if again := h.settled(failed.ID); again.Attempt != 2 {
		t.Errorf("attempt %d", again.Attempt)
	}
}

// A replay shows the differences with the job's current configuration and has no effects.
func TestReplayPage(t *testing.T) {
	h := open(t, configuration, nil)
	ran := h.fire("books")
	report := filepath.Join(h.dir, "books", "report.md")
	if err := os.Remove(report); err != nil {
		t.Fatal(err)
	}

	h.expect("/runs/"+ran.ID, `href="/runs/`+ran.ID+`/replay"`)
	h.expect("/runs/"+ran.ID+"/replay", "Nothing is different", `href="/runs/`+ran.ID+`"`)
	if _, err := os.Stat(report); !os.IsNotExist(err) {
		t.Errorf("the replay wrote a file: %v", err)
	}

	config := filepath.Join(h.dir, "rouse.yaml")
	was, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(was), "# Report", "# Another report", 1)
	if changed == string(was) {
		t.Fatal("nothing of the job is changed")
	}
	if err := os.WriteFile(config, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	// The daemon may just have reloaded the configuration by itself.
	if _, err := h.Reloader.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.expect("/runs/"+ran.ID+"/replay", "difference", "# Another report", `data-row="1"`)
	if runs := h.runs("books", domain.OutcomeSuccess); len(runs) != 1 {
		t.Errorf("%d runs", len(runs))
	}
	if status, _ := h.fetch("/runs/999/replay"); status != http.StatusNotFound {
		t.Errorf("a run that is not there: %d", status)
	}
}

// A backfill first shows a preview and starts runs only when confirmed.
func TestBackfillPage(t *testing.T) {
	h := open(t, configuration, nil)
	h.fire("books") // provides a cost history
	h.expect("/jobs/books", "<summary>Backfill</summary>", `name="from"`)
	if page := h.expect("/jobs/fails", "Run now"); strings.Contains(page, `name="from"`) {
		t.Error("a job that no clock starts has instants to backfill")
	}

	// There is no instant on the weekend and one on each day of the following week.
	h.expect("/jobs/books?from=2026-03-07&to=2026-03-08", "Nothing would run")
	h.expect("/jobs/books?from=2026-03-07&to=2026-03-13", "5 runs would be queued", "there is no record of it", `name="from" value="2026-03-07"`)
	if runs := h.runs("books", domain.OutcomeSuccess); len(runs) != 1 {
		t.Errorf("%d runs after looking at it", len(runs))
	}
	if status, page := h.fetch("/jobs/books?from=soon"); status != http.StatusBadRequest || !strings.Contains(page, "is not a time") {
		t.Errorf("a span that is none: %d", status)
	}

	to := h.done("/jobs/books/backfill", "from", "2026-03-07", "to", "2026-03-13")
	cmdtest.Until(t, "five runs", func() bool { return len(h.runs("books", domain.OutcomeSuccess)) == 6 })
	h.expect(to, "backfill", "success")
	h.expect("/jobs/books?from=2026-03-07&to=2026-03-13", "Nothing would run", "it ran: run")
	h.expect("/jobs/books", "2026-03-09 08:00")
}

// An undo first shows a preview and undoes the run only when confirmed.
func TestUndo(t *testing.T) {
	h := open(t, configuration, nil)
	ran := h.fire("books")
	report := filepath.Join(h.dir, "books", "report.md")
	h.expect("/runs/"+ran.ID+"/undo", "report.md", "is removed", "expenses")
	if _, err := os.Stat(report); err != nil {
		t.Fatalf("looking at an undo undid something: %v", err)
	}

	if to := h.done("/runs/" + ran.ID + "/undo"); to != "/runs/"+ran.ID {
		t.Errorf("it leads to %q", to)
	}
	if _, err := os.Stat(report); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
}

// Answering a question with its form continues the run. The closed item and recent runs remain
// visible (OSL-31).
func TestAnswer(t *testing.T) {
	h := open(t, withModel(t, asking...), nil)
	run := h.fire("asks")
	if len(run.Inbox) != 1 {
		t.Fatalf("%+v", run)
	}
	item := run.Inbox[0].ID
	for _, path := range []string{"/", "/inbox", "/inbox/" + item, "/runs/" + run.ID} {
		h.expect(path, "Which account is", "<bdi>Girokonto</bdi></button>")
	}

	if to := h.done("/inbox/"+item, "option", "2", "back", "/"); to != "/" {
		t.Errorf("an answer leads to %q", to)
	}
	if run = h.settled(run.ID); run.Outcome != domain.OutcomeSuccess {
		t.Errorf("%+v", run.Run)
	}
	h.expect("/inbox/"+item, "Tagesgeld")
	h.expect("/inbox", "Done lately", `href="/runs/`+run.ID+`"`, `href="/inbox/closed"`) // OSL-31
	h.expect("/inbox/closed", "answered", "Tagesgeld", `href="/inbox/`+item+`"`, `href="/runs/`+run.ID+`"`)
	h.expect("/inbox/closed?before="+item, "Nothing that waited for you has been closed")

	// The item is closed: another answer is rejected with a reason.
	if _, status, body := h.post("/inbox/"+item, "option", "1"); status != http.StatusConflict || !strings.Contains(body, "not open any more") {
		t.Errorf("%d %s", status, body)
	}
}

// A form redirects only to pages of this site.
func TestFormsLeadHome(t *testing.T) {
	h := open(t, configuration, nil)
	for _, elsewhere := range []string{"https://elsewhere.example/x", "//elsewhere.example/x", `/\elsewhere.example`, "javascript:alert(1)"} {
		to := h.done("/pause", "for", "1h", "back", elsewhere)
		if u, err := url.Parse(to); err != nil || u.Host != "" || !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.HasPrefix(to, `/\`) {
			t.Errorf("%s leads to %q", elsewhere, to)
		}
	}
}

// seedItem records a run that waits for each kind of item. Its job no longer exists, so the
// dispatcher does not handle the answers.
func seedItem(t *testing.T, l *ledger.Ledger, q inbox.Question) int64 {
	t.Helper()
	out, err := l.Enqueue(t.Context(), ledger.Request{Job: "asks", Agent: "bookkeeper", Trigger: domain.TriggerManual})
	if err != nil {
		t.Fatal(err)
	}
	_, a, err := l.StartAttempt(t.Context(), out[0].Run)
	if err == nil {
		err = l.Finish(t.Context(), a, ledger.Result{Wait: &q})
	}
	if err != nil {
		t.Fatal(err)
	}
	return out[0].Run
}

// OSL-31. A form with several fields shows an error per field, keeps the entered values, and
// produces the requested JSON.
func TestSchemaForm(t *testing.T) {
	h := open(t, configuration, func(l *ledger.Ledger) {
		seedItem(t, l, inbox.Question{Call: "c1", Title: "The booking", Message: "Three values", Expires: time.Hour, InputSchema: object(t, map[string]any{
			"type": "object", "required": []string{"amount", "kind"},
			"properties": map[string]any{"amount": map[string]any{"type": "number", "minimum": 1}, "kind": map[string]any{"type": "string", "enum": []string{"in", "out"}}, "paid": map[string]any{"type": "boolean"}},
		})})
	})
	h.expect("/inbox", `name="field.amount"`, `name="field.kind"`, `name="field.paid"`)

	_, status, body := h.post("/inbox/1", "field.amount", "abc", "field.kind", "out")
	if status != http.StatusUnprocessableEntity || !strings.Contains(body, "it has to be a number") || !strings.Contains(body, `value="abc"`) || !strings.Contains(body, `<option value="out" selected`) {
		t.Errorf("%d\n%s", status, body)
	}
	h.done("/inbox/1", "field.amount", "12.5", "field.kind", "out", "field.paid", "yes")
	if item := h.run("1").Inbox[0]; item.Answer != `{"amount":12.5,"kind":"out","paid":true}` {
		t.Errorf("%s", item.Answer)
	}
}

// OSL-31, UNI-09. An approval shows the exact action and its diff. It can be given once, always or
// not at all.
func TestApproval(t *testing.T) {
	h := open(t, configuration, func(l *ledger.Ledger) {
		for _, hash := range []string{"h1", "h2", "h3", "h3"} {
			seedItem(t, l, inbox.Question{Kind: inbox.KindApproval, Call: "c1", Title: "books wants to write", Options: []string{inbox.ApprovalOnce, inbox.ApprovalAlways, inbox.ApprovalDeny}, Expires: inbox.ApprovalExpires,
				Action: inbox.Action{Tool: "file_write", Hash: hash, Description: "file_write report.md\n-old line\n+new \u202eline"}})
		}
	})
	page := h.expect("/inbox", "Approve once", "Always approve this", "Deny", `<span class="add">+new`, `<span class="del">-old line`)
	if strings.Contains(page, "\u202e") {
		t.Error("a sign that turns the writing around is hidden in an action")
	}

	h.done("/inbox/1", "option", "1")
	h.done("/inbox/2", "option", "3", "reason", "not this one")
	h.expect("/inbox/2", "not this one")

	h.expect("/inbox", "release all 2 runs that ask this")
	h.done("/inbox/3", "option", "1", "all", "on")
	if page := h.expect("/inbox", "Inbox"); strings.Contains(page, "Approve once") {
		t.Error("a run that asked the same still waits")
	}
}

// OSL-38. The page of a workspace shows its contents and the actions that its state allows.
func TestWorkspacePage(t *testing.T) {
	h := open(t, configuration, func(l *ledger.Ledger) {
		if _, err := l.Workspaces.Create(t.Context(), workspace.Author{}, workspace.Workspace{Agent: "bookkeeper", Skill: "tax", Name: "2026", Phase: "gathering", State: object(t, map[string]any{"asked": 3})}); err != nil {
			t.Fatal(err)
		}
		out, err := l.Enqueue(t.Context(), ledger.Request{Job: "books", Agent: "bookkeeper", Trigger: domain.TriggerManual})
		if err != nil {
			t.Fatal(err)
		}
		_, a, err := l.StartAttempt(t.Context(), out[0].Run)
		if err == nil {
			_, err = l.Workspaces.Enter(t.Context(), a, 1)
		}
		if err == nil {
			_, err = l.Workspaces.AddArtifact(t.Context(), workspace.Author{Attempt: a, Key: "k"}, artifact.Artifact{Workspace: 1, Title: "The draft", Type: "text"}, []byte("draft"))
		}
		if err == nil {
			err = l.Finish(t.Context(), a, ledger.Result{Outcome: domain.OutcomeSuccess})
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	h.expect("/workspaces?before=1", "There is no workspace") // the page after the last one
	h.expect("/workspaces", "2026", "gathering")
	h.expect("/workspaces/1", "&#34;asked&#34;: 3", "Pause", "The draft", "Approve", "/runs/1")
	h.done("/workspaces/1/artifacts/1/approve")
	h.expect("/workspaces/1", "approved")

	h.done("/workspaces/1/pause")
	if page := h.expect("/workspaces/1", "paused", "Resume"); strings.Contains(page, `action="/workspaces/1/pause"`) {
		t.Error("what is paused can be paused again")
	}
	h.done("/workspaces/1/archive")
	h.expect("/workspaces?status=archived", "2026")
	if strings.Contains(h.get("/workspaces?status=active"), "2026") {
		t.Error("what is archived is active")
	}
	if _, status, _ := h.post("/workspaces/1/burn"); status != http.StatusBadRequest {
		t.Errorf("an action that is none: %d", status)
	}
}

// A job can be paused, resumed, and started with inputs.
func TestJobPage(t *testing.T) {
	h := open(t, configuration, nil)
	h.fire("books")
	h.expect("/jobs/books", "weekday", "rouse.yaml:10", "db_insert", "/runs/1", "Europe/Berlin", "08:00 CET")
	h.expect("/jobs/books?simulate=week", "A week from now")

	h.done("/jobs/books/pause", "for", "1h", "reason", "holidays")
	h.expect("/jobs/books", "holidays", "Resume")
	h.expect("/jobs?armed=yes", "fails")
	h.done("/jobs/books/resume")
	if strings.Contains(h.get("/jobs/books"), "holidays") {
		t.Error("it is still paused")
	}
	if to := h.done("/jobs/books/run"); to != "/runs/2" {
		t.Errorf("a start leads to %q", to)
	}
	if _, status, _ := h.post("/jobs/books/run", "input", "no value"); status != http.StatusBadRequest {
		t.Errorf("an input without a value: %d", status)
	}
}

// Rows can be searched, changed, deleted, restored, exported and imported. The owner's changes are
// in the changelog.
func TestData(t *testing.T) {
	h := open(t, configuration, nil)
	h.fire("books")
	table := "table=expenses"
	row := func(id string) string {
		return "/agents/bookkeeper/row?" + table + "&key=" + url.QueryEscape(`{"id":`+id+`}`)
	}

	if page := h.get("/agents/bookkeeper/data?" + table + "&q=ink"); strings.Count(page, "<tr data-row=") != 1 || !strings.Contains(page, "30.25") {
		t.Errorf("the filter: %s", page)
	}
	h.expect(row("1"), "coffee", "3.5")

	key := []string{"table", "expenses", "key", `{"id":1}`}
	h.done("/agents/bookkeeper/cell", append(key, "column", "euro", "value", "4.75")...)
	h.expect(row("1"), "4.75")
	if _, status, body := h.post("/agents/bookkeeper/cell", append(key, "column", "euro", "value", "much")...); status != http.StatusUnprocessableEntity || !strings.Contains(body, "holds numbers") {
		t.Errorf("a word for a number: %d %s", status, body)
	}
	h.done("/agents/bookkeeper/cell", append(key, "column", "what", "null", "yes", "value", "x")...)

	h.done("/agents/bookkeeper/delete", key...)
	if n := strings.Count(h.get("/agents/bookkeeper/data?"+table), "<tr data-row="); n != 2 {
		t.Errorf("%d rows are left", n)
	}
	if n := strings.Count(h.get("/agents/bookkeeper/data?"+table+"&show=deleted"), "<tr data-row="); n != 1 {
		t.Errorf("%d rows are deleted", n)
	}
	h.expect(row("1"), "Restore")
	h.done("/agents/bookkeeper/restore", key...)
	if n := strings.Count(h.get("/agents/bookkeeper/data?"+table+"&show=all"), "<tr data-row="); n != 3 {
		t.Errorf("%d rows", n)
	}
	h.expect("/agents/bookkeeper/activity?table=expenses", "4.75")
	var changes []api.Change
	if err := h.api.Get(t.Context(), "/v1/agents/bookkeeper/changes", url.Values{"table": {"expenses"}}, &changes); err != nil || len(changes) < 4 {
		t.Fatalf("%+v, %v", changes, err)
	}
	for _, c := range changes[:4] {
		if c.Actor != "user" || c.Run != "0" {
			t.Errorf("%+v", c)
		}
	}

	if csv := h.get("/agents/bookkeeper/export?" + table); !strings.HasPrefix(csv, "id,what,euro\n1,,4.75\n") {
		t.Errorf("%q", csv)
	}
	h.done("/agents/bookkeeper/cell", append(key, "column", "what", "value", "=HYPERLINK(1)")...)
	h.expect("/agents/bookkeeper/export?"+table, "1 texts begin like a formula", "format=xlsx", "format=csv")
	if csv := h.get("/agents/bookkeeper/export?format=csv&" + table); !strings.Contains(csv, "1,=HYPERLINK(1),4.75\n") {
		t.Errorf("%q", csv)
	}
	if xlsx := h.get("/agents/bookkeeper/export?format=xlsx&" + table); !strings.HasPrefix(xlsx, "PK") {
		t.Errorf("%q", xlsx)
	}
	for _, path := range []string{"/agents/bookkeeper/data?table=nothing", "/agents/bookkeeper/export?table=nothing", row("99")} {
		if status, _ := h.fetch(path); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}
}

// A view is drawn with its chart type and appears on the agent's first page once it is pinned.
func TestViews(t *testing.T) {
	h := open(t, configuration, nil)
	h.fire("books")
	h.expect("/agents/bookkeeper/views?view=by_what", "<svg", "<bdi>paper</bdi>: 12", "select what")
	h.expect("/agents/bookkeeper", "Nothing is pinned")
	h.done("/agents/bookkeeper/pin", "view", "by_what", "pinned", "yes")
	h.expect("/agents/bookkeeper", "by_what", `class="bar"`)
	h.done("/agents/bookkeeper/pin", "view", "by_what")
	h.expect("/agents/bookkeeper", "Nothing is pinned")
}

// A failing job has an incident on its own page and on the incidents page until it is acknowledged.
func TestIncidentsPage(t *testing.T) {
	h := open(t, configuration, nil)
	h.fire("fails")
	h.fire("fails")
	h.expect("/incidents", `href="/jobs/fails"`, "file_read not_found", `href="/runs/2"`, "Acknowledge incident 1")
	h.expect("/", `href="/incidents"`)
	h.expect("/jobs/fails", "incident 1: file_read not_found, 2 failures", "Acknowledge incident 1")
	h.expect("/jobs", "incident 1")

	h.done("/incidents/1/acknowledge", "note", "<b>known</b>", "back", "/incidents")
	if page := h.expect("/incidents", "acknowledged", "&lt;b&gt;known&lt;/b&gt;"); strings.Contains(page, "Acknowledge incident 1") {
		t.Error("it can be acknowledged again")
	}
	for path, want := range map[string]int{"/incidents/9/acknowledge": http.StatusNotFound, "/incidents/x/acknowledge": http.StatusNotFound} {
		if _, status, page := h.post(path); status != want {
			t.Errorf("%s: %d\n%s", path, status, page)
		}
	}
}

// The health page shows the configuration's problems with their positions, and the last notice of
// each channel.
func TestHealthPage(t *testing.T) {
	h := open(t, configuration, nil)
	h.fire("fails")
	if page := h.expect("/health", "configuration", "confinement", "fails: error", `href="/runs/1"`); strings.Contains(page, "nothing was sent yet") {
		t.Error("what was sent to the desktop last is not known")
	}

	if err := os.WriteFile(filepath.Join(h.dir, "rouse.yaml"), []byte(strings.Replace(configuration, `"0 8 * * 1-5"`, `"0 88 * * 1-5"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	h.done("/health/reload")
	h.expect("/health", "rouse.yaml:12:")
	// The previous configuration remains in use.
	h.expect("/jobs/books", "every weekday at 08:00")
}

// An open page gets a signal at once, and another one after each change.
func TestLive(t *testing.T) {
	h := open(t, configuration, nil)
	answer, err := http.Get(h.server.URL + "/live")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v", answer.Header)
	}

	signals := bufio.NewScanner(answer.Body)
	next := func() {
		t.Helper()
		for signals.Scan() {
			if signals.Text() == "data: changed" {
				return
			}
		}
		t.Fatalf("the stream ended: %v", signals.Err())
	}
	next()
	h.fire("fails")
	next()
}

// A list continues on the next page and contains each run exactly once.
func TestOlderRuns(t *testing.T) {
	const many = 120
	h := open(t, configuration, func(l *ledger.Ledger) {
		for range many {
			finished(t, l, "books", domain.OutcomeSuccess)
		}
	})

	older := regexp.MustCompile(`<a href="(/runs\?before=[0-9]+)">Older`)
	row := regexp.MustCompile(`<tr data-row="([0-9]+)"`)
	seen := map[string]bool{}
	for at := "/runs"; at != ""; {
		page := h.get(at)
		for _, m := range row.FindAllStringSubmatch(page, -1) {
			if seen[m[1]] {
				t.Errorf("run %s is on two pages", m[1])
			}
			seen[m[1]] = true
		}
		at = ""
		if m := older.FindStringSubmatch(page); m != nil {
			at = m[1]
		}
	}
	if len(seen) != many {
		t.Errorf("%d runs were listed", len(seen))
	}
}

// Today shows a cost forecast. A job without earlier runs has no forecast.
func TestForecastOnToday(t *testing.T) {
	h := open(t, "version: 1\nhome: ./home\nagents: [{name: ann}]\njobs: [{name: late, agent: ann, schedule: \"59 59 23 * * *\", playbook: [{call: file_write, with: {path: a.txt, content: hi}}]}]\n", nil)
	h.expect("/", "no forecast for 1 run to come", "the median of the last 20 runs")

	// After a run there is a forecast, although a playbook costs nothing.
	if ran := h.fire("late"); ran.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%+v", ran)
	}
	if _, page := h.fetch("/"); strings.Contains(page, "no forecast") {
		t.Error("there is no forecast for a job that has run")
	}
}

// The form that starts a job accepts inputs. Invalid inputs are reported, with a way back to the
// form.
func TestRunWithInputs(t *testing.T) {
	h := open(t, withEverything, nil)
	to := h.done("/jobs/takes/run", "input", "who = Ada \r\n\r\nwhere=here=there\r\n", "back", "/jobs/takes")
	if to != "/runs/1" {
		t.Errorf("a start leads to %q", to)
	}
	h.wrote("takes", "given.txt", "Ada")
	h.expect(to, "success", "given.txt", "Ada")
	if detail := string(h.run("1").TriggerDetail); !strings.Contains(detail, `"where":"here=there"`) {
		t.Errorf("%s", detail)
	}

	// A missing input fails the run, and the error names it.
	failed := h.fire("takes")
	h.expect("/runs/"+failed.ID, "error", "who")

	for input, says := range map[string]string{"who": "an input is NAME=VALUE", "who=Ada\n=Bob": "an input is NAME=VALUE"} {
		to, status, body := h.post("/jobs/takes/run", "input", input, "back", "/jobs/takes")
		if status != http.StatusBadRequest || to != "" || !strings.Contains(body, says) || !strings.Contains(body, `<a href="/jobs/takes">Back</a>`) {
			t.Errorf("%q: %d %s", input, status, body)
		}
	}
	if _, status, body := h.post("/jobs/rests/run", "back", "/jobs/rests"); status != http.StatusConflict || !strings.Contains(body, "the job rests is disabled") {
		t.Errorf("a job that is disabled: %d %s", status, body)
	}
	if len(h.runs("", "")) != 2 {
		t.Error("what was refused has run")
	}
}

// Simulating a week of a job shows each instant and its decision, without starting runs.
func TestSimulateAWeek(t *testing.T) {
	// Use a time zone in which all weeks have the same length.
	h := open(t, strings.Replace(configuration, "Europe/Berlin", "UTC", 1), nil)
	part := func(path string) string {
		page := h.get(path)
		_, page, found := strings.Cut(page, `id="simulated"`)
		if !found {
			t.Fatalf("%s simulates nothing", path)
		}
		page, _, _ = strings.Cut(page, "As it is configured")
		return page
	}

	week := part("/jobs/books?simulate=week")
	if n := strings.Count(week, "<tr>"); n != 5 || strings.Count(week, " 08:00 UTC") != 5 || strings.Count(week, `aria-label="runs"`) != 5 {
		t.Errorf("%d instants of five weekdays: %s", n, week)
	}
	if alone := part("/jobs/fails?simulate=week"); !strings.Contains(alone, "No clock would start it in this week.") || strings.Contains(alone, "<table") {
		t.Errorf("a job without a clock: %s", alone)
	}
	if ran := h.runs("", ""); len(ran) != 0 {
		t.Errorf("a simulation ran %+v", ran)
	}
}

// A job that runs every second has 604,800 instants a week. The page shows the first ones and
// responds in time, and so do other pages.
func TestSimulationIsBounded(t *testing.T) {
	const job = "\njobs:\n  - { name: ticks, agent: bookkeeper, schedule: \"* * * * * *\", playbook: [{ call: file_search, with: { pattern: x } }] }\n"
	h := open(t, strings.Replace(configuration, "\njobs:\n", job, 1), nil)
	for path, most := range map[string]int{"/jobs/ticks?simulate=week": 1000, "/jobs/books?simulate=week": 5} {
		_, page, _ := strings.Cut(h.get(path), `id="simulated"`)
		page, _, _ = strings.Cut(page, "As it is configured")
		if n := strings.Count(page, "<tr>"); n > most || most == 1000 && n < 1000 || !strings.Contains(page, "because of very frequent schedules") {
			t.Errorf("%s: %d instants, %.500s", path, n, page)
		}
	}
}

// drop uploads a file with the form of an agent's data page.
func (h *home) drop(name, content string, pairs ...string) (to string, status int, page string) {
	h.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for i := 0; i < len(pairs); i += 2 {
		if err := form.WriteField(pairs[i], pairs[i+1]); err != nil {
			h.t.Fatal(err)
		}
	}
	if name != "" {
		file, err := form.CreateFormFile("file", name)
		if err == nil {
			_, err = io.WriteString(file, content)
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
	if err := form.Close(); err != nil {
		h.t.Fatal(err)
	}

	answer, err := h.http.Post(h.server.URL+"/agents/bookkeeper/import", form.FormDataContentType(), &body)
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

// An uploaded file becomes rows, and the page shows their number. Skipped rows are listed with a
// reason. A file that is not a table is rejected with its detected type.
func TestImport(t *testing.T) {
	const back = "/agents/bookkeeper/data?table=expenses"
	h := open(t, configuration, nil)
	into := []string{"table", "expenses", "back", back}

	rows := func(want int) {
		t.Helper()
		if n := strings.Count(h.get(back), "<tr data-row="); n != want {
			t.Errorf("%d rows, not %d", n, want)
		}
	}

	// The agent has no database yet.
	to, status, page := h.drop("statement.csv", "what,euro\ncoffee,3.5\nink,12\n", into...)
	if status != http.StatusSeeOther {
		t.Fatalf("%d %s", status, page)
	}
	h.expect(to, "2 rows imported", "coffee", "3.5", "ink")
	to, _, _ = h.drop("statement.csv", "what,euro\nink,13\npaper,4\n", append(into, "key", "what")...)
	h.expect(to, "2 rows imported", "<bdi>13</bdi>", "paper")
	rows(3)

	_, status, page = h.drop("statement.csv", "what,euro\ntea,5\nmilk,much\nsoap,6\n", into...)
	if status != http.StatusOK || !strings.Contains(page, "2 rows imported into") || !strings.Contains(page, "1 row left out") || !strings.Contains(page, "line 3: column euro: &#34;much&#34; is not a number") {
		t.Errorf("a row that does not fit: %d %s", status, page)
	}
	rows(5)

	for what, c := range map[string]struct {
		file, content, says string
		status              int
	}{
		"most rows do not fit": {"wrong.csv", "what,euro\na,a\nb,b\nc,7\n", "wrong.csv: more than half of its 3 rows do not fit, so nothing was imported", http.StatusUnprocessableEntity},
		"no table":             {"picture.csv", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00", "picture.csv, line 3, column 1: there is a NUL character", http.StatusUnprocessableEntity},
		"an empty file":        {"empty.csv", "", "empty.csv is empty", http.StatusUnprocessableEntity},
		"no file":              {"", "", "choose a file of at most 64 MiB", http.StatusBadRequest},
	} {
		_, status, page := h.drop(c.file, c.content, into...)
		if status != c.status || !strings.Contains(page, c.says) || !strings.Contains(page, `<a href="`+back+`">Back</a>`) {
			t.Errorf("%s: %d\n%s", what, status, page[strings.Index(page, "<main"):])
		}
	}
	rows(5)
}

// Skills are listed with their tags, can be searched, and are shown with their docs and
// permissions. Their texts are escaped (OSL-34).
func TestSkillPages(t *testing.T) {
	h := open(t, configuration+"skills: {roots: [{path: ./team}]}\n", nil)
	h.expect("/skills", "There is no skill", "rouse new skill")

	write := func(path, content string) {
		t.Helper()
		path = filepath.Join(h.dir, "team", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("words/SKILL.md", "---\nname: words\ndescription: Counts <b>words</b>.\nallowed-tools: Bash(wc:*)\n---\nCount them, <script>all</script>.\n")
	write("broken/SKILL.md", "---\nname: broken\n---\n")
	write("index.json", `[{"name": "sums", "description": "x", "version": "0.1.0", "author": "a", "folderPath": "sums", "tags": ["money"]}]`)
	if _, err := (skills.Scaffold{Name: "sums", Mode: skills.ModeFlow, Author: "a"}).Write(filepath.Join(h.dir, "team")); err != nil {
		t.Fatal(err)
	}
	write("sums/docs.md", "# Sums\n\n"+strings.Repeat("It adds up. ", 5000)+"The end.\n")
	if _, err := h.Reloader.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}

	h.expect("/skills", `href="/skills/words"`, `href="/skills/sums"`, `href="/skills?q=money"`, "Counts &lt;b&gt;words", "broken/SKILL.md")
	if page := h.expect("/skills?q=money", `href="/skills/sums"`); strings.Contains(page, `href="/skills/words"`) {
		t.Error("a search for a tag finds what does not have it")
	}
	h.expect("/skills?q=xyzzy", "No skill has these words", `href="/skills"`)

	h.expect("/skills/words", "Count them, &lt;script&gt;all", "Bash(wc:*)", "your own", "instructions")
	h.expect("/skills/sums", "# Sums", "It adds up.", "money", "module", `href="/skills/sums/text?of=docs"`)
	if all := h.get("/skills/sums/text?of=docs"); !strings.HasSuffix(all, "The end.") {
		t.Errorf("all of the docs end with %q", all[max(0, len(all)-20):])
	}
	if status, page := h.fetch("/skills/wrods"); status != http.StatusNotFound || !strings.Contains(page, "did you mean") {
		t.Errorf("a skill that is not there: %d", status)
	}
}

// OSA-19: a shared directory can be downloaded as an archive and has a link to its file tree. Other
// files have no tree.
func TestSharedFolder(t *testing.T) {
	w := folderzip.NewWriter()
	if err := w.Add("img/<b>.svg", []byte("<svg/>")); err != nil {
		t.Fatal(err)
	}
	archive, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}

	h := open(t, configuration, func(l *ledger.Ledger) {
		out, err := l.Enqueue(t.Context(), ledger.Request{Job: "books", Agent: "bookkeeper", Trigger: domain.TriggerManual})
		if err != nil {
			t.Fatal(err)
		}
		_, a, err := l.StartAttempt(t.Context(), out[0].Run)
		for name, content := range map[string][]byte{"site.zip": archive, "broken.zip": []byte("no archive"), "note.txt": []byte("x")} {
			if err == nil {
				_, err = l.Artifacts.Add(t.Context(), a, artifact.Artifact{Agent: "bookkeeper", Key: name, Name: name}, content)
			}
		}
		if err == nil {
			err = l.Finish(t.Context(), a, ledger.Result{Outcome: domain.OutcomeSuccess})
		}
		if err != nil {
			t.Fatal(err)
		}
	})

	ids := map[string]string{}
	for _, a := range h.run("1").ArtifactsDetail {
		ids[a.Name] = "/runs/1/artifacts/" + a.ID + "/files"
	}
	if page := h.expect("/runs/1", ids["site.zip"], "its files"); strings.Contains(page, ids["note.txt"]) {
		t.Error("a text is shown as a folder")
	}
	if tree := h.get(ids["site.zip"]); !strings.Contains(tree, "img/\n  <b>.svg  6 B\n") {
		t.Errorf("the tree is %q", tree)
	}
	for _, name := range []string{"broken.zip", "note.txt"} {
		if status, page := h.fetch(ids[name]); status != http.StatusNotFound || !strings.Contains(page, "is no folder that was shared") {
			t.Errorf("%s: %d %s", name, status, page)
		}
	}
}

// The branch of a run is shown with its changes, appears in the inbox, and can be merged with one
// click.
func TestCheckout(t *testing.T) {
	app := t.TempDir()
	git := func(args ...string) string {
		c := exec.Command("git", args...)
		c.Dir, c.Env = app, append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Skip("git: ", string(out), err)
		}
		return strings.TrimSpace(string(out))
	}
	if err := os.WriteFile(filepath.Join(app, "sum.sh"), []byte("echo <b>2</b>\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git("init", "-q", "-b", "main")
	git("config", "user.name", "Owner")
	git("config", "user.email", "owner@example.com")
	git("add", ".")
	git("commit", "-q", "-m", "first")

	h := open(t, `version: 1
home: ./home
agents: [{name: coder, database: {enabled: false}, checkout: {repo: `+app+`}, grants: {commands: [{argv: [git, "*"]}]}}]
jobs:
  - name: mend
    agent: coder
    playbook:
      - {call: file_read, with: {path: sum.sh}}
      - {call: file_write, with: {path: sum.sh, content: "echo 5\n"}}
      - {call: shell_run, with: {command: "git commit -q -a -m 'It is <i>five</i>'"}}
`, nil)
	ran := h.fire("mend")
	if ran.Outcome != "success" {
		t.Skip("programs cannot be confined here: ", ran.Error)
	}
	h.expect("/runs/"+ran.ID, "rouse/mend-"+ran.ID, "It is &lt;i&gt;five&lt;/i&gt;", "+echo 5", "Merge", "Cherry-pick", "Discard")
	h.expect("/inbox", "rouse/mend-"+ran.ID, "Merge")
	h.done("/runs/" + ran.ID + "/apply")
	if got := git("log", "-1", "--format=%s", "main"); got != "It is <i>five</i>" {
		t.Errorf("main is at %q", got)
	}
	h.expect("/runs/"+ran.ID, "Applied to")
	h.done("/runs/" + ran.ID + "/discard")
	if left := git("branch", "--list", "rouse/*"); left != "" {
		t.Errorf("%s is left", left)
	}
}
