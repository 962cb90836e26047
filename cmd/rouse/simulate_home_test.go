package main

import (
	"path/filepath"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestSimulateOnTheGridOfTheHome checks a job with an interval of seven minutes. A simulation must
// use the same instants as its home, for any start time and for any earlier home that knew the job.
func TestSimulateOnTheGridOfTheHome(t *testing.T) {
	t.Parallel()
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
timezone: UTC
home: ./home
agents: [{name: clerk}]
jobs: [{name: tick, agent: clerk, every: 7m, playbook: [{call: notify, with: {title: hello}}]}]
`}), "rouse.yaml")
	daemon := endtoend.Serve(t, config)
	defer daemon.Stop(t)

	var next []struct{ Nominal api.Time }
	endtoend.RunJSON(t, &next, "next", "tick", "--json", "--config", config)
	if len(next) == 0 {
		t.Fatal("nothing comes")
	}

	for _, by := range []time.Duration{-24 * time.Hour, -time.Minute, 5 * time.Hour} {
		var out []struct{ Nominal api.Time }
		from := next[0].Nominal.Add(by)
		endtoend.RunJSON(t, &out, "simulate", "tick", "--from", from.UTC().Format(time.RFC3339), "--to", from.Add(time.Hour).UTC().Format(time.RFC3339), "--json", "--config", config)
		if len(out) < 8 || out[0].Nominal.Sub(next[0].Nominal.Time)%(7*time.Minute) != 0 {
			t.Errorf("from %s: the home's next is %s, simulated were %v", from, next[0].Nominal, out)
		}
	}
}
