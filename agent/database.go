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

// endQuarantined ends a run whose database cannot be used, and tells the owner in the inbox.
func (r *Runner) endQuarantined(ctx context.Context, t *attempt, res ledger.Result, err error) (ledger.Result, error) {
	if !t.Agent.Database {
		return res, err
	}

	var damaged *pool.QuarantinedError
	if !errors.As(err, &damaged) {
		// The damage may have shown in a tool, whose call failed, and not in the run's own error.
		if err == nil || !errors.As(r.databases.Quarantined(t.Agent.Name), &damaged) {
			return res, err
		}
	}

	if damaged.UnknownRuns { // there is an answer to it
		asked := r.ledger.Inbox.AskAboutDatabase(context.WithoutCancel(ctx), t.Agent.Name, "the database of "+t.Agent.Name+" holds runs that the ledger does not know", damaged.Error())
		return plan.Failed(domain.OutcomeError, "%s", damaged.Error()), asked
	}

	told := r.ledger.Inbox.AddInfo(context.WithoutCancel(ctx), t.Try, inbox.Question{
		Call: inbox.CallDatabase, Title: "the database of " + t.Agent.Name + " cannot be used", Message: damaged.Error(),
	})
	return plan.Failed(domain.OutcomeError, "%s", damaged.Error()), told
}

// afterAttempt warns of a nearly used quota and refreshes saved views. Its errors do not change the
// run's result.
func (r *Runner) afterAttempt(ctx context.Context, t *attempt, res ledger.Result) {
	if !t.Agent.Database || !r.databases.Has(t.Agent.Name) || r.databases.Quarantined(t.Agent.Name) != nil {
		return
	}

	ctx = context.WithoutCancel(ctx) // a run that was stopped has written, too
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
