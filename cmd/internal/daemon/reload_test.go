package daemon

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/runs"
	"rouse/internal/ledger/wake"
)

// served is a running daemon in this process.
type served struct {
	*Daemon
	t      testing.TB
	dir    string
	config string
	log    *cmdtest.Log
	client *api.Client
	stop   func()
}

// serveHere starts a daemon on a folder with rouse.yaml and waits until it is ready.
func serveHere(t testing.TB, files map[string]string) *served {
	t.Helper()
	return ServeIn(t, cmdtest.Write(t, files), "rouse.yaml")
}

func ServeIn(t testing.TB, dir, config string) *served {
	t.Helper()
	s := &served{t: t, dir: dir, config: filepath.Join(dir, config), log: &cmdtest.Log{}}
	cfg, err := plan.Load(s.config, "")
	if err != nil {
		t.Fatal(err)
	}

	v := &logging.Var{}
	s.Daemon, err = Open(t.Context(), Options{Home: string(cfg.Home), Config: cfg, Serves: true, Logger: logging.New(cfg, v, s.log), LogVar: v})
	if err != nil {
		t.Fatal(err)
	}

	s.client = api.InProcess(s.Handler)
	ctx, cancel := context.WithCancel(context.Background())
	ready, over := make(chan struct{}), make(chan error, 1)
	go func() { over <- s.Serve(ctx, func(context.Context) error { close(ready); return nil }) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
		s.Close()
	})

	t.Cleanup(s.stop)
	select {
	case <-ready:
	case <-time.After(cmdtest.Patience):
		t.Fatalf("the daemon did not get ready: %s", s.log)
	}

	return s
}

// put replaces a file by a new one, as most editors do.
func (s *served) put(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path+".new~", []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(path+".new~", path); err != nil {
		s.t.Fatal(err)
	}
}

// Ask makes the daemon read its configuration now.
func (s *served) Ask() api.Reload {
	s.t.Helper()
	var out api.Reload
	if err := s.client.Post(s.t.Context(), "/v1/reload", struct{}{}, &out); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// change writes a file, reloads the configuration and returns the changes. If the daemon noticed
// the file first, the changes come from the record.
func (s *served) change(name, text string) string {
	s.t.Helper()
	s.put(name, text)
	got := s.Ask()
	if !got.OK {
		s.t.Fatalf("refused: %+v", got)
	}
	if summary := got.Summary(); summary != "" {
		return summary
	}

	events, err := s.ledger.Events.List(s.t.Context(), event.Filter{Limit: 1_000_000})
	if err != nil {
		s.t.Fatal(err)
	}

	var last struct{ Summary string }
	for _, e := range events {
		if e.Kind != "config.reloaded" {
			continue
		}
		if err := json.Unmarshal(e.Data, &last); err != nil {
			s.t.Fatal(err)
		}
	}

	return last.Summary
}

func (s *served) Status() api.Status {
	s.t.Helper()
	var st api.Status
	if err := s.client.Get(s.t.Context(), "/v1/status", nil, &st); err != nil {
		s.t.Fatal(err)
	}
	return st
}

// Fire queues a run of a job.
func (s *served) Fire(job string) string {
	s.t.Helper()
	var r api.Run
	if err := s.client.Post(s.t.Context(), "/v1/runs", api.RunRequest{Job: job}, &r); err != nil {
		s.t.Fatal(err)
	}
	return r.ID
}

// Finished waits for the end of a run.
func (s *served) Finished(id string) api.RunDetail {
	s.t.Helper()
	var r api.RunDetail
	cmdtest.Until(s.t, "the end of run "+id, func() bool {
		if err := s.client.Get(s.t.Context(), "/v1/runs/"+id, nil, &r); err != nil {
			s.t.Fatal(err)
		}
		return r.State == "finished"
	})

	return r
}

// has waits until the active configuration contains a job.
func (s *served) has(job string) {
	s.t.Helper()
	cmdtest.Until(s.t, "the job "+job, func() bool { return slices.Contains(s.Current().JobNames(), job) })
}

// Changes take effect without a restart: the work of a job, its schedule, limits and secrets. Each
// change is reported.
func TestReloadTakesEffect(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	script := modeltest.New(t)
	gated := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		script.ServeHTTP(w, r)
	}))

	defer gated.Close()

	head := func(key, runs, first string) string {
		return `version: 1
home: ./home
limits: ` + runs + `
log: {level: ` + first + `}
models: [{name: m, provider: openai, model: scripted, base_url: "` + gated.URL + `/v1", api_key: ` + key + `}]
agents: [{name: clerk, workdir: ./work, database: {quota: 1MiB}}, {name: maid, workdir: ./work}]
defaults: {notify: {on: []}}
jobs:
  - {name: ask, agent: clerk, prompt_file: ask.md}
`
	}

	s := serveHere(t, map[string]string{"rouse.yaml": head("sk-old-canary", "{runs: 1}", "info") + "  - {name: daily, agent: clerk, schedule: \"0 8 * * *\", timezone: UTC, playbook: [{call: todo, with: {markdown: x}}]}\n", "ask.md": "The first question."})
	first := s.Fire("ask")
	cmdtest.Until(t, "the first run", func() bool { return s.Status().Running == 1 })
	second := s.Fire("ask")
	s.put("ask.md", "The second question, to sk-new-canary and sk-old-canary.")
	s.put("rouse.yaml", head("sk-new-canary", "{runs: 2, runs_per_agent: 2}", "warn")+"  - {name: daily, agent: maid, schedule: \"0 9 * * *\", timezone: UTC, overlap: allow, playbook: [{call: todo, with: {markdown: x}}]}\n"+Note("new"))
	s.has("new")
	var coming []api.Occurrence
	if err := s.client.Get(t.Context(), "/v1/next", map[string][]string{"job": {"daily"}, "n": {"1"}}, &coming); err != nil || len(coming) != 1 || coming[0].Nominal.UTC().Hour() != 9 {
		t.Errorf("next: %+v (%v)", coming, err)
	}
	if r := s.Finished(s.Fire("new")); r.Outcome != "success" { // in the second lane
		t.Errorf("the new job: %+v", r.Run)
	}

	close(release)
	for i, id := range []string{first, second} {
		if r := s.Finished(id); r.Outcome != "success" {
			t.Errorf("run %d: %+v", i+1, r.Run)
		}
		want := []string{"The first question.", "The second question"}[i]
		if got := string(script.Requests()[i]); !strings.Contains(got, want) {
			t.Errorf("run %d was asked %s", i+1, got)
		}
	}

	if strings.Contains(s.log.String(), "level=INFO msg=\"run finished\"") {
		t.Errorf("log.level is not in force: %s", s.log)
	}

	events, err := s.ledger.Events.List(t.Context(), event.Filter{})
	if err != nil {
		t.Fatal(err)
	}

	var told strings.Builder // the file may have been read twice
	for _, e := range events {
		if e.Kind == "config.reloaded" {
			told.Write(e.Data)
		}
	}

	for _, want := range []string{"added new", "ask", "daily", "limits", "log", "model m"} {
		if !strings.Contains(told.String(), want) {
			t.Errorf("the record does not tell of %s: %s", want, told.String())
		}
	}

	if got := s.Ask(); !got.OK || len(got.Added)+len(got.Changed)+len(got.Removed)+len(got.Others) != 0 {
		t.Errorf("once more: %+v", got)
	}
}

const ReloadHead = `version: 1
home: ./home
agents: [{name: clerk, workdir: ./work, channels: [desktop]}]
defaults: {notify: {on: []}}
jobs:
`

func Note(job string) string {
	return fmt.Sprintf("  - {name: %s, agent: clerk, playbook: [{call: todo, with: {markdown: \"- [ ] %s\"}}]}\n", job, job)
}

// An unchanged job continues to start during many reloads, exactly once per second.
func TestReloadKeepsTheRhythm(t *testing.T) {
	t.Parallel() // it mostly waits
	// On a busy machine a run may start late. on_miss then ensures that no second is skipped.
	const beat = "  - {name: beat, agent: clerk, schedule: \"* * * * * *\", on_miss: run_catchup, max_catchup: 1000, catchup_window: 1h, overlap: queue_all, playbook: [{call: todo, with: {markdown: x}}]}\n" +
		"  - {name: grid, agent: clerk, every: 2s, on_miss: run_catchup, max_catchup: 1000, catchup_window: 1h, overlap: queue_all, playbook: [{call: todo, with: {markdown: x}}]}\n"
	s := serveHere(t, map[string]string{"rouse.yaml": ReloadHead + beat})
	beats := func(job string) []runs.Occurrence {
		t.Helper()
		out, err := s.ledger.Occurrences.List(t.Context(), job, time.Time{}, time.Now(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}

	cmdtest.Until(t, "the first beats", func() bool { return len(beats("beat")) > 0 && len(beats("grid")) > 0 })
	for i := range 20 { // few enough that queue_all does not reach its limit of 100 runs on a busy machine
		other := Note(fmt.Sprint("other", i)) + fmt.Sprintf("  - {name: moves, agent: clerk, schedule: \"%d 3 * * *\", playbook: [{call: db_schema}]}\n", i)
		if i%5 == 0 {
			s.put("rouse.yaml", ReloadHead+other+beat)
			s.has(fmt.Sprint("other", i)) // without a request
			continue
		}

		want := fmt.Sprintf("added other%d; changed moves; removed other%d", i, i-1)
		if got := s.change("rouse.yaml", ReloadHead+other+beat); got != want {
			t.Fatalf("reload %d: %s, want %s", i, got, want)
		}
	}

	n := len(beats("beat"))
	cmdtest.Until(t, "two more beats", func() bool { return len(beats("beat")) > n+1 && len(beats("grid")) > 3 })

	for job, step := range map[string]time.Duration{"beat": time.Second, "grid": 2 * time.Second} {
		all := beats(job) // newest first
		for i, o := range all {
			if o.Decision != domain.DecisionRun {
				t.Errorf("%s: %+v", job, o)
			}
			if i > 0 && all[i-1].Nominal.Sub(o.Nominal) != step {
				t.Errorf("%s: %s follows %s", job, all[i-1].Nominal, o.Nominal)
			}
		}
	}

	runs, err := s.ledger.Runs.List(t.Context(), runs.Filter{Job: "beat", Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}

	seen := map[time.Time]bool{}
	for _, r := range runs {
		if seen[r.ScheduledAt] {
			t.Errorf("%s ran twice", r.ScheduledAt)
		}
		seen[r.ScheduledAt] = true
	}
}

// An invalid configuration is not applied, and the problem is reported with its position. Each
// problem causes one notice per channel, however often the file is saved.
func TestReloadRefusesMistakes(t *testing.T) {
	t.Parallel()
	s := serveHere(t, map[string]string{"rouse.yaml": ReloadHead + Note("one")})
	notices := func() []ledger.Notice {
		t.Helper()
		out, err := s.ledger.Outbox.Undelivered(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}

	const broken = "  - {name: two, agent: clrk, playbook: [{call: db_schema}]}\n"
	s.put("rouse.yaml", ReloadHead+Note("one")+broken)
	cmdtest.Until(t, "the problem", func() bool { return len(s.Status().ConfigProblems) > 0 })
	st := s.Status()
	p := st.ConfigProblems[0]
	if p.Line != 7 || p.File != s.config || !strings.Contains(p.Message, `no agent "clrk"; did you mean "clerk"?`) {
		t.Errorf("%+v", p)
	}
	if r := s.Finished(s.Fire("one")); r.Outcome != "success" || slices.Contains(s.Current().JobNames(), "two") {
		t.Errorf("the old configuration does not hold: %+v", r.Run)
	}

	var checks []api.Check
	if err := s.client.Get(t.Context(), "/v1/doctor", nil, &checks); err != nil {
		t.Fatal(err)
	}
	if c := checks[0]; c.OK || !strings.Contains(c.Detail, "rouse.yaml:7:") || c.Remedy == "" {
		t.Errorf("doctor: %+v", c)
	}

	cmdtest.Until(t, "the notice", func() bool { return len(notices()) > 0 })
	if n := notices()[0]; !strings.Contains(n.Body, "rouse.yaml:7:") || n.Channel != "desktop" {
		t.Errorf("%+v", n)
	}

	log := s.log.String()
	if !strings.Contains(log, `"line":7`) || !strings.Contains(log, `"file":`) || !strings.Contains(log, "clrk") {
		t.Errorf("log: %s", log)
	}

	// The same problem is not reported again, whether read automatically or on request. Another
	// one is.
	s.put("rouse.yaml", "# saved again\n"+strings.TrimPrefix(ReloadHead, "version: 1\n")+Note("one")+broken)
	if got := s.Ask(); got.OK || len(got.Problems) != 1 {
		t.Errorf("%+v", got)
	}
	if got := s.Ask(); got.OK || len(notices()) != 1 {
		t.Errorf("%+v, %d notices", got, len(notices()))
	}

	s.put("rouse.yaml", "version: [1\n")
	if got := s.Ask(); got.OK || len(notices()) != 2 || !strings.Contains(got.Problems[0].Message, "not YAML") {
		t.Errorf("%+v, %d notices", got, len(notices()))
	}

	s.put("rouse.yaml", "# saved again\n"+strings.TrimPrefix(ReloadHead, "version: 1\n")+Note("one")+broken)
	if s.Ask(); len(notices()) != 2 {
		t.Errorf("%d notices", len(notices()))
	}

	s.put("rouse.yaml", ReloadHead+Note("one")+Note("two"))
	s.has("two")
	cmdtest.Until(t, "the status without the mistake", func() bool {
		st := s.Status()
		return len(st.ConfigProblems) == 0 && st.ConfigAt.After(st.StartedAt.Time) && strings.Contains(s.log.String(), "the configuration is good again")
	})
	if strings.Count(s.log.String(), `"line":7`) != 1 {
		t.Errorf("log: %s", s.log)
	}

	s.put("rouse.yaml", ReloadHead+Note("one")+broken) // reported again
	if s.Ask(); len(notices()) != 3 {
		t.Errorf("%d notices", len(notices()))
	}
}

// A missing main file is a problem, not an empty configuration. So is a folder in its place.
func TestReloadWithoutTheFile(t *testing.T) {
	t.Parallel() // it mostly waits
	s := serveHere(t, map[string]string{"rouse.yaml": ReloadHead + Note("one")})
	for what, vanish := range map[string]func() error{
		"is gone":     func() error { return nil },
		"is a folder": func() error { return os.Mkdir(s.config, 0o755) },
		"is a link to nowhere": func() error {
			return os.Symlink(filepath.Join(s.dir, "nowhere"), s.config)
		},
	} {
		if err := errors.Join(os.Rename(s.config, s.config+".old"), vanish()); err != nil {
			t.Fatal(err)
		}

		cmdtest.Until(t, "the problem: it "+what, func() bool { return len(s.Status().ConfigProblems) > 0 })
		if got := s.Current().JobNames(); !slices.Equal(got, []string{"one"}) {
			t.Errorf("jobs: %s", got)
		}
		if err := os.RemoveAll(s.config); err != nil {
			t.Fatal(err)
		}

		s.put("rouse.yaml", ReloadHead+Note("one"))
		cmdtest.Until(t, "the end of the problem: it "+what, func() bool { return len(s.Status().ConfigProblems) == 0 })
	}
}

// If a job is removed, its running run ends normally and its history remains. Its queued run ends
// with the reason that the job was removed. A disabled job does not start in any way, and can be
// enabled again.
func TestReloadRemovesJobs(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	script := modeltest.New(t)
	gated := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		script.ServeHTTP(w, r)
	}))

	defer gated.Close()

	head := strings.Replace(ReloadHead, "agents:", `models: [{name: m, provider: openai, model: scripted, base_url: "`+gated.URL+`/v1"}]`+"\nagents:", 1)
	const ask, daily = "  - {name: ask, agent: clerk, prompt: Well?}\n", "  - {name: daily, agent: clerk, enabled: true, schedule: \"0 8 * * *\", playbook: [{call: todo, with: {markdown: x}}]}\n"
	s := serveHere(t, map[string]string{"rouse.yaml": head + ask + daily})
	running := s.Fire("ask")
	cmdtest.Until(t, "the run", func() bool { return s.Status().Running == 1 })
	queued := s.Fire("ask")
	if got := s.change("rouse.yaml", head+strings.Replace(daily, "true", "false", 1)); got != "changed daily; removed ask" {
		t.Error(got)
	}
	if err := s.client.Post(t.Context(), "/v1/runs", api.RunRequest{Job: "ask"}, nil); err == nil || !strings.Contains(err.Error(), `no job "ask"`) {
		t.Errorf("firing what is gone: %v", err)
	}
	if err := s.client.Post(t.Context(), "/v1/runs", api.RunRequest{Job: "daily"}, nil); err == nil || !strings.Contains(err.Error(), "disabled") {
		t.Errorf("firing what is disabled: %v", err)
	}

	if next := s.scheduler.Next("daily", 1, time.Now()); len(next) > 0 {
		t.Errorf("what is disabled comes next: %+v", next)
	}

	close(release)
	if r := s.Finished(running); r.Outcome != "success" || len(r.StepsDetail) == 0 {
		t.Errorf("the run that was on: %+v", r.Run)
	}
	if r := s.Finished(queued); r.Outcome != "error" || !strings.Contains(r.Error, "no longer in the configuration") {
		t.Errorf("the run that waited: %+v", r.Run)
	}

	s.put("rouse.yaml", head+daily)
	if got := s.Ask(); !got.OK || len(s.scheduler.Next("daily", 1, time.Now())) != 1 {
		t.Errorf("enabled again: %+v", got)
	}
	if r := s.Finished(s.Fire("daily")); r.Outcome != "success" {
		t.Errorf("enabled again: %+v", r.Run)
	}
}

// If an agent may no longer plan its own runs, its planned wakes are removed.
func TestReloadClearsWakes(t *testing.T) {
	t.Parallel()
	plans := strings.Replace(ReloadHead, "workdir: ./work", "workdir: ./work, self_scheduling: {enabled: true}", 1)
	s := serveHere(t, map[string]string{"rouse.yaml": plans + Note("one")})
	plan := func() {
		if _, err := s.ledger.Wakes.Set(t.Context(), wake.Wake{Agent: "clerk", At: time.Now().Add(time.Hour), AskedAt: time.Now().Add(time.Hour), Instructions: "go on", Priority: "normal", OnMiss: "run_once", ScheduledBy: "agent"}, wake.Usage{}); err != nil {
			t.Fatal(err)
		}
	}

	planned := func() bool {
		_, ok, err := s.ledger.Wakes.Next(t.Context(), "clerk")
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}

	plan()
	s.put("rouse.yaml", plans+Note("two"))
	if got := s.Ask(); !got.OK || !planned() {
		t.Errorf("%+v, planned %t", got, planned())
	}

	if got := s.change("rouse.yaml", ReloadHead+Note("two")); got != "also agent clerk" || planned() {
		t.Errorf("%s, planned %t", got, planned())
	}
}

// A newly watched folder starts runs, and a folder that is no longer watched does not.
func TestReloadWatches(t *testing.T) {
	t.Parallel()
	take := func(dir string) string {
		return "  - {name: take, agent: clerk, watch: {path: " + dir + ", responsiveness: fast, on_success: delete}, playbook: [{call: todo, with: {markdown: x}}]}\n"
	}
	s := serveHere(t, map[string]string{"rouse.yaml": ReloadHead + Note("one"), "a/.keep": "", "b/.keep": ""})
	drop := func(dir string) string {
		path := filepath.Join(s.dir, dir, fmt.Sprint(time.Now().UnixNano()))
		if err := os.WriteFile(path, []byte(path), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}

	gone := func(path string) bool { _, err := os.Stat(path); return os.IsNotExist(err) }
	s.put("rouse.yaml", ReloadHead+take("./a"))
	s.has("take")
	path := drop("a")
	cmdtest.Until(t, "the file in a", func() bool { return gone(path) })
	s.put("rouse.yaml", ReloadHead+take("./b"))
	s.Ask()
	left := drop("a")
	path = drop("b")
	cmdtest.Until(t, "the file in b", func() bool { return gone(path) })
	if gone(left) {
		t.Error("a is still watched")
	}
}

// Settings that need a restart are reported, and the others are applied.
func TestReloadNeedsARestart(t *testing.T) {
	t.Parallel()
	s := serveHere(t, map[string]string{"rouse.yaml": ReloadHead + Note("one")})
	s.put("rouse.yaml", strings.Replace(ReloadHead, "./home", "./elsewhere", 1)+Note("two")+"log: {format: text}\n")
	got := s.Ask()
	if !got.OK || len(got.Restart) != 2 || !strings.Contains(got.Restart[0], "home") || !strings.Contains(got.Restart[1], "log.format") {
		t.Errorf("%+v", got)
	}
	if st := s.Status(); len(st.ConfigRestart) != 2 || st.Home != filepath.Join(s.dir, "home") {
		t.Errorf("%+v", st)
	}
	if r := s.Finished(s.Fire("two")); r.Outcome != "success" {
		t.Errorf("%+v", r.Run)
	}

	if _, err := os.Stat(filepath.Join(s.dir, "elsewhere")); !os.IsNotExist(err) {
		t.Errorf("the other home is in use: %v", err)
	}

	s.put("rouse.yaml", ReloadHead+Note("two"))
	if got := s.Ask(); !got.OK || len(got.Restart) != 0 {
		t.Errorf("%+v", got)
	}
}

// Secrets from a reload are redacted like those from the start, and the old ones still are.
func TestReloadKeepsSecrets(t *testing.T) {
	t.Parallel()
	model := func(key string) string {
		return strings.Replace(ReloadHead, "agents:", "models: [{name: m, provider: openai, model: x, base_url: \"http://127.0.0.1:1/v1\", api_key: "+key+"}]\nagents:", 1)
	}
	const tell = "  - {name: tell, agent: clerk, playbook: [{call: todo, with: {markdown: \"- [ ] sk-old-canary and sk-new-canary\"}}]}\n"
	s := serveHere(t, map[string]string{"rouse.yaml": model("sk-old-canary") + Note("one")})
	s.put("rouse.yaml", model("sk-new-canary")+tell)
	if got := s.Ask(); !got.OK {
		t.Fatalf("%+v", got)
	}

	raw, err := json.Marshal(s.Finished(s.Fire("tell")))
	if err != nil || strings.Contains(string(raw), "canary") || !strings.Contains(string(raw), "[secret] and [secret]") {
		t.Errorf("%s (%v)", raw, err)
	}

	s.put("rouse.yaml", model("sk-new-canary")+"  - {name: sk-old-canary, agent: sk-new-canary, enabled: sk-new-canary, playbook: [{call: db_schema}]}\n")
	if got := s.Ask(); got.OK || strings.Contains(fmt.Sprint(got), "canary") {
		t.Errorf("%+v", got)
	}
	if strings.Contains(s.log.String(), "canary") {
		t.Errorf("log: %s", s.log)
	}
}

// If a part fails to apply (here a locked ledger), the old configuration stays active. The problem
// is reported, and the reload is repeated until it succeeds.
func TestReloadTriesAgain(t *testing.T) {
	t.Parallel() // it mostly waits
	s := serveHere(t, map[string]string{"rouse.yaml": ReloadHead + Note("one") + "  - {name: daily, agent: clerk, schedule: \"0 8 * * *\", playbook: [{call: db_schema}]}\n"})
	release := hold(t, filepath.Join(s.dir, "home", "ledger.db"))
	s.put("rouse.yaml", ReloadHead+Note("two"))
	cmdtest.Until(t, "the refusal", func() bool { return len(s.Reloader.ProblemsOnDisk()) > 0 })
	if p := s.Reloader.ProblemsOnDisk()[0]; !strings.Contains(p.Message, "tried again") || !slices.Contains(s.Current().JobNames(), "one") {
		t.Errorf("%+v", p)
	}

	release()
	s.has("two")
	cmdtest.Until(t, "the end of the trouble", func() bool { return len(s.Status().ConfigProblems) == 0 })
}

// Whatever happens to the file, the daemon continues with the last valid configuration or the new
// one. ROUSE_TEST_MUTATIONS is the number of attempts.
func TestReloadSurvivesMutations(t *testing.T) {
	t.Parallel()
	valid := ReloadHead + Note("one") + "  - {name: daily, agent: clerk, schedule: \"0 8 * * 1-5\", timezone: Europe/Berlin, retry: {attempts: 2}, playbook: [{call: db_query, with: {sql: \"select 1\"}, save: x}]}\n" +
		"  - {name: in, agent: clerk, watch: {path: ./in, include: [\"*.csv\"]}, playbook: [{call: todo, with: {markdown: \"{{ .File.Name }}\"}}]}\n"
	s := serveHere(t, map[string]string{"rouse.yaml": valid, "in/.keep": ""})
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	mutations, err := strconv.Atoi(os.Getenv("ROUSE_TEST_MUTATIONS"))
	if err != nil {
		mutations = 40
	}

	good := 0
	for i := range mutations {
		text := []byte(valid)
		for range 1 + random.IntN(3) {
			switch at := random.IntN(len(text)); random.IntN(4) {
			case 0:
				text = text[:at+1]
			case 1:
				text[at] ^= 1 << random.IntN(8)
			case 2:
				text[at] = byte(random.IntN(256))
			case 3:
				text = slices.Delete(text, at, min(at+1+random.IntN(20), len(text)))
				if len(text) == 0 {
					text = []byte("#")
				}
			}
		}

		if i%10 == 0 {
			s.put("rouse.yaml", string(text)) // its folder is watched meanwhile
		} else if err := os.WriteFile(s.config, text, 0o644); err != nil {
			t.Fatal(err)
		}

		got := s.Ask()
		if got.OK {
			good++
		} else if len(got.Problems) == 0 || got.Problems[0].Message == "" {
			t.Fatalf("seed %d, %d: refused without a word\n%s", seed, i, text)
		}

		if strings.Contains(fmt.Sprint(got.Problems), "defect") {
			t.Errorf("seed %d, %d: %+v\n%s", seed, i, got.Problems, text)
		}
		if st := s.Status(); !st.Ready || (len(st.ConfigProblems) == 0) != got.OK {
			t.Fatalf("seed %d, %d: %+v after %+v", seed, i, st, got)
		}
	}

	s.put("rouse.yaml", valid)
	if got := s.Ask(); !got.OK {
		t.Fatalf("%+v", got)
	}
	if r := s.Finished(s.Fire("one")); r.Outcome != "success" {
		t.Errorf("%+v", r.Run)
	}

	t.Logf("%d of %d were good", good, mutations)
}

// hold locks a SQLite file against writes until release is called.
func hold(t *testing.T, path string) (release func()) {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(30000)")
	if err != nil {
		t.Fatal(err)
	}

	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "begin immediate"); err != nil {
		t.Fatal(err)
	}

	return func() {
		if _, err := conn.ExecContext(t.Context(), "rollback"); err != nil {
			t.Error(err)
		}
		conn.Close()
		db.Close()
	}
}

// BenchmarkReload changes the schedules of ten thousand jobs of a thousand agents during runs. It
// measures the longest time of a run and of a write to the ledger.
func BenchmarkReload(b *testing.B) {
	text := func(n int) string {
		var x strings.Builder
		x.WriteString("version: 1\nhome: ./home\ndefaults: {notify: {on: []}}\nagents:\n")
		for i := range 1000 {
			fmt.Fprintf(&x, "  - {name: a%d}\n", i)
		}

		x.WriteString("jobs:\n")
		for i := range 10_000 {
			fmt.Fprintf(&x, "  - {name: j%d, agent: a%d, schedule: \"%d %d 1 1 *\", playbook: [{call: todo, with: {markdown: x}}]}\n", i, i%1000, (i+n)%60, i/60%24)
		}
		return x.String()
	}

	s := serveHere(b, map[string]string{"rouse.yaml": text(0)})
	over := make(chan struct{})
	var group sync.WaitGroup
	var mu sync.Mutex
	worst := map[string]time.Duration{}
	probe := func(name string, do func() error) {
		group.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}

				began := time.Now()
				if err := do(); err != nil {
					b.Error(err)
					return
				}

				mu.Lock()
				worst[name] = max(worst[name], time.Since(began))
				mu.Unlock()
			}
		})
	}

	probe("run", func() error {
		accepted, err := s.ledger.Enqueue(context.Background(), ledger.Request{Job: "j1", Agent: "a1", Trigger: domain.TriggerManual})
		for err == nil {
			changed := s.ledger.Changed()
			r, err := s.ledger.Runs.Get(context.Background(), accepted[0].Run)
			if err != nil || r.State == domain.StateFinished {
				return err
			}
			<-changed
		}

		return err
	})

	probe("write", func() error {
		return s.ledger.Events.Append(context.Background(), ledger.Event{Kind: "bench"})
	})
	n := 0
	b.ResetTimer()

	for b.Loop() {
		n++
		s.put("rouse.yaml", text(n%2*30)) // every schedule changes
		if got := s.Ask(); !got.OK {
			b.Fatalf("%+v", got)
		}
	}

	b.StopTimer()
	close(over)
	group.Wait()
	mu.Lock()
	defer mu.Unlock()

	for name, d := range worst {
		b.ReportMetric(float64(d.Milliseconds()), "ms/worst-"+name)
	}
}
