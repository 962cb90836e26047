package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"rouse/agentdb/sqlite"
)

// maxEventText keeps an event small, in characters: the whole text is in its step.
const maxEventText = 200

// EventProgress is the kind of the event with which a skill says how far its run is: {value, text}, of which the value is 1 when all is done.
const EventProgress = "skill.progress"

// addEvent appends an event; a run's events are numbered from 1.
func addEvent(tx *sqlite.Tx, e Event, data map[string]any) error {
	text := string(e.Data)
	if data != nil {
		raw, err := json.Marshal(data)
		if err != nil {
			return fmt.Errorf("the event %s cannot be recorded: %w", e.Kind, err)
		}
		text = string(raw)
	}
	text = tx.RedactJSON(text)

	// Events of no run are not numbered: seq is 0.
	if e.Run == 0 {
		_, err := tx.Exec(`insert into events (job, at, kind, data) values ($1, $2, $3, $4)`, e.Job, ms(e.At), e.Kind, text)
		return err
	}

	// The cast hides the value from SQLite's planner, which inspects it because of a partial index
	// and would then plan the statement again on every call. And values(…) with a subquery: an
	// insert … select from the same table would be copied to a temporary one first.
	_, err := tx.Exec(`insert into events (run, seq, job, at, kind, data)
		values ($1, (select coalesce(max(seq), 0) + 1 from events where run = cast($1 as bigint) and run <> 0), $2, $3, $4, $5)`,
		e.Run, e.Job, ms(e.At), e.Kind, text)
	return err
}

// maxEventRows is how many events one statement appends.
const maxEventRows = 8

// addEventsOf appends events of one run and job: by one statement for several, for each takes a good part of what a step's record takes.
func addEventsOf(tx *sqlite.Tx, run int64, job string, events []Event) error {
	for some := range slices.Chunk(events, maxEventRows) {
		if len(some) == 1 {
			e := some[0]
			e.Run, e.Job = run, job
			if err := addEvent(tx, e, nil); err != nil {
				return err
			}
			continue
		}

		var last int64
		if err := tx.QueryRow(`select coalesce(max(seq), 0) from events where run = cast($1 as bigint) and run <> 0`, run).Scan(&last); err != nil {
			return err
		}

		args := []any{run, job}
		for i, e := range some {
			args = append(args, last+int64(i)+1, ms(e.At), e.Kind, string(e.Data))
		}
		if _, err := tx.Exec(appendEvents[len(some)], args...); err != nil {
			return err
		}
	}
	return nil
}

// appendEvents are the statements by the number of their events.
var appendEvents = func() (out [maxEventRows + 1]string) {
	rows := ""
	for n := 1; n <= maxEventRows; n++ {
		at := 4*n - 1
		rows += fmt.Sprintf(", ($1, $%d, $2, $%d, $%d, $%d)", at, at+1, at+2, at+3)
		out[n] = `insert into events (run, seq, job, at, kind, data) values ` + rows[2:]
	}
	return out
}()

// AppendEvents records what happened outside the ledger's own operations.
func (l *Ledger) AppendEvents(ctx context.Context, events ...Event) error {
	now := l.now()
	return l.do(ctx, func(tx *sqlite.Tx) error {
		for _, e := range events {
			if e.At.IsZero() {
				e.At = now
			}
			if err := addEvent(tx, e, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// Events lists events, oldest first.
func (l *Ledger) Events(ctx context.Context, f EventFilter) ([]Event, error) {
	if f.Limit <= 0 {
		f.Limit = 1000
	}

	query, args := eventsQuery(f)
	rows, err := l.statements.query(ctx, query, args...)
	e, at, data := Event{}, int64(0), "" // which each row is read into
	return collect(rows, err, func(rows scanner) (Event, error) {
		err := rows.Scan(&e.ID, &e.Run, &e.Seq, &e.Job, &at, &e.Kind, &data)
		e.At, e.Data = instant(at), json.RawMessage(data)
		return e, err
	})
}

// eventsQuery asks for the events that fit a filter. Those of a run are numbered in the order of their ids.
func eventsQuery(f EventFilter) (string, []any) {
	query, order := `select id, run, seq, job, at, kind, data from events where id > $1`, `id`
	args := []any{f.After, f.Limit}
	if f.Run != 0 {
		args = append(args, f.Run)
		// The cast keeps the planner from looking at the value, as in addEvent.
		query += fmt.Sprintf(` and run = cast($%d as bigint) and run <> 0`, len(args))
		order = `seq`
	}

	if f.Job != "" {
		args = append(args, f.Job)
		query += fmt.Sprintf(` and job = $%d`, len(args))
	}
	if !f.Since.IsZero() {
		args = append(args, ms(f.Since))
		query += fmt.Sprintf(` and at >= $%d`, len(args))
	}
	return query + ` order by ` + order + ` limit $2`, args
}

// NewestEvent is the id of the newest event, 0 when there is none.
func (l *Ledger) NewestEvent(ctx context.Context) (id int64, err error) {
	err = l.statements.row(ctx, `select coalesce(max(id), 0) from events`).Scan(&id)
	return id, err
}

// LastEvent is the last event of a run of a kind; false when there is none.
func (l *Ledger) LastEvent(ctx context.Context, run int64, kind string) (e Event, ok bool, err error) {
	var at int64
	var data string
	err = l.statements.row(ctx, `select id, run, seq, job, at, kind, data from events where run = cast($1 as bigint) and run <> 0 and kind = $2 order by seq desc limit 1`, run, kind).
		Scan(&e.ID, &e.Run, &e.Seq, &e.Job, &at, &e.Kind, &data)
	if errors.Is(err, sql.ErrNoRows) {
		return e, false, nil
	}
	e.At, e.Data = instant(at), json.RawMessage(data)
	return e, err == nil, err
}
