package eval

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"rouse/agent"
	"rouse/agent/loop"
	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// worker is the agent that a scenario is given to.
const worker = "worker"

// Report is the result of a scenario.
type Report struct {
	Name     string        `json:"name"`
	About    string        `json:"about"`
	Problems []string      `json:"problems"` // none: it did what is expected
	Run      ledger.Run    `json:"-"`
	Took     time.Duration `json:"-"`
}

// scenarioRun is one run of a scenario, with a ledger and a database of its own.
type scenarioRun struct {
	Scenario
	ledger *ledger.Ledger
	pool   *agentdb.Pool
	runner *agent.Runner
	work   string
	script *script // nil: a real model does it
}

// Run runs a scenario in dir, which it makes, or which must be empty. With m, that model does the
// task instead of the script. An error means that the scenario could not be run.
func Run(ctx context.Context, dir string, s Scenario, m *agent.Model) (Report, error) {
	report := Report{Name: s.Name, About: s.About, Problems: []string{}}
	if err := requireEmpty(dir); err != nil {
		return report, err
	}

	st, err := prepare(ctx, dir, s, m)
	if err != nil {
		return report, err
	}

	// The databases are closed even when the attempts failed, so that the folder can be looked at.
	began := time.Now()
	report.Run, err = st.attempts(ctx)
	report.Took = time.Since(began)
	if err == nil {
		report.Problems, err = st.compare(ctx, report.Run)
	}

	return report, errors.Join(err, st.pool.Close(), st.ledger.Close())
}

// requireEmpty refuses a folder that holds anything: it may be somebody's work, or the home of a
// daemon.
func requireEmpty(dir string) error {
	found, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.MkdirAll(dir, 0o700)
	case err != nil:
		return err
	case len(found) > 0:
		return fmt.Errorf("%s is not empty: a scenario needs an empty folder, so that it cannot overwrite anybody's work", dir)
	}

	return nil
}

// prepare makes the working folder, the ledger, the database, and the agent.
func prepare(ctx context.Context, dir string, s Scenario, m *agent.Model) (_ *scenarioRun, err error) {
	st := &scenarioRun{Scenario: s, work: filepath.Join(dir, "work")}
	for name, text := range s.Files {
		path := filepath.Join(st.work, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}

	if m == nil {
		st.script = &script{turns: s.Script}
		m = &agent.Model{Name: "script", Provider: st.script, Window: s.Window}
	}
	if st.ledger, err = ledger.Open(ctx, ledger.Options{Path: filepath.Join(dir, "ledger.db")}); err != nil {
		return nil, err
	}
	if st.pool, err = agentdb.NewPool(agentdb.PoolOptions{Dir: filepath.Join(dir, "agents")}); err != nil {
		return nil, errors.Join(err, st.ledger.Close())
	}
	if st.runner, err = agent.New(agent.Options{Ledger: st.ledger, Databases: st.pool, Manifests: filepath.Join(dir, "manifests"), Scratch: filepath.Join(dir, "commands")}); err != nil { //nolint:contextcheck // it cleans up after a process that died, which a scenario has none of
		return nil, errors.Join(err, st.pool.Close(), st.ledger.Close())
	}

	// Only the working folder and the database: nothing in a scenario reaches beyond dir.
	st.runner.Set(agent.Plan{Agents: map[string]agent.Agent{worker: {
		Name: worker, Workdir: st.work, Database: true, Model: m, Phased: s.Phased, Bounds: loop.Bounds{Steps: s.Steps, Calls: s.Calls},
	}}})
	return st, nil
}

// attempts makes one attempt after the other, as long as the run asks and the scenario has an
// answer.
func (st *scenarioRun) attempts(ctx context.Context) (ledger.Run, error) {
	queued, err := st.ledger.Enqueue(ctx, ledger.Request{Agent: worker, Trigger: domain.TriggerManual, Detail: ledger.Detail{Prompt: st.Prompt}})
	if err != nil {
		return ledger.Run{}, err
	}

	for {
		run, a, err := st.ledger.StartAttempt(ctx, queued[0].Run)
		if err != nil {
			return run, err
		}

		res, err := st.runner.Execute(ctx, run, a)
		if err != nil {
			return run, err
		}
		// Recorded even if it was interrupted, so that the folder tells what happened.
		if err := st.ledger.Finish(context.WithoutCancel(ctx), a, res); err != nil {
			return run, err
		}
		if run, err = st.ledger.Run(ctx, run.ID); err != nil || run.State == domain.StateFinished || st.Answer == "" {
			return run, err
		}

		// Nobody else writes this ledger, so the first item is the run's question.
		items, err := st.ledger.Inbox(ctx)
		if err != nil || len(items) == 0 {
			return run, err
		}
		if _, err := st.ledger.Answer(ctx, items[0].ID, st.Answer); err != nil {
			return run, err
		}
	}
}
