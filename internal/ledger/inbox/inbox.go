// Package inbox has what waits for a person: questions, approvals, and other items of runs. It also has the approvals that stand.
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

// The kinds of an inbox item (UNI-09).
const (
	KindInput    = "input"    // a question of a run, which waits for the answer
	KindApproval = "approval" // something that a run may do only if its owner allows it, for which it waits
	KindRecovery = "recovery" // a call that was cut off: what is to become of it, for which its run waits
	KindPause    = "pause"    // a run that its skill paused, until its owner has it go on; it does not expire
	KindInfo     = "info"     // something to know; nothing waits for it, and it does not expire
)

// What an owner can say of a call that was cut off.
const (
	RecoveryDone  = "done"  // it took effect: go on behind it
	RecoveryAgain = "again" // make it again
	RecoverySkip  = "skip"  // go on without it
	RecoveryStop  = "stop"  // end the run
)

// What an owner can say of a run that its skill paused.
const (
	PauseContinue = "continue"
	PauseStop     = "stop" // end the run
)

// ItemPlaceholder is the placeholder in a notice for the number of its inbox item.
const ItemPlaceholder = "\x00item"

// InfoSeen is how an owner acknowledges an info.
const InfoSeen = "seen"

// CallDatabase is the Call of an info that says that an agent's database cannot be used.
const CallDatabase = "database"

// CallFolder is the Call of an info that says that a watched folder does not come to rest after its runs.
const CallFolder = "folder"

// The states of an inbox item.
const (
	ItemOpen      = "open"
	ItemAnswered  = "answered"
	ItemExpired   = "expired"   // nobody answered in time
	ItemWithdrawn = "withdrawn" // its run ended otherwise
)

// ErrClosed is the error of an answer to an item that is not open any more.
var ErrClosed = errors.New("it is not open any more")

// AnswerError is an answer that does not fit the schema of its item, field by field. It is ErrInvalidAnswer.
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

// ErrInvalidAnswer is the error of an answer that an item does not offer.
var ErrInvalidAnswer = errors.New("it is none of its answers")

// Question is what a run asks before it can go on, or tells its owner.
type Question struct {
	Kind           string // "" is KindInput
	Action         Action // of an approval: what is to be allowed
	Call           string // the key of the call that it is about, if any
	Title, Message string
	Options        []string // that a person may choose of; none: the answer is free
	Multiple       bool     // several of them
	// InputSchema is the JSON Schema of the answer (OSL-31); nil: it is a text. See package form for what it may say.
	InputSchema json.RawMessage
	Expires     time.Duration
}

// Item is something that waits for a person.
type Item struct {
	ID, Run                        int64
	Attempt                        int
	Job, Agent                     string
	Kind, Title, Message           string
	Options                        []string
	Multiple                       bool
	InputSchema                    json.RawMessage // of the answer; nil: it is a text
	State, Answer                  string
	Call                           string // the key of the call that it is about
	Action                         Action // of an approval
	Used                           string // of an approval: the key of the call that it was used for
	Reason                         string // why its owner denies it, if they say so
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

// Inbox has what waits for a person, and the approvals that stand.
type Inbox struct{ DB *store.DB }

// List lists what waits for a person, the oldest first.
func (l *Inbox) List(ctx context.Context) ([]Item, error) {
	return store.List(store.Reads(ctx, l.DB), itemFields, openItems)
}

// Closed lists what waited for a person and does no more, the newest first: those whose numbers are below before, or all (0).
func (l *Inbox) Closed(ctx context.Context, before int64, limit int) ([]Item, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	return store.List(store.Reads(ctx, l.DB), itemFields, `select `+itemColumns+` from inbox where state <> 'open' and id < $1 order by id desc limit $2`, before, limit)
}

// OfRun lists what a run has asked, in order.
func (l *Inbox) OfRun(ctx context.Context, run int64) ([]Item, error) {
	return store.List(store.Reads(ctx, l.DB), itemFields, `select `+itemColumns+` from inbox where run = $1 order by id`, run)
}

// Get reads one; ErrNotFound when there is none of that number.
func (l *Inbox) Get(ctx context.Context, id int64) (Item, error) {
	i, err := store.One(store.Reads(ctx, l.DB), itemFields, `select `+itemColumns+` from inbox where id = $1`, id)
	return store.OrNotFound(i, err, "inbox item %d", id)
}

// Park parks a run until somebody answers: its lane is free, and it survives any restart.
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

	// The owner was informed of this call before; now they are asked about it.
	if q.Call != "" {
		tx.Run(`update inbox set state = 'withdrawn', closed_at = $1 where run = $2 and call = $3 and kind = 'info' and state = 'open'`, store.Millis(now), r.ID, q.Call)
	}

	var expires time.Time // a pause has no end
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

	// not_before wakes the dispatcher when the time for an answer is over.
	tx.Run(`update runs set state = 'waiting', waiting_for = $1, not_before = $2, parks = parks + 1 where id = $3`, waits, store.Millis(expires), r.ID)

	if !asked { // one item stands for all runs that ask the same, so one notice is enough
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

// addItem puts a question into the inbox; 0 when its owner was informed of the same call before.
func addItem(tx *store.Tx, r record.Run, q Question, now, expires time.Time) (int64, error) {
	text, err := json.Marshal(append([]string{}, q.Options...)) // never null
	if err != nil {
		return 0, err
	}
	return store.OrZero(store.Value[int64](tx, `insert into inbox (run, attempt, job, agent, kind, title, message, options, multiple, state, call, created_at, expires_at, tool, action, hash, input_schema)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'open', $10, $11, $12, $13, $14, $15, $16) on conflict do nothing returning id`,
		r.ID, r.Attempt, r.Job, r.Agent, q.Kind, tx.Redact(q.Title), tx.Redact(q.Message), tx.RedactJSON(string(text)), store.Flag(q.Multiple), q.Call, store.Millis(now), store.Millis(expires),
		q.Action.Tool, tx.Redact(q.Action.Description), q.Action.Hash, tx.RedactJSON(string(q.InputSchema))))
}

// AddInfo tells the owner of an attempt's run something that nothing waits for, once for each
// call that it concerns.
func (l *Inbox) AddInfo(ctx context.Context, a record.Attempt, q Question) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		r, err := record.CheckFence(tx, l.DB, a)
		if err != nil {
			return err
		}
		return AddInfo(tx, r, q, l.DB.Now())
	})
}

// AddRunInfo is AddInfo for a run that need not be on.
func (l *Inbox) AddRunInfo(ctx context.Context, run int64, q Question) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		r, err := record.LockRun(tx, l.DB, run)
		if err != nil {
			return err
		}
		return AddInfo(tx, r, q, l.DB.Now())
	})
}

func AddInfo(tx *store.Tx, r record.Run, q Question, now time.Time) error {
	// An info is acknowledged, not answered, and never expires.
	q.Kind, q.Options, q.Multiple, q.InputSchema = KindInfo, []string{InfoSeen}, false, nil
	id, err := addItem(tx, r, q, now, time.Time{})
	if err != nil || id == 0 {
		return err
	}
	return record.AddEvent(tx, record.Event{Run: r.ID, Job: r.Job, At: now, Kind: "run.info"}, map[string]any{"item": id, "text": q.Message})
}

// AddUncertainCallInfos informs the owner of the calls in which an attempt was cut off, when no
// other attempt follows that could ask about them.
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

// Fit is an answer to an item with an input schema as it is stored; the error is an *AnswerError.
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

// HasAnswer reports whether a question was answered in the same way.
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

// Expired reports whether it is too late to answer an item. One without a deadline never expires.
func (i Item) Expired(now time.Time) bool {
	return !i.ExpiresAt.IsZero() && !i.ExpiresAt.Equal(i.CreatedAt) && !now.Before(i.ExpiresAt)
}

// Lock reads an item that is about to be closed, with its run.
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

func Close(tx *store.Tx, i Item, state, answer, reason string, now time.Time) {
	switch { // the answers to other kinds are words of ours
	case len(i.InputSchema) > 0:
		answer = tx.RedactJSON(answer)
	case i.Kind == KindInput:
		answer = tx.Redact(answer)
	}
	tx.Run(`update inbox set state = $1, answer = $2, reason = $3, closed_at = $4 where id = $5`, state, answer, tx.Redact(reason), store.Millis(now), i.ID)
}

// Overdue lists the open items that have expired, and whose runs have to be ended.
func (l *Inbox) Overdue(ctx context.Context, now time.Time) ([]Item, error) {
	return store.List(store.Reads(ctx, l.DB), itemFields, `select `+itemColumns+` from inbox where state = 'open' and expires_at <> 0 and expires_at <= $1 order by id limit 100`, store.Millis(now))
}

// Withdraw closes the items of a run that ends without an answer to them. An info stays open, because nothing waits for it.
func Withdraw(tx *store.Tx, r record.Run, now time.Time) {
	if r.WaitsForPerson() {
		tx.Run(`update inbox set state = 'withdrawn', closed_at = $1 where run = $2 and state = 'open' and kind <> 'info'`, store.Millis(now), r.ID)
	}
}

// WithdrawInfos closes the open infos of a run whose calls have this prefix.
func WithdrawInfos(tx *store.Tx, run int64, call string, now time.Time) {
	tx.Run(`update inbox set state = 'withdrawn', closed_at = $1 where run = $2 and kind = 'info' and state = 'open' and call like $3`, store.Millis(now), run, call+"%")
}
