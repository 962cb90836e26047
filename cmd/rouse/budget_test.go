package main

import (
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// paying returns the path of a configuration with a job whose model has a price.
func paying(t *testing.T, s *modeltest.Server) string {
	text := `version: 1
home: ./home
timezone: Pacific/Kiritimati
limits: {cost_usd_per_day: 0.01}
models: [{name: m, provider: openai, model: scripted, base_url: "` + s.URL + `/v1", max_output: 100, price: {input: 1, output: 10, cached_input: 0.5}}]
agents: [{name: clerk, workdir: ./work, tools: {allow: [todo]}, database: {enabled: false}}]
jobs:
  - {name: report, agent: clerk, prompt: Do it., schedule: "59 59 23 * * *", notify: {on: []}}
`
	return filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": text}), "rouse.yaml")
}

func budgetOf(t *testing.T, config, scope string) api.BudgetRow {
	t.Helper()
	var b api.Budget
	endtoend.RunJSON(t, &b, "budget", "--json", "--config", config)

	for _, r := range b.Budgets {
		if r.Scope == scope {
			return r
		}
	}

	t.Fatalf("no %s in %+v", scope, b)
	return api.BudgetRow{}
}

// TestBudgetOfTheDay checks the cost of a run in its JSON and in the budget of the day. It also
// checks the forecast for the next run.
func TestBudgetOfTheDay(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t, modeltest.Turn{Text: "Done.", Usage: model.Usage{Input: 1000, Output: 100, Cached: 200}})
	config := paying(t, s)
	endtoend.RunJSON(t, nil, "run", "report", "--config", config)
	var d api.RunDetail
	endtoend.RunJSON(t, &d, "show", "1", "--json", "--config", config)
	if d.CostUSD != 0.0019 || len(d.StepsDetail) != 1 || d.StepsDetail[0].CostUSD != 0.0019 {
		t.Errorf("the run cost %v, its steps %+v", d.CostUSD, d.StepsDetail)
	}

	for _, scope := range []string{"daemon", "agent", "job"} {
		r := budgetOf(t, config, scope)
		if r.SpentUSD != 0.0019 || r.SpentTokens != 1100 || r.ReservedUSD != 0 || r.RunsToCome != 1 || r.ForecastUSD != 0.0019 || r.ForecastTokens != 1100 {
			t.Errorf("%+v", r)
		}
		if limited := r.LimitUSD != nil && *r.LimitUSD == 0.01 && *r.LeftUSD == 0.0081; limited != (scope == "daemon") {
			t.Errorf("%s: %+v", scope, r)
		}
	}

	p := endtoend.Rouse(t, "budget", "--config", config)
	if err := p.Run(); err != nil || !strings.Contains(p.Out.String(), "1 run, about $0.0019 and 1100 tokens") {
		t.Errorf("%s (%v)", p.Out.String(), err)
	}
}

// TestKillDuringAPaidCall kills the daemon during a paid call. The budget of the day must include
// the call, with and without a look at the budget before the restart.
func TestKillDuringAPaidCall(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t, modeltest.Turn{Text: "Let me", Hang: true}, modeltest.Turn{Text: "Done.", Usage: model.Usage{Input: 100, Output: 10}})
	config := paying(t, s)
	p := endtoend.Serve(t, config)
	endtoend.RunJSON(t, nil, "run", "report", "--config", config)
	cmdtest.Until(t, "the request", func() bool { return len(s.Requests()) == 1 })
	p.Kill(t)
	held := budgetOf(t, config, "daemon")
	if held.ReservedUSD < 0.001 || held.SpentUSD != 0 || *held.LeftUSD > 0.009 {
		t.Errorf("after the kill: %+v", held)
	}

	p = endtoend.Serve(t, config)
	var runs []api.Run
	cmdtest.Until(t, "the end of the run", func() bool {
		endtoend.RunJSON(t, &runs, "runs", "--json", "--config", config)
		return runs[0].State == "finished"
	})
	p.Stop(t)
	want := held.ReservedUSD + 0.0002
	if r := budgetOf(t, config, "daemon"); r.ReservedUSD != 0 || r.SpentUSD < want-1e-9 || r.SpentUSD > want+1e-9 {
		t.Errorf("after the rescue: %+v, want %v", r, want)
	}
	if r := budgetOf(t, config, "daemon"); r.EstimatedUSD != held.ReservedUSD || r.EstimatedTokens != held.ReservedTokens || !strings.Contains(r.EstimatedWhy, "run 1: its process ended") {
		t.Errorf("what nobody knows is not marked: %+v", r)
	}

	for what, want := range map[string]string{"budget": "estimated: no server or program reported it", "show 1": "estimated)"} {
		p := endtoend.Rouse(t, append(strings.Fields(what), "--config", config)...)
		if err := p.Run(); err != nil || !strings.Contains(p.Out.String(), want) {
			t.Errorf("%s: %s (%v)", what, p.Out.String(), err)
		}
	}

	if r := runs[0]; r.EstimatedUSD != held.ReservedUSD || r.Outcome != "success" || r.Attempt != 2 || r.CostUSD < want-1e-9 || r.CostUSD > want+1e-9 {
		t.Errorf("the run: %+v, want %v", r, want)
	}
}
