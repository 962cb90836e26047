package example

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// example is a copy of an example that is run as its README says.
type example struct {
	testing.TB
	config string
}

func newExample(t *testing.T, name string) *example {
	t.Helper()
	t.Parallel() // most of the time it waits for processes
	return &example{t, endtoend.CopyExample(t, name)}
}

func (e *example) path(parts ...string) string {
	return filepath.Join(append([]string{filepath.Dir(e.config)}, parts...)...)
}

func (e *example) write(text string, parts ...string) {
	e.Helper()
	path := e.path(parts...)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		e.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		e.Fatal(err)
	}
}

func (e *example) read(parts ...string) string {
	raw, err := os.ReadFile(e.path(parts...))
	if err != nil {
		return ""
	}
	return string(raw)
}

// run runs a job and returns its newest run with any outcome.
func (e *example) run(job string, flags ...string) api.Run {
	e.Helper()
	p := endtoend.Rouse(e, append([]string{"run", job, "--wait", "--config", e.config}, flags...)...)
	_ = p.Run() // the caller checks the outcome
	runs := e.runs()
	if len(runs) == 0 {
		e.Fatalf("no run: %s%s", &p.Out, &p.Err)
	}
	return runs[0]
}

func (e *example) runs() (runs []api.Run) {
	e.Helper()
	endtoend.RunJSON(e, &runs, "runs", "--json", "--config", e.config)
	return runs
}

// rows returns the result of a query on an agent's database.
func (e *example) rows(agent, sql string) []map[string]any {
	e.Helper()
	var out struct {
		Rows []map[string]any `json:"rows"`
	}
	endtoend.RunJSON(e, &out, "db", agent, "query", sql, "--json", "--config", e.config)
	return out.Rows
}

// notices returns the titles of pending notices. They stay pending, because the tests have no
// desktop.
func (e *example) notices() string {
	e.Helper()
	p := endtoend.Rouse(e, "doctor", "--offline", "--json", "--config", e.config)
	_ = p.Run() // it fails without a desktop
	return p.Out.String()
}

func (e *example) wants(r api.Run, outcome, summary string) {
	e.Helper()
	if string(r.Outcome) != outcome || !strings.Contains(r.Summary+r.Error, summary) {
		e.Errorf("run %s of %s: %s, %s %s; want %s, %s", r.ID, r.Job, r.Outcome, r.Summary, r.Error, outcome, summary)
	}
}

// TestExamplesAreWhole checks that every example has a README that says how to run it, is listed in
// the index, and passes config check without warnings.
func TestExamplesAreWhole(t *testing.T) {
	t.Parallel()
	configs, err := filepath.Glob("../../../../examples/*/rouse.yaml")
	if err != nil || len(configs) < 13 {
		t.Fatalf("%d, %v", len(configs), err)
	}
	index, err := os.ReadFile("../../../../examples/README.md")
	if err != nil {
		t.Fatal(err)
	}

	for _, config := range configs {
		name := filepath.Base(filepath.Dir(config))
		readme, err := os.ReadFile(filepath.Join(filepath.Dir(config), "README.md"))
		if err != nil || !strings.Contains(string(readme), "rouse") {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(string(index), "("+name+")") {
			t.Errorf("%s is not in the index", name)
		}

		copied := endtoend.CopyExample(t, name)
		if name == "night-coder" { // as its README begins
			if !newGit() {
				continue
			}
			makeApp(t, filepath.Join(filepath.Dir(copied), "app"))
		}
		p := endtoend.Rouse(t, "config", "check", "--config", copied)
		p.Env = append(p.Env, "ROUSE_SECRET_DEPLOYS=the-secret-of-both-sides", "ROUSE_SECRET_LEDGER=postgres://rouse@"+cmdtest.Nobody+"/rouse")
		if err := p.Run(); err != nil || strings.Contains(p.Out.String(), "warning") && name != "skills" {
			t.Errorf("%s: %v\n%s%s", name, err, &p.Out, &p.Err)
		}
	}
}

func TestExampleBackupCheck(t *testing.T) {
	e := newExample(t, "backup-check")
	needsConfinement(t)
	e.wants(e.run("backup-check"), "error", `it expects that trim(result.stdout) != ""`)
	if !strings.Contains(e.notices(), "There is no backup of the last night") {
		t.Error("nobody is told")
	}

	e.write("", "backups", "empty.tar.gz")
	e.wants(e.run("backup-check"), "error", "it expects")
	e.write("x", "backups", "a.tar.gz")
	e.write("x", "backups", "b.tar.gz")
	e.wants(e.run("backup-check"), "success", "db_insert")
	if rows := e.rows("watchman", "select archives from backups"); len(rows) != 1 || rows[0]["archives"] != 2.0 {
		t.Errorf("%v", rows)
	}
}

func TestExamplePageWatch(t *testing.T) {
	var hours atomic.Value
	hours.Store("nine to five")
	e := newExample(t, "page-watch")
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<!doctype html><title>Opening hours</title><p>Open from %s.", hours.Load())
	}))
	defer page.Close()

	e.write(strings.ReplaceAll(e.read("rouse.yaml"), "127.0.0.1:8099", strings.TrimPrefix(page.URL, "http://")), "rouse.yaml")
	e.wants(e.run("page"), "success", "notify skipped")
	e.wants(e.run("page"), "success", "notify skipped")
	hours.Store("ten to four")
	e.wants(e.run("page"), "success", "has changed")
	e.wants(e.run("page"), "success", "notify skipped")
	if rows := e.rows("reader", "select text from pages"); len(rows) != 1 || !strings.Contains(fmt.Sprint(rows[0]["text"]), "ten to four") {
		t.Errorf("%v", rows)
	}
	if got := e.notices(); strings.Count(got, "has changed") != 1 {
		t.Errorf("the notices: %s", got)
	}

	page.Close()
	e.wants(e.run("page"), "error", "cannot be reached")
}

func TestExampleLogDigest(t *testing.T) {
	e := newExample(t, "log-digest")
	e.wants(e.run("digest"), "success", "2 errors in the logs")
	if got := e.read(".rouse", "reader", "digest.md"); !strings.Contains(got, "# 2 errors in 1 files") || !strings.Contains(got, "the bank does not answer (../../logs/app.log:2)") || strings.Contains(got, "INFO") {
		t.Errorf("%q", got)
	}
	e.wants(e.run("digest"), "success", "notify skipped")

	e.write("x ERROR one more\n", "logs", "other.log")
	e.wants(e.run("digest"), "success", "3 errors in the logs")
	if rows := e.rows("reader", "select errors from digests order by id"); len(rows) != 3 || rows[2]["errors"] != 3.0 {
		t.Errorf("%v", rows)
	}
}

func TestExampleInboxSorter(t *testing.T) {
	e := newExample(t, "inbox-sorter")
	p := endtoend.Serve(t, e.config)
	defer p.Stop(t)

	e.write("a photo", "inbox", "sea.jpg")
	e.write("a photo", "inbox", "sea-again.PNG") // with the same content
	e.write("a letter", "inbox", "letter.pdf")
	e.write("neither", "inbox", "song.mp3")
	cmdtest.Until(t, "the inbox was sorted", func() bool {
		return e.read("photos", "sea.jpg") != "" && e.read("photos", "sea-again.PNG") != "" && e.read("papers", "letter.pdf") == "a letter"
	})
	if e.read("inbox", "song.mp3") == "" {
		t.Error("what is neither was taken")
	}

	var got []string
	for _, row := range e.rows("sorter", "select kind || ' ' || bytes about from filed order by kind") {
		got = append(got, fmt.Sprint(row["about"]))
	}
	if want := []string{"papers 8", "photos 7"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestExampleDiskAlert(t *testing.T) {
	e := newExample(t, "disk-alert")
	needsConfinement(t)
	// A disk is between 0 % and 100 % full.
	for _, step := range []struct{ limit, told string }{
		{"100", "notify skipped; notify skipped"}, {"-1", " % full; notify skipped"}, {"-1", "notify skipped; notify skipped"}, {"100", "has room again"},
	} {
		e.wants(e.run("disk", "--input", "limit="+step.limit), "success", step.told)
	}
	if rows := e.rows("watchman", "select alarm from disk order by id"); len(rows) != 4 || rows[1]["alarm"] != 1.0 || rows[3]["alarm"] != 0.0 {
		t.Errorf("%v", rows)
	}
}

func TestExampleDailyReport(t *testing.T) {
	e := newExample(t, "daily-report")
	e.wants(e.run("report"), "success", "4 rows into sales")
	if got := e.read("desk", "report.md"); !strings.Contains(got, "| coffee | 1 | 31.5 |\n| bread | 2 | 27 |\n| cake | 1 | 8 |") {
		t.Errorf("%s", got)
	}

	e.write(e.read("desk", "sales.csv")+"2026-11-25,cake,40\n", "desk", "sales.csv")
	e.wants(e.run("report"), "success", "file_write: report.md")
	if got := e.read("desk", "report.md"); !strings.Contains(got, "| cake | 2 | 48 |\n| coffee") {
		t.Errorf("%s", got)
	}
	if rows := e.rows("reporter", "select count(*) n from sales"); rows[0]["n"] != 5.0 {
		t.Errorf("%v", rows)
	}
}

func TestExampleDeployNote(t *testing.T) {
	e := newExample(t, "deploy-note")
	set := endtoend.Rouse(t, "secrets", "set", "deploys", "--config", e.config)
	set.Stdin = strings.NewReader("the-secret-of-both-sides")
	if err := set.Run(); err != nil {
		t.Fatalf("%v: %s", err, &set.Err)
	}
	p := endtoend.Serve(t, e.config)
	defer p.Stop(t)

	send := func(id, event string) {
		t.Helper()
		if sent := endtoend.Rouse(t, "webhooks", "send", "deployed", "--id", id, "--event", event, "--body", e.path("delivery.json"), "--config", e.config); sent.Run() != nil {
			t.Fatalf("%s%s", &sent.Out, &sent.Err)
		}
	}
	send("d-1", "deployment_status")
	send("d-1", "deployment_status") // senders repeat deliveries without a response
	send("d-2", "ping")
	cmdtest.Until(t, "both deliveries are done", func() bool {
		runs := e.runs()
		return len(runs) == 2 && runs[0].State == "finished" && runs[1].State == "finished"
	})

	runs := e.runs()
	e.wants(runs[1], "success", "shop/website: success")
	if runs[0].Outcome != "skipped" {
		t.Errorf("%+v", runs[0])
	}
	if rows := e.rows("clerk", "select * from deployments"); len(rows) != 1 || rows[0]["ref"] != "v1.8.2" || rows[0]["environment"] != "production" {
		t.Errorf("%v", rows)
	}
}

func TestExampleNextRun(t *testing.T) {
	e := newExample(t, "next-run")
	e.wants(e.run("look"), "success", "noted it in diary.md")
	if got := e.read(".rouse", "garden", "diary.md"); strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
	slot := endtoend.Rouse(t, "slot", "gardener", "--json", "--config", e.config)
	if err := slot.Run(); err != nil || !strings.Contains(slot.Out.String(), "See whether the soil has taken the water.") {
		t.Errorf("%v: %s", err, &slot.Out)
	}

	p := endtoend.Serve(t, e.config)
	defer p.Stop(t)
	cmdtest.Until(t, "the agent woke by itself", func() bool { runs := e.runs(); return len(runs) == 2 && runs[0].State == "finished" })
	if r := e.runs()[0]; r.Trigger != "self" || r.Outcome != "success" {
		t.Errorf("%+v", r)
	}
	if got := e.read(".rouse", "garden", "diary.md"); !strings.HasSuffix(got, "The soil is moist now. Nothing else to do today.\n") || strings.Count(got, "\n") != 2 {
		t.Errorf("%q", got)
	}
}

func TestExampleFolderIndex(t *testing.T) {
	e := newExample(t, "folder-index")
	p := endtoend.Serve(t, e.config)
	defer p.Stop(t)

	e.write("Tides come twice a day.\n", "notes", "tides.md")
	cmdtest.Until(t, "the index names both notes", func() bool {
		return strings.Contains(e.read("notes", "index.md"), "- [house.md](house.md)\n- [tides.md](tides.md)")
	})
	if err := os.Remove(e.path("notes", "tides.md")); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "the index names one note", func() bool { return !strings.Contains(e.read("notes", "index.md"), "tides") })
	cmdtest.Until(t, "the folder came to rest", func() bool { return endtoend.JobOf(t, e.config, "index").Watch.State == "idle" })
	for _, r := range e.runs() {
		e.wants(r, "success", "index.md")
	}
}

// needsConfinement skips a test if this machine cannot confine programs.
func needsConfinement(t *testing.T) {
	t.Helper()
	p := endtoend.Rouse(t, "doctor", "--offline", "--json", "--config", endtoend.CopyExample(t, "disk-alert"))
	_ = p.Run() // it fails without a desktop
	var checks []api.Check
	if err := json.Unmarshal(p.Out.Bytes(), &checks); err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if strings.Contains(c.Detail, "tier D") {
			t.Skip(c.Detail)
		}
	}
}
