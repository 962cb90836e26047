// Package inbox stores questions, approvals and other items of runs that wait for their owner. It
// also stores standing approvals.
package inbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/form"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// Kinds of inbox items.
const (
	KindInput    = "input"    // question of a run, which waits for the answer
	KindApproval = "approval" // action that needs the owner's approval; the run waits for it
	// KindRecovery asks how to continue after an interrupted call. The run waits for the answer.
	KindRecovery = "recovery"
	// KindPause asks whether to continue a run that its skill paused. It does not expire.
	KindPause = "pause"
	// KindInfo is information for the owner. No run waits for it, and it does not expire.
	KindInfo = "info"
)

// Answers of an owner about an interrupted call.
const (
	RecoveryDone  = "done"  // the call took effect; continue after it
	RecoveryAgain = "again" // repeat the call
	RecoverySkip  = "skip"  // continue without the call
	RecoveryStop  = "stop"  // end the run
)

// Answers of an owner about a run that its skill paused.
const (
	PauseContinue = "continue"
	PauseStop     = "stop" // end the run
)

// ItemPlaceholder stands for the inbox item's number in the text of a notice.
const ItemPlaceholder = "\x00item"

// InfoSeen is the answer that acknowledges an info.
const InfoSeen = "seen"

// CallDatabase is the Call of an info about an agent's database that cannot be used.
const CallDatabase = "database"

// CallFolder is the Call of an info about a watched folder that does not become stable after its
// runs.
const CallFolder = "folder"

// States of an inbox item.
const (
	ItemOpen      = "open"
	ItemAnswered  = "answered"
	ItemExpired   = "expired"   // not answered in time
	ItemWithdrawn = "withdrawn" // its run ended without an answer
)

// ErrClosed is returned for an answer to an item that is no longer open.
var ErrClosed = errors.New("it is not open any more")

// AnswerError describes an answer that does not match the schema of its item. It wraps
// ErrInvalidAnswer.
type AnswerError struct {
	Item     int64
	Problems []form.Problem
}

func (e *AnswerError) Error() string {
	var all []string
	for _, p := range e.Problems {
		all = append(all, p.String())
	}
	return fmt.Sprintf("the answer to inbox item %d does not fit: %s", e.Item, strings.Join(all, "; "))
}

func (e *AnswerError) Unwrap() error { return ErrInvalidAnswer }

// ErrInvalidAnswer is returned for an answer that the item does not offer.
var ErrInvalidAnswer = errors.New("it is none of its answers")

// Question is a question that a run asks before it can continue, or information for its owner.
type Question struct {
	Kind           string // empty means KindInput
	Action         Action // action to approve, if Kind is KindApproval
	Call           string // key of the call the question is about, if any
	Title, Message string
	Options        []string // possible answers; empty means free text
	Multiple       bool     // allows several options
	// InputSchema is the JSON Schema of the answer. If nil, the answer is text. See package form
	// for the supported keywords.
	InputSchema json.RawMessage
	Expires     time.Duration
}

// Item is an inbox item that waits for a person.
type Item struct {
	ID, Run                        int64
	Attempt                        int
	Job, Agent                     string
	Kind, Title, Message           string
	Options                        []string
	Multiple                       bool
	InputSchema                    json.RawMessage // JSON Schema of the answer; nil means text
	State, Answer                  string
	Call                           string // key of the call the item is about
	Action                         Action // for approvals
	Used                           string // for approvals: key of the call that used it
	Reason                         string // owner's reason for denying; optional
	CreatedAt, ExpiresAt, ClosedAt time.Time
}

const openItems = `select ` + itemColumns + ` from inbox where state = 'open' order by id`

const itemColumns = `id, run, attempt, job, agent, kind, title, message, options, multiple, state, answer, call, created_at, expires_at, closed_at, tool, action, hash, used, reason, input_schema`

func itemFields(i *Item) []any {
	return []any{
		&i.ID, &i.Run, &i.Attempt, &i.Job, &i.Agent, &i.Kind, &i.Title, &i.Message, store.Decoded(&i.Options), &i.Multiple, &i.State, &i.Answer, &i.Call,
		store.Time(&i.CreatedAt), store.Time(&i.ExpiresAt), store.Time(&i.ClosedAt), &i.Action.Tool, &i.Action.Description, &i.Action.Hash, &i.Used, &i.Reason, store.Raw(&i.InputSchema),
	}
}

// Inbox stores the items that wait for a person, and the standing approvals.
type Inbox struct{ DB *store.DB }

// List returns the open items, oldest first.
func (l *Inbox) List(ctx context.Context) ([]Item, error) {
	return store.List(store.Reads(ctx, l.DB), itemFields, openItems)
}

// Closed returns closed items, newest first. If before is not 0, it returns only items with an ID
// below before.
func (l *Inbox) Closed(ctx context.Context, before int64, limit int) ([]Item, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	return store.List(store.Reads(ctx, l.DB), itemFields, `select `+itemColumns+` from inbox where state <> 'open' and id < $1 order by id desc limit $2`, before, limit)
}

// OfRun returns the items of a run, in order.
func (l *Inbox) OfRun(ctx context.Context, run int64) ([]Item, error) {
	return store.List(store.Reads(ctx, l.DB), itemFields, `select `+itemColumns+` from inbox where run = $1 order by id`, run)
}

// Get returns an item. It returns ErrNotFound if the item does not exist.
func (l *Inbox) Get(ctx context.Context, id int64) (Item, error) {
	i, err := store.One(store.Reads(ctx, l.DB), itemFields, `select `+itemColumns+` from inbox where id = $1`, id)
	return store.OrNotFound(i, err, "inbox item %d", id)
}

// Park makes a run wait for an answer. The run frees its lane, and keeps waiting after a restart.
func Park(tx *store.Tx, r record.Run, q Question, notices []record.Notice, now time.Time) error {
	waits := domain.WaitInput
	switch q.Kind {
	case "":
		q.Kind = KindInput
	case KindApproval:
		waits = domain.WaitApproval
	case KindPause:
		waits = domain.WaitPause
	}

	// The question replaces an earlier info about the same call.
	if q.Call != "" {
		tx.Run(`update inbox set state = 'withdrawn', closed_at = $1 where run = $2 and call = $3 and kind = 'info' and state = 'open'`, store.Millis(now), r.ID, q.Call)
	}

	var expires time.Time // zero for a pause, which does not expire
	if q.Kind != KindPause {
		expires = now.Add(q.Expires)
	}
	if err := q.identify(r); err != nil {
		return err
	}
	asked, err := isAsked(tx, r.Agent, q)
	if err != nil {
		return err
	}

	id, err := addItem(tx, r, q, now, expires)
	if err != nil {
		return err
	}

	// not_before wakes the dispatcher when the question expires.
	tx.Run(`update runs set state = 'waiting', waiting_for = $1, not_before = $2, parks = parks + 1 where id = $3`, waits, store.Millis(expires), r.ID)

	if !asked { // one item stands for all runs with the same question, so one notice is enough
		for _, n := range notices {
			n.Body = strings.ReplaceAll(n.Body, ItemPlaceholder, fmt.Sprint(id))
			record.AddNotices(tx, now, n)
		}
	}

	data := map[string]any{"item": id, "kind": q.Kind, "question": q.Message}
	if q.Action.Description != "" {
		data["action"] = q.Action.Description
	}

	if q.Kind == KindInput {
		data["allow_multiple"] = q.Multiple
	}

	if len(q.Options) > 0 {
		data["options"] = q.Options
	}

	if len(q.InputSchema) > 0 {
		data["input_schema"] = q.InputSchema
	}

	return record.AddEvent(tx, record.Event{Run: r.ID, Job: r.Job, At: now, Kind: "run.waiting"}, data)
}

// addItem adds an item to the inbox. It returns 0 if an info about the same call exists.
func addItem(tx *store.Tx, r record.Run, q Question, now, expires time.Time) (int64, error) {
	text, err := json.Marshal(append([]string{}, q.Options...)) // not null if there are no options
	if err != nil {
		return 0, err
	}
	return store.OrZero(store.Value[int64](tx, `insert into inbox (run, attempt, job, agent, kind, title, message, options, multiple, state, call, created_at, expires_at, tool, action, hash, input_schema)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'open', $10, $11, $12, $13, $14, $15, $16) on conflict do nothing returning id`,
		r.ID, r.Attempt, r.Job, r.Agent, q.Kind, tx.Redact(q.Title), tx.Redact(q.Message), tx.RedactJSON(string(text)), store.Flag(q.Multiple), q.Call, store.Millis(now), store.Millis(expires),
		q.Action.Tool, tx.Redact(q.Action.Description), q.Action.Hash, tx.RedactJSON(string(q.InputSchema))))
}

// AddInfo adds an info to the inbox, at most once for each call of a run.
func (l *Inbox) AddInfo(ctx context.Context, a record.Attempt, q Question) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		r, err := record.CheckFence(tx, l.DB, a)
		if err != nil {
			return err
		}
		return AddInfo(tx, r, q, l.DB.Now())
	})
}

// AddRunInfo adds an info like AddInfo, but the run does not have to be running.
func (l *Inbox) AddRunInfo(ctx context.Context, run int64, q Question) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		r, err := record.LockRun(tx, l.DB, run)
		if err != nil {
			return err
		}
		return AddInfo(tx, r, q, l.DB.Now())
	})
}

// AddInfo adds an info to the inbox in a transaction, at most once for each call of a run.
func AddInfo(tx *store.Tx, r record.Run, q Question, now time.Time) error {
	// An info is acknowledged, not answered, and does not expire.
	q.Kind, q.Options, q.Multiple, q.InputSchema = KindInfo, []string{InfoSeen}, false, nil
	id, err := addItem(tx, r, q, now, time.Time{})
	if err != nil || id == 0 {
		return err
	}
	return record.AddEvent(tx, record.Event{Run: r.ID, Job: r.Job, At: now, Kind: "run.info"}, map[string]any{"item": id, "text": q.Message})
}

// AddUncertainCallInfos adds an info for each call during which an attempt was interrupted. It is
// for attempts without a successor that could ask about the calls.
func AddUncertainCallInfos(tx *store.Tx, r record.Run, attempt int, now time.Time) error {
	calls, err := store.List(tx, func(c *record.Call) []any { return []any{&c.Key, &c.Tool} }, `select key, tool from calls where run = $1 and attempt = $2 and state = 'uncertain' order by step, position`, r.ID, attempt)
	if err != nil {
		return err
	}

	for _, c := range calls {
		if err := AddInfo(tx, r, Question{Call: c.Key, Title: cmp.Or(r.Job, r.Agent) + " was cut off",
			Message: fmt.Sprintf("Run %d ended during a call of %s. Whether that took effect is not known; it is not made again by itself. See: rouse show %d", r.ID, c.Tool, r.ID)}, now); err != nil {
			return err
		}
	}

	return nil
}

// Fit checks an answer against the item's input schema and returns it in its stored form. It
// returns an *AnswerError if the answer does not match.
func (i Item) Fit(answer string) (string, error) {
	f, err := form.Parse(i.InputSchema)
	if err != nil {
		return "", fmt.Errorf("the input schema of inbox item %d cannot be used: %w", i.ID, err)
	}

	fitted, problems := f.Check(json.RawMessage(answer))
	if len(problems) > 0 {
		return "", &AnswerError{i.ID, problems}
	}
	return string(fitted), nil
}

// HasAnswer reports whether the question was already answered with the same answer.
func (i Item) HasAnswer(answer string) bool {
	if i.Kind != KindInput || i.State != ItemAnswered {
		return false
	}
	if len(i.InputSchema) > 0 {
		fitted, err := i.Fit(answer)
		return err == nil && fitted == i.Answer
	}
	return answer == i.Answer
}

// Expired reports whether the item can no longer be answered. An item without a deadline does not
// expire.
func (i Item) Expired(now time.Time) bool {
	return !i.ExpiresAt.IsZero() && !i.ExpiresAt.Equal(i.CreatedAt) && !now.Before(i.ExpiresAt)
}

// Lock returns an open item and its run, and locks them for an update. It returns ErrClosed if the
// item is not open or its run does not wait for an answer.
func Lock(tx *store.Tx, db *store.DB, id int64) (Item, record.Run, error) {
	i, err := store.One(tx, itemFields, `select `+itemColumns+` from inbox where id = $1`+db.ForUpdate, id)
	if i, err = store.OrNotFound(i, err, "inbox item %d", id); err != nil {
		return i, record.Run{}, err
	}
	if i.State != ItemOpen {
		return i, record.Run{}, fmt.Errorf("inbox item %d was %s: %w", id, i.State, ErrClosed)
	}

	r, err := record.LockRun(tx, db, i.Run)
	if err == nil && i.Kind != KindInfo && !r.WaitsForPerson() {
		err = fmt.Errorf("run %d is %s and does not wait for an answer: %w", r.ID, r.State, ErrClosed)
	}

	return i, r, err
}

// Close closes an item with a state and an answer. It redacts text written by a person.
func Close(tx *store.Tx, i Item, state, answer, reason string, now time.Time) {
	switch { // answers to other kinds are fixed words
	case len(i.InputSchema) > 0:
		answer = tx.RedactJSON(answer)
	case i.Kind == KindInput:
		answer = tx.Redact(answer)
	}
	tx.Run(`update inbox set state = $1, answer = $2, reason = $3, closed_at = $4 where id = $5`, state, answer, tx.Redact(reason), store.Millis(now), i.ID)
}

// Overdue returns open items that have expired. The caller must end their runs.
func (l *Inbox) Overdue(ctx context.Context, now time.Time) ([]Item, error) {
	return store.List(store.Reads(ctx, l.DB), itemFields, `select `+itemColumns+` from inbox where state = 'open' and expires_at <> 0 and expires_at <= $1 order by id limit 100`, store.Millis(now))
}

// Withdraw closes the items of a run that ends without answers to them. An info stays open, because
// the run does not wait for it.
func Withdraw(tx *store.Tx, r record.Run, now time.Time) {
	if r.WaitsForPerson() {
		tx.Run(`update inbox set state = 'withdrawn', closed_at = $1 where run = $2 and state = 'open' and kind <> 'info'`, store.Millis(now), r.ID)
	}
}

// WithdrawInfos closes the open infos of a run if their Call begins with the prefix call.
func WithdrawInfos(tx *store.Tx, run int64, call string, now time.Time) {
	tx.Run(`update inbox set state = 'withdrawn', closed_at = $1 where run = $2 and kind = 'info' and state = 'open' and call like $3`, store.Millis(now), run, call+"%")
}
