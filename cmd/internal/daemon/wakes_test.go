package daemon

import (
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rouse/agent"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/config/load"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/logging"
	"rouse/internal/ledger"
	"rouse/internal/ledger/wake"
)

// The run of a wake belongs to the history of the job that planned the wake. The explanation of a
// job also lists wakes that the owner planned for its agent.
func TestRunsOfWakes(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
timezone: UTC
agents: [{name: clerk, workdir: ./work, self_scheduling: {mode: ambient}}, {name: maid, workdir: ./work2, self_scheduling: {mode: ambient}}]
jobs:
  - {name: a_b, agent: clerk, playbook: [{call: db_schema}]}
  - {name: axb, agent: clerk, playbook: [{call: db_schema}]}
  - {name: tidy, agent: maid, playbook: [{call: db_schema}]}
`})
	cfg, err := load.Config(yaml.Options{Path: filepath.Join(dir, "rouse.yaml")}, agent.Specs())
	if err != nil {
		t.Fatal(err)
	}
	var ahead atomic.Int64
	d, err := Open(t.Context(), Options{Home: string(cfg.Home), Config: cfg, Logger: logging.Quiet(), Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()

	for _, w := range []wake.Wake{
		{Agent: "clerk", Job: "a_b", Run: 7, ScheduledBy: ledger.ByAgent, Instructions: "one"}, {Agent: "clerk", Job: "axb", Run: 8, ScheduledBy: ledger.ByAgent, Instructions: `"job":"a_b","depth":1`},
		{Agent: "clerk", ScheduledBy: ledger.ByUser, Instructions: "three"}, {Agent: "maid", Job: "tidy", ScheduledBy: ledger.ByAgent, Instructions: "four"},
		{Agent: "clerk", Job: "a_b", Run: 1, ScheduledBy: ledger.ByAgent, Instructions: "five", Depth: 2},
	} {
		w.At = time.Now()
		on, err := d.ledger.Wakes.Usage(t.Context(), w.Agent)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.ledger.Wakes.Set(t.Context(), w, on); err != nil {
			t.Fatal(err)
		}
		planned, err := d.ledger.Wakes.List(t.Context())
		if err != nil || len(planned) != 1 {
			t.Fatalf("%+v (%v)", planned, err)
		}
		if _, err := d.ledger.FireWakes(t.Context(), d.ledger.Now(), 0, planned[0].ID); err != nil {
			t.Fatal(err)
		}
		ahead.Add(int64(time.Minute)) // keep a distance between wakes
	}
	finish(t, d, "a_b", "success") // run 6
	client := api.InProcess(d.Handler)
	for query, want := range map[string][]string{
		"job=a_b": {"6", "5", "1"}, "job=a_b&n=2": {"6", "5"}, "job=a_b&before=5": {"1"}, "job=axb": {"2"}, "job=tidy": {"4"}, "job=a_b&trigger=manual": {"6"},
		"job=a_b&trigger=self": {"5", "1"}, "job=a_b&agent=maid": {}, "job=a_b&state=queued": {"5", "1"}, "job=a_b&outcome=success": {"6"}, "agent=clerk&trigger=self": {"5", "3", "2", "1"},
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		var runs []api.Run
		if err := client.Get(t.Context(), "/v1/runs", q, &runs); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range runs {
			got = append(got, r.ID)
		}
		if !slices.Equal(got, want) && len(got)+len(want) > 0 {
			t.Errorf("%s: runs %v, want %v", query, got, want)
		}
	}

	for job, want := range map[string]string{"a_b": "1 3 5 6", "axb": "2 3", "tidy": "4"} {
		for _, at := range []string{"", "now"} {
			why, err := d.Why(t.Context(), job, at, 20)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range why.Lines {
				got = append(got, l.Run)
				if l.Run == "1" && !strings.HasPrefix(l.Reason, "a wake of the agent clerk, planned by run 7: one") || l.Run == "3" && !strings.HasPrefix(l.Reason, "a wake of the agent clerk, planned by the user: three") {
					t.Errorf("%+v", l)
				}
			}
			slices.Sort(got)
			if strings.Join(got, " ") != want {
				t.Errorf("why %s --at %q: runs %v, want %s", job, at, got, want)
			}
		}
	}
}
