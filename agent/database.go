package agent

import (
	"context"
	"errors"
	"log/slog"

	"rouse/agent/notice"
	"rouse/agent/plan"
	"rouse/agentdb"
	"rouse/agentdb/pool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
)

// endQuarantined fails the run if the agent's database is quarantined, and reports the damage in
// the inbox. Otherwise it returns res and err unchanged.
func (r *Runner) endQuarantined(ctx context.Context, t *attempt, res ledger.Result, err error) (ledger.Result, error) {
	if !t.Agent.Database {
		return res, err
	}

	var damaged *pool.QuarantinedError
	if !errors.As(err, &damaged) {
		// The error may have failed only a tool call, so that the run's own error does not contain
		// it.
		if err == nil || !errors.As(r.databases.Quarantined(t.Agent.Name), &damaged) {
			return res, err
		}
	}

	if damaged.UnknownRuns { // the owner can decide this
		asked := r.ledger.Inbox.AskAboutDatabase(context.WithoutCancel(ctx), t.Agent.Name, "the database of "+t.Agent.Name+" holds runs that the ledger does not know", damaged.Error())
		return plan.Failed(domain.OutcomeError, "%s", damaged.Error()), asked
	}

	told := r.ledger.Inbox.AddInfo(context.WithoutCancel(ctx), t.Try, inbox.Question{
		Call: inbox.CallDatabase, Title: "the database of " + t.Agent.Name + " cannot be used", Message: damaged.Error(),
	})
	return plan.Failed(domain.OutcomeError, "%s", damaged.Error()), told
}

// afterAttempt notifies the owner if the database quota is nearly used, and refreshes saved views.
// Errors are logged and do not change the run's result.
func (r *Runner) afterAttempt(ctx context.Context, t *attempt, res ledger.Result) {
	if !t.Agent.Database || !r.databases.Has(t.Agent.Name) || r.databases.Quarantined(t.Agent.Name) != nil {
		return
	}

	ctx = context.WithoutCancel(ctx) // a stopped run may also have written rows
	db, release, err := r.databases.Get(ctx, t.Agent.Name)
	if err == nil {
		defer release()
		tellQuota(ctx, r.ledger, r.log, t, db)
		if res.Wait == nil {
			err = db.Views.Refresh(ctx)
		}
	}

	if err != nil {
		r.log.Warn("saved views could not be refreshed", "agent", t.Agent.Name, "run", t.Run.ID, "error", err)
	}
}

func tellQuota(ctx context.Context, l *ledger.Ledger, log *slog.Logger, t *attempt, db *agentdb.DB) {
	err := db.Quota.Notify(ctx, func(used, limit int64) error {
		return l.Outbox.Append(ctx, notice.DatabaseQuota(&t.Task, used, limit)...)
	})
	if err != nil {
		log.Warn("the owner could not be told of a quota", "agent", t.Agent.Name, "run", t.Run.ID, "error", err)
	}
}
