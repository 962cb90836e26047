package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestFetchedCalendars checks a calendar from a URL. It applies as soon as it is fetched. If the
// server fails or sends something else, the stored copy still applies, and its age and the error
// are reported. A calendar that was never fetched is an error: it excludes no day, and no run
// starts.
func TestFetchedCalendars(t *testing.T) {
	t.Parallel()
	day := time.Now().UTC().AddDate(0, 0, 3)
	var body atomic.Value
	body.Store("BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Inventory\nDTSTART;VALUE=DATE:" + day.Format("20060102") + "\nEND:VEVENT\nEND:VCALENDAR\n")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body.Load().(string))) })) //nolint:forcetypeassert // the value is always a string
	defer site.Close()

	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
timezone: UTC
dashboard: {listen: off}
agents: [{name: clerk}]
calendars:
  - {name: team, url: "` + site.URL + `/s3cret.ics", private_network: true}
  - {name: gone, url: "http://` + cmdtest.Nobody + `/s3cret.ics", private_network: true}
jobs:
  - {name: daily, agent: clerk, schedule: "0 8 * * *", exclude: [team, gone], playbook: [{call: db_schema}]}
  - {name: kept, agent: clerk, schedule: "0 9 * * *", only: [team], playbook: [{call: db_schema}]}
  - {name: never, agent: clerk, schedule: "0 9 * * *", only: [gone], playbook: [{call: db_schema}]}
`})
	config := filepath.Join(dir, "rouse.yaml")
	at := func(hour int) string {
		return time.Date(day.Year(), day.Month(), day.Day(), hour, 0, 0, 0, time.UTC).Format(time.RFC3339)
	}
	decisions := func() string {
		t.Helper()
		var said []string
		for _, job := range []string{"daily", "kept", "never"} {
			var coming []api.Occurrence
			endtoend.RunJSON(t, &coming, "next", job, "-n", "6", "--json", "--config", config)
			for _, o := range coming {
				if when := o.Nominal.UTC().Format(time.RFC3339); when == at(8) || when == at(9) || job == "never" {
					said = append(said, job+" "+string(o.Decision)+" "+o.Reason)
				}
			}
		}
		return strings.Join(said, "\n")
	}
	states := func() (out map[string]api.Calendar) {
		t.Helper()
		var st api.Status
		endtoend.RunJSON(t, &st, "status", "--json", "--config", config)
		out = map[string]api.Calendar{}
		for _, c := range st.Calendars {
			out[c.Name] = c
		}
		return out
	}

	p := endtoend.Serve(t, config)
	const decided = "daily skipped exclude: team (Inventory)\nkept run \nnever skipped only: not in gone, which names no later time"
	cmdtest.Until(t, "both were asked", func() bool { return states()["gone"].Problem != "" && decisions() == decided })
	if s := states(); s["team"].Times != 1 || s["team"].FetchedAt.IsZero() || s["team"].Problem != "" || !s["gone"].FetchedAt.IsZero() || strings.Contains(s["gone"].Problem, "s3cret") {
		t.Errorf("states: %+v", s)
	}
	var checks []api.Check
	doctor := endtoend.Rouse(t, "doctor", "--offline", "--json", "--config", config)
	_ = doctor.Run() // it exits 1, as expected
	if err := json.Unmarshal(doctor.Out.Bytes(), &checks); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, c := range checks {
		found = found || c.Name == "calendars" && !c.OK && strings.Contains(c.Detail, "calendar gone (url): it could never be fetched") && strings.Contains(c.Detail, "calendar team (url): 1 time, fetched ")
	}
	if !found {
		t.Errorf("doctor: %+v", checks)
	}
	why := endtoend.Rouse(t, "why", "never", "--config", config)
	if err := why.Run(); err != nil || !strings.Contains(why.Out.String(), "nothing is excluded by it, and what keeps to it (only) does not start") {
		t.Errorf("%v %s", err, &why.Out)
	}
	p.Stop(t)

	// One day later the server requires a login. The stored copy applies, also without a daemon.
	body.Store("<html>Please log in</html>")
	notes, err := filepath.Glob(filepath.Join(dir, "home", "calendars", "team.*.json"))
	if err != nil || len(notes) != 1 {
		t.Fatalf("%v %v", notes, err)
	}
	text, err := json.Marshal(map[string]time.Time{"fetched_at": time.Now().Add(-26 * time.Hour), "changed_at": time.Now().Add(-26 * time.Hour), "tried_at": time.Now().Add(-26 * time.Hour)})
	if err == nil {
		err = os.WriteFile(notes[0], text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := decisions(); got != decided {
		t.Errorf("without a daemon:\n%s", got)
	}
	p = endtoend.Serve(t, config)
	cmdtest.Until(t, "it was asked again", func() bool { return strings.Contains(states()["team"].Problem, "is no calendar that can be used") })
	if s := states()["team"]; decisions() != decided || time.Since(s.FetchedAt.Time) < 25*time.Hour || !strings.Contains(s.Text(time.Now()), "fetched 26h0m") {
		t.Errorf("%s\n%s", s.Text(time.Now()), decisions())
	}
	if log := p.Err.String(); strings.Contains(log, "s3cret") {
		t.Errorf("the log quotes the address: %s", log)
	}
	p.Stop(t)
}
