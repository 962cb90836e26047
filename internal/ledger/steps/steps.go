// Package steps stores the steps of runs, which are the turns of a model, and the tool calls in
// them.
package steps

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"rouse/internal/ledger/blob"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"rouse/internal/text"
)

// Steps stores the steps of runs and their tool calls.
type Steps struct {
	DB    *store.DB
	Blobs *blob.Blobs
}

// Record writes entries in order, in one transaction.
func (l *Steps) Record(ctx context.Context, a record.Attempt, entries ...record.Entry) error {
	return record.WriteEntries(ctx, l.Blobs, a, entries)
}

// StartStep records the start of a model turn.
func (l *Steps) StartStep(ctx context.Context, a record.Attempt, s Step) error {
	return l.Record(ctx, a, StepStarted(s))
}

// FinishStep records the answer of the model.
func (l *Steps) FinishStep(ctx context.Context, a record.Attempt, s Step) error {
	return l.Record(ctx, a, StepFinished(s))
}

// StartCall records a call before it has an effect.
func (l *Steps) StartCall(ctx context.Context, a record.Attempt, c record.Call) error {
	return l.Record(ctx, a, CallStarted(c))
}

// FinishCall records the result of a call.
func (l *Steps) FinishCall(ctx context.Context, a record.Attempt, c record.Call) error {
	return l.Record(ctx, a, CallFinished(c))
}

// StepStarted returns the entry that StartStep writes.
func StepStarted(s Step) record.Entry {
	return record.NewEntry(nil, func(tx *store.Tx, a record.Attempt, _, _ string) error {
		_, err := tx.Exec(`insert into steps (run, attempt, number, within, started_at) values ($1, $2, $3, $4, $5)`, a.Run, a.Number, s.Number, s.ParentCall, store.Millis(s.StartedAt))
		return err
	}).Telling(s.StartedAt, "step.started", map[string]any{"step": s.Number})
}

// StepFinished returns the entry that FinishStep writes.
func StepFinished(s Step) record.Entry {
	notices, err := json.Marshal(s.Notices)
	if s.Notices == nil {
		notices = []byte("[]")
	}

	e := record.NewEntry(s.Message, func(tx *store.Tx, a record.Attempt, _, message string) error {
		updated, err := tx.Exec(`update steps set message = $1, body = $2, notices = $3, tokens_in = $4, tokens_out = $5, tokens_cached = $6, cost_micro_usd = $7,
			estimated_tokens = $8, estimated_micro_usd = $9, finished_at = $10, model = $11 where run = $12 and attempt = $13 and number = $14`,
			message, s.Text, string(notices), s.Usage.TokensIn, s.Usage.TokensOut, s.Usage.TokensCached, s.Usage.CostMicroUSD,
			s.Usage.EstimatedTokens, s.Usage.EstimatedMicroUSD, store.Millis(s.FinishedAt), s.Model, a.Run, a.Number, s.Number)
		return record.RequireRow(updated, err, "step %d of run %d ended without having started", s.Number, a.Run)
	}).Failed(err)

	if s.Retries > 0 {
		e = e.Telling(s.FinishedAt, "step.retried", map[string]any{"step": s.Number, "times": s.Retries, "error": text.Truncate(s.RetryError, record.MaxEventText), "model": s.Model})
	}

	data := map[string]any{"step": s.Number, "text": text.Truncate(s.Text, record.MaxEventText), "tokens_in": s.Usage.TokensIn, "tokens_out": s.Usage.TokensOut}
	if s.Usage.CostMicroUSD > 0 {
		data["cost_usd"] = float64(s.Usage.CostMicroUSD) / 1e6
	}
	if s.Usage.EstimatedTokens > 0 {
		data["estimated"] = true
	}
	if s.Model != "" {
		data["model"] = s.Model
	}
	return e.Telling(s.FinishedAt, "step.finished", data)
}

// CallStarted returns the entry that StartCall writes.
func CallStarted(c record.Call) record.Entry {
	return record.NewEntry(c.Args, func(tx *store.Tx, a record.Attempt, _, args string) error {
		_, err := tx.Exec(`insert into calls (run, attempt, step, position, id, key, tool, args, effect, state, started_at)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'running', $10)`,
			a.Run, a.Number, c.Step, c.Index, c.ID, c.Key, c.Tool, args, c.Effect, store.Millis(c.StartedAt))
		return err
	}).Telling(c.StartedAt, "call.started", map[string]any{"step": c.Step, "tool": c.Tool})
}

// CallFinished returns the entry that FinishCall writes.
func CallFinished(c record.Call) record.Entry {
	return record.NewEntry(c.Envelope, func(tx *store.Tx, a record.Attempt, _, envelope string) error {
		updated, err := tx.Exec(`update calls set state = $1, envelope = $2, finished_at = $3 where run = $4 and attempt = $5 and step = $6 and position = $7`,
			c.State, envelope, store.Millis(c.FinishedAt), a.Run, a.Number, c.Step, c.Index)
		return record.RequireRow(updated, err, "call %d in step %d of run %d ended without having started", c.Index, c.Step, a.Run)
	}).Telling(c.FinishedAt, "call.finished", map[string]any{"step": c.Step, "tool": c.Tool, "state": c.State, "ms": c.FinishedAt.Sub(c.StartedAt).Milliseconds()})
}

// List returns the steps of all attempts of a run, in order.
func (l *Steps) List(ctx context.Context, run int64) ([]Step, error) {
	all, err := store.List(store.Reads(ctx, l.DB), func(s *Step) []any {
		return []any{
			&s.Run, &s.Attempt, &s.Number, &s.ParentCall, &s.Model, store.Raw(&s.Message), &s.Text, store.Decoded(&s.Notices),
			&s.Usage.TokensIn, &s.Usage.TokensOut, &s.Usage.TokensCached, &s.Usage.CostMicroUSD,
			&s.Usage.EstimatedTokens, &s.Usage.EstimatedMicroUSD, store.Time(&s.StartedAt), store.Time(&s.FinishedAt),
		}
	}, `select run, attempt, number, within, model, message, body, notices, tokens_in, tokens_out, tokens_cached, cost_micro_usd,
		estimated_tokens, estimated_micro_usd, started_at, finished_at from steps where run = $1 order by attempt, number`, run)
	for i := 0; i < len(all) && err == nil; i++ {
		err = l.Blobs.UnpackColumn(ctx, &all[i].Message)
	}
	return all, err
}

// Calls returns the calls of all attempts of a run, in order.
func (l *Steps) Calls(ctx context.Context, run int64) ([]record.Call, error) {
	all, err := store.List(store.Reads(ctx, l.DB), func(c *record.Call) []any {
		return []any{
			&c.Run, &c.Attempt, &c.Step, &c.Index, &c.ID, &c.Key, &c.Tool, store.Raw(&c.Args), &c.Effect, &c.State, store.Raw(&c.Envelope),
			store.Time(&c.StartedAt), store.Time(&c.FinishedAt),
		}
	}, `select run, attempt, step, position, id, key, tool, args, effect, state, envelope, started_at, finished_at
		from calls where run = $1 order by attempt, step, position`, run)
	for i := 0; i < len(all) && err == nil; i++ {
		err = errors.Join(l.Blobs.UnpackColumn(ctx, &all[i].Args), l.Blobs.UnpackColumn(ctx, &all[i].Envelope))
	}
	return all, err
}

// Step is one turn of a model.
type Step struct {
	Run             int64
	Attempt, Number int
	// ParentCall is the key of the call that the step belongs to. It is empty if the step belongs
	// to the run itself.
	ParentCall string
	Message    json.RawMessage // the assistant's message
	Text       string
	Model      string // configured name of the model that answered
	Notices    []string
	Usage      record.Usage
	// Retries is the number of requests that failed before the answer. RetryError is the error of
	// the last failed request. Both are stored only in an event.
	Retries    int
	RetryError string

	StartedAt, FinishedAt time.Time
}
