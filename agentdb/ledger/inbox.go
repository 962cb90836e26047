package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"rouse/agentdb/sqlite"
)

// KindInput is an inbox item that asks a person something (UNI-09).
const KindInput = "input"

// The states of an inbox item.
const (
	ItemOpen      = "open"
	ItemAnswered  = "answered"
	ItemExpired   = "expired"   // nobody answered in time
	ItemWithdrawn = "withdrawn" // its run ended otherwise
)

// ErrClosed is an answer to an item that is not open any more.
var ErrClosed = errors.New("it is not open any more")

// Question is what a run asks before it can go on.
type Question struct {
	Title, Message string
	Options        []string // that a person may choose of; none: the answer is free
	Multiple       bool     // several of them
	Expires        time.Duration
}

// Item is something that waits for a person.
type Item struct {
	ID, Run                        int64
	Attempt                        int
	Job, Agent                     string
	Kind, Title, Message           string
	Options                        []string
	Multiple                       bool
	State, Answer                  string
	CreatedAt, ExpiresAt, ClosedAt time.Time
}

const itemColumns = `id, run, attempt, job, agent, kind, title, message, options, multiple, state, answer, created_at, expires_at, closed_at`

func scanItem(row interface{ Scan(...any) error }) (Item, error) {
	var i Item
	var options string
	var multiple int
	var created, expires, closed int64
	if err := row.Scan(&i.ID, &i.Run, &i.Attempt, &i.Job, &i.Agent, &i.Kind, &i.Title, &i.Message, &options, &multiple, &i.State, &i.Answer,
		&created, &expires, &closed); err != nil {
		return i, err
	}
	i.Multiple, i.CreatedAt, i.ExpiresAt, i.ClosedAt = multiple != 0, instant(created), instant(expires), instant(closed)
	return i, json.Unmarshal([]byte(options), &i.Options)
}

func scanItems(rows *sql.Rows) (Item, error) { return scanItem(rows) }

// Inbox lists what waits for a person, the oldest first.
func (l *Ledger) Inbox(ctx context.Context) ([]Item, error) {
	rows, err := l.read.QueryContext(ctx, `select `+itemColumns+` from inbox where state = 'open' order by id`)
	return collect(rows, err, scanItems)
}

// ItemsOf lists what a run has asked, in order.
func (l *Ledger) ItemsOf(ctx context.Context, run int64) ([]Item, error) {
	rows, err := l.read.QueryContext(ctx, `select `+itemColumns+` from inbox where run = $1 order by id`, run)
	return collect(rows, err, scanItems)
}

// Item reads one; ErrNotFound when there is none of that number.
func (l *Ledger) Item(ctx context.Context, id int64) (Item, error) {
	i, err := scanItem(l.read.QueryRowContext(ctx, `select `+itemColumns+` from inbox where id = $1`, id))
	if errors.Is(err, sql.ErrNoRows) {
		return i, fmt.Errorf("inbox item %d is %w", id, ErrNotFound)
	}
	return i, err
}

// ask parks a run until somebody answers: its lane is free, and it survives any restart.
func ask(tx *sqlite.Tx, r Run, res Result, now time.Time) error {
	q := res.Wait
	options := q.Options
	if options == nil {
		options = []string{}
	}
	text, err := json.Marshal(options)
	if err != nil {
		return err
	}
	expires := now.Add(q.Expires)
	var id int64
	if err := tx.QueryRow(`insert into inbox (run, attempt, job, agent, kind, title, message, options, multiple, state, created_at, expires_at)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'open', $10, $11) returning id`,
		r.ID, r.Attempt, r.Job, r.Agent, KindInput, q.Title, q.Message, string(text), flag(q.Multiple), ms(now), ms(expires)).Scan(&id); err != nil {
		return err
	}
	// not_before wakes the dispatcher when the time for an answer is over.
	if _, err := tx.Exec(`update runs set state = 'waiting', waiting_for = 'input', not_before = $1, parks = parks + 1 where id = $2`, ms(expires), r.ID); err != nil {
		return err
	}
	for _, n := range res.Notices {
		if err := addNotice(tx, n, now); err != nil {
			return err
		}
	}
	data := map[string]any{"item": id, "question": q.Message}
	if len(q.Options) > 0 {
		data["options"] = q.Options
	}
	return addEvent(tx, Event{Run: r.ID, Job: r.Job, At: now, Kind: "run.waiting"}, data)
}

// Answer closes an item and lets its run go on; ErrClosed when somebody was faster.
func (l *Ledger) Answer(ctx context.Context, id int64, answer string) (Run, error) {
	now := l.now()
	var run Run
	err := l.do(ctx, func(tx *sqlite.Tx) error {
		i, r, err := l.openItem(tx, id)
		if err != nil {
			return err
		}
		if err := closeItem(tx, i, ItemAnswered, answer, now); err != nil {
			return err
		}
		if _, err := tx.Exec(`update runs set waiting_for = 'resume', not_before = 0 where id = $1`, r.ID); err != nil {
			return err
		}
		run = r
		return addEvent(tx, Event{Run: r.ID, Job: r.Job, At: now, Kind: "run.answered"}, map[string]any{"item": id, "answer": answer})
	})
	return run, err
}

// openItem reads an item that is about to be closed, with its run.
func (l *Ledger) openItem(tx *sqlite.Tx, id int64) (Item, Run, error) {
	i, err := scanItem(tx.QueryRow(`select `+itemColumns+` from inbox where id = $1`+l.lock, id))
	if errors.Is(err, sql.ErrNoRows) {
		return i, Run{}, fmt.Errorf("inbox item %d is %w", id, ErrNotFound)
	}
	if err != nil {
		return i, Run{}, err
	}
	if i.State != ItemOpen {
		return i, Run{}, fmt.Errorf("inbox item %d was %s: %w", id, i.State, ErrClosed)
	}
	r, err := l.runIn(tx, i.Run)
	if err == nil && (r.State != StateWaiting || r.WaitingFor != WaitInput) {
		err = fmt.Errorf("run %d is %s and does not wait for an answer: %w", r.ID, r.State, ErrClosed)
	}
	return i, r, err
}

func closeItem(tx *sqlite.Tx, i Item, state, answer string, now time.Time) error {
	_, err := tx.Exec(`update inbox set state = $1, answer = $2, closed_at = $3 where id = $4`, state, answer, ms(now), i.ID)
	return err
}

// Overdue lists the open items whose time is over.
func (l *Ledger) Overdue(ctx context.Context, now time.Time) ([]Item, error) {
	rows, err := l.read.QueryContext(ctx, `select `+itemColumns+` from inbox where state = 'open' and expires_at <= $1 order by id limit 100`, ms(now))
	return collect(rows, err, scanItems)
}

// Expire ends the run of an item that nobody answered.
func (l *Ledger) Expire(ctx context.Context, id int64, res Result) error {
	now := l.now()
	return l.replan(ctx, func(tx *sqlite.Tx) (paused bool, err error) {
		i, r, err := l.openItem(tx, id)
		if errors.Is(err, ErrClosed) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if err := closeItem(tx, i, ItemExpired, "", now); err != nil {
			return false, err
		}
		return l.finish(tx, r, res, now)
	})
}
