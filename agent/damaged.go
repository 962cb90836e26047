package agent

import (
	"context"
	"errors"

	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// barred says why a run must wait for its agent's database: it is being replaced, or cannot
// be used until its owner has decided what is to become of it.
func (r *Runner) barred(t task) string {
	if !t.agent.Database {
		return ""
	}
	if err := r.databases.Barred(t.agent.Name); err != nil {
		return "database: " + err.Error()
	}
	return ""
}

// met ends a run that met a database which cannot be used. That is no failure of the host:
// the run's record says what can be done, as does an item in the inbox of its owner. The
// agent's later runs are held.
func (r *Runner) met(ctx context.Context, run ledger.Run, a ledger.Attempt, t task, res ledger.Result, err error) (ledger.Result, error) {
	if !t.agent.Database {
		return res, err
	}

	var damaged *agentdb.DamagedError
	if !errors.As(err, &damaged) {
		if err == nil || !errors.As(r.databases.Barred(t.agent.Name), &damaged) {
			return res, err
		}
	}

	told := r.ledger.Inform(context.WithoutCancel(ctx), a, ledger.Question{
		Call: ledger.CallDatabase, Title: "the database of " + t.agent.Name + " cannot be used", Message: damaged.Error(),
	})
	return failed(domain.OutcomeError, "%s", damaged.Error()), told
}
