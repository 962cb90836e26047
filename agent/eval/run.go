package eval

import (
	"context"
	"errors"
	"time"

	"rouse/agent"
	"rouse/agent/loop"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// Report is the result of a scenario.
type Report struct {
	Name     string        `json:"name"`
	About    string        `json:"about"`
	Problems []string      `json:"problems"` // none: it did what is expected
	Run      ledger.Run    `json:"-"`
	Took     time.Duration `json:"-"`
}

// scenarioRun is one run of a scenario.
type scenarioRun struct {
	Scenario
	*World
	script *script // nil: a real model does it
}

// Run runs a scenario in dir, which it makes, or which must be empty. With m, that model does the
// task instead of the script. An error means that the scenario could not be run.
func Run(ctx context.Context, dir string, s Scenario, m *agent.Model) (Report, error) {
	report := Report{Name: s.Name, About: s.About, Problems: []string{}}
	world, err := Open(ctx, dir, s.Files)
	if err != nil {
		return report, err
	}

	st := &scenarioRun{Scenario: s, World: world}
	if m == nil {
		st.script = &script{turns: s.Script}
		m = &agent.Model{Name: "script", Provider: st.script, Window: s.Window}
	}
	// Only the working folder and the database: nothing in a scenario reaches beyond dir.
	st.Runner.Set(agent.Plan{Agents: map[string]agent.Agent{Worker: {
		Name: Worker, Workdir: st.Work, Database: true, Model: m, Phased: s.Phased, Bounds: loop.Bounds{Steps: s.Steps, Calls: s.Calls},
	}}})

	// The databases are closed even when the attempts failed, so that the folder can be looked at.
	began := time.Now()
	report.Run, err = st.Play(ctx, ledger.Request{Agent: Worker, Trigger: domain.TriggerManual, Detail: ledger.Detail{Prompt: st.Prompt}},
		func(ledger.Item) (string, bool) { return st.Answer, st.Answer != "" })
	report.Took = time.Since(began)
	if err == nil {
		report.Problems, err = st.compare(ctx, report.Run)
	}

	return report, errors.Join(err, st.Close())
}
