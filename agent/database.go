package agent

import (
	"context"
	"errors"

	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// quarantined says why a run must wait for its agent's database: it is being replaced, or cannot
// be used until its owner has decided what is to become of it.
func (r *Runner) quarantined(t *task) string {
	if !t.agent.Database {
		return ""
	}
	if err := r.databases.Quarantined(t.agent.Name); err != nil {
		return err.Error()
	}
	return ""
}

// endQuarantined ends a run that came upon a database which cannot be used. That is no failure of the host:
// the run's record says what can be done, as does an item in the inbox of its owner. The
// agent's later runs are held.
func (r *Runner) endQuarantined(ctx context.Context, t *attempt, res ledger.Result, err error) (ledger.Result, error) {
	if !t.agent.Database {
		return res, err
	}

	var damaged *agentdb.QuarantinedError
	if !errors.As(err, &damaged) {
		// The damage may have shown in a tool, whose call failed, and not in the run's own error.
		if err == nil || !errors.As(r.databases.Quarantined(t.agent.Name), &damaged) {
			return res, err
		}
	}

	if damaged.UnknownRuns { // there is an answer to it
		asked := r.ledger.AskAboutDatabase(context.WithoutCancel(ctx), t.agent.Name, "the database of "+t.agent.Name+" holds runs that the ledger does not know", damaged.Error())
		return failed(domain.OutcomeError, "%s", damaged.Error()), asked
	}

	told := r.ledger.AddInfo(context.WithoutCancel(ctx), t.a, ledger.Question{
		Call: ledger.CallDatabase, Title: "the database of " + t.agent.Name + " cannot be used", Message: damaged.Error(),
	})
	return failed(domain.OutcomeError, "%s", damaged.Error()), told
}

// tables describes the agent's database to its model (OSA-63).
func (r *Runner) tables(ctx context.Context, t *attempt) (string, error) {
	db, release, err := r.databases.Get(ctx, t.agent.Name)
	if err != nil {
		return "", err
	}
	defer release()

	schema, err := db.Schema(ctx)
	if err != nil {
		return "", err
	}
	return schema.Text(t.promptPart(maxTablesText)), nil
}

// afterAttempt does what the end of an attempt brings with it for the agent's database: the owner
// is told of a quota that is nearly used up, and once the run is over the views are refreshed
// that want it. Both are extras: that one does not work ends no run otherwise.
func (r *Runner) afterAttempt(ctx context.Context, t *attempt, res ledger.Result) {
	if !t.agent.Database || !r.databases.Has(t.agent.Name) || r.databases.Quarantined(t.agent.Name) != nil {
		return
	}

	ctx = context.WithoutCancel(ctx) // a run that was stopped has written, too
	db, release, err := r.databases.Get(ctx, t.agent.Name)
	if err == nil {
		defer release()
		r.tellQuota(ctx, t, db)
		if res.Wait == nil {
			err = db.RefreshViews(ctx)
		}
	}

	if err != nil {
		r.log.Warn("saved views could not be refreshed", "agent", t.agent.Name, "run", t.run.ID, "error", err)
	}
}

// tellQuota tells the owner when the agent's database has come to 80 % of its quota: on the
// job's channels, or the first, and once until it is below again (OSA-62). It is an extra: a
// run does not end otherwise for it.
func (r *Runner) tellQuota(ctx context.Context, t *attempt, db *agentdb.DB) {
	err := db.NotifyQuota(ctx, func(used, limit int64) error {
		return r.ledger.AppendNotices(ctx, quotaNotices(t, used, limit)...)
	})
	if err != nil {
		r.log.Warn("the owner could not be told of a quota", "agent", t.agent.Name, "run", t.run.ID, "error", err)
	}
}
