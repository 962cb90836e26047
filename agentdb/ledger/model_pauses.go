package ledger

import (
	"context"
	"time"

	"rouse/agentdb/sqlite"
)

// ModelPause is a time in which a model is not asked, because its provider's quota is spent. It
// stays in the record until the model answers again, so that the next one can be longer.
type ModelPause struct {
	Model  string    // by its configured name
	Since  time.Time // when the first request was refused
	Until  time.Time
	Tries  int // how often in a row it has been paused
	Reason string
}

// PauseModel records that a model is not asked until a time. notices are for its owner, who is told of
// the first of several in a row.
func (l *Ledger) PauseModel(ctx context.Context, p ModelPause, notices ...Notice) error {
	now := l.now()
	return l.do(ctx, func(tx *sqlite.Tx) error {
		tx.Run(`insert into model_pauses (model, since, until, tries, reason) values ($1, $2, $3, $4, $5)
			on conflict (model) do update set since = excluded.since, until = excluded.until, tries = excluded.tries, reason = excluded.reason`,
			p.Model, ms(p.Since), ms(p.Until), p.Tries, tx.Redact(p.Reason))

		addNotices(tx, now, notices...)
		return addEvent(tx, Event{At: now, Kind: "model.paused"}, map[string]any{"model": p.Model, "until": p.Until.UTC(), "reason": p.Reason})
	})
}

// ResumeModel records that a model answers again. Runs that wait for their model are due at once: which one that
// is, only they know.
func (l *Ledger) ResumeModel(ctx context.Context, model string) error {
	return l.do(ctx, func(tx *sqlite.Tx) error {
		if paused, err := changed(tx, `delete from model_pauses where model = $1`, model); err != nil || !paused {
			return err
		}

		tx.Run(`update runs set not_before = 0 where not_before <> 0 and state = 'waiting' and waiting_for = 'retry' and postponements > 0`)
		return addEvent(tx, Event{At: l.now(), Kind: "model.resumed"}, map[string]any{"model": model})
	})
}

// ModelPauses lists the models that have not answered since they were paused, by name.
func (l *Ledger) ModelPauses(ctx context.Context) ([]ModelPause, error) {
	return list(l.reads(ctx), func(p *ModelPause) []any {
		return []any{&p.Model, at(&p.Since), at(&p.Until), &p.Tries, &p.Reason}
	}, `select model, since, until, tries, reason from model_pauses order by model`)
}
