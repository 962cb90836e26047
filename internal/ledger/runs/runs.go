// Package runs reads runs, their attempts, and the instants of schedules.
package runs

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/blob"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"rouse/internal/ledger/wake"
)

// Runs reads runs and their attempts.
type Runs struct {
	DB    *store.DB
	Blobs *blob.Blobs
}

// Get reads one run; ErrNotFound when there is none of that number.
func (l *Runs) Get(ctx context.Context, id int64) (record.Run, error) {
	r, err := store.One(store.Reads(ctx, l.DB), record.RunFields, `select `+record.RunColumns+` from runs where id = $1`, id)
	return store.OrNotFound(r, err, "run %d", id)
}

// ByID reads runs; those that there are not are left out.
func (l *Runs) ByID(ctx context.Context, ids []int64) (map[int64]record.Run, error) {
	out := make(map[int64]record.Run, len(ids))
	for some := range slices.Chunk(ids, record.IdsAtOnce) {
		found, err := store.List(store.Reads(ctx, l.DB), record.RunFields, `select `+record.RunColumns+` from runs where id in (`+record.IdPlaces+`)`, record.IdArgs(some)...)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			out[r.ID] = r
		}
	}
	return out, nil
}

// List lists runs, newest first.
func (l *Runs) List(ctx context.Context, f Filter) ([]record.Run, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	if err := boundByTime(ctx, l.DB, &f); err != nil {
		return nil, err
	}

	query, args := runsQuery(f)
	if f.Brief {
		return store.List(store.Reads(ctx, l.DB), briefFields, query, args...)
	}
	return store.List(store.Reads(ctx, l.DB), record.RunFields, query, args...)
}

// briefColumns are those of a RunFilter that is Brief.
const briefColumns = `id, job, state, waiting_for, outcome, queued_at, started_at, finished_at, cost_micro_usd`

func briefFields(r *record.Run) []any {
	return []any{&r.ID, &r.Job, &r.State, &r.WaitingFor, &r.Outcome, store.Time(&r.QueuedAt), store.Time(&r.StartedAt), store.Time(&r.FinishedAt), &r.Usage.CostMicroUSD}
}

// LastUsages are what the last runs of a job used that have begun and are over, of the last so many that are over.
func (l *Runs) LastUsages(ctx context.Context, job string, of int) ([]record.Usage, error) {
	return store.List(store.Reads(ctx, l.DB), func(u *record.Usage) []any {
		return []any{&u.TokensIn, &u.TokensOut, &u.CostMicroUSD, &u.EstimatedMicroUSD}
	}, lastUsages, job, of)
}

// What never began would say that runs cost nothing.
const lastUsages = `select tokens_in, tokens_out, cost_micro_usd, estimated_micro_usd from (select tokens_in, tokens_out, cost_micro_usd, estimated_micro_usd, attempt, outcome from runs where job = $1 and state = 'finished' order by id desc limit $2) latest
	where attempt > 0 and outcome <> 'skipped'`

// runsQuery asks for the runs that fit a filter. Nothing counts the rows for SQLite's planner, so the terms are written such
// that it takes the index that leaves the fewest: what is not over, then the job, then how runs ended, then the agent.
func runsQuery(f Filter) (string, []any) {
	var where []string
	var args []any
	add := func(condition string, arg any) {
		args = append(args, arg)
		where = append(where, fmt.Sprintf(condition, len(args)))
	}
	open := f.State != "" && f.State != domain.StateFinished
	rare := f.Outcome != "" && f.Outcome != domain.OutcomeSuccess && f.Outcome != domain.OutcomeNothing && !open
	switch {
	case f.Woken:
		where = append(where, "triggered_by = 'self'", rareTrigger)
		if f.Job != "" {
			add("detail like $%d escape '!'", "%"+escapeLike(wake.Of(f.Job))+"%")
		}
	case f.Job != "":
		add("job = $%d", f.Job)
	}

	if f.Agent != "" {
		agent := "agent = $%d"
		if f.Job != "" || open {
			agent = "agent || '' = $%d" // not by its index
		}
		add(agent, f.Agent)
	}

	if f.Trigger != "" {
		trigger := "triggered_by = $%d"
		if f.Job != "" || f.Agent != "" || open || rare {
			trigger = "triggered_by || '' = $%d"
		} else if f.Trigger != domain.TriggerSchedule && f.Trigger != domain.TriggerWatch {
			trigger += " and " + rareTrigger
		}
		add(trigger, string(f.Trigger))
	}

	if f.Outcome != "" {
		add("outcome = $%d", string(f.Outcome))
	}
	if rare {
		where = append(where, rareOutcome)
	}

	switch f.State {
	case "":
	case domain.StateFinished:
		// As in the condition of an index: SQLite looks at a value that it compares with one, and plans the statement again each time.
		where = append(where, "state = 'finished'")
	default:
		add("state = $%d", string(f.State))
	}
	if open {
		where = append(where, "state <> 'finished'")
	}

	if !f.Since.IsZero() {
		add("queued_at >= $%d", store.Millis(f.Since))
	}

	if !f.Until.IsZero() {
		add("queued_at < $%d", store.Millis(f.Until))
	}

	if f.Text != "" {
		add(runText, likePattern(f.Text))
	}

	if f.Session != "" {
		add("detail like $%d escape '!'", "%"+escapeLike(sessionOf(f.Session))+"%")
	}

	if f.Before > 0 {
		add("id < $%d", f.Before)
	}

	if f.After > 0 {
		add("id > $%d", f.After)
	}

	columns := record.RunColumns
	if f.Brief {
		columns = briefColumns
	}

	query := `select ` + columns + ` from runs`
	if len(where) > 0 {
		query += ` where ` + strings.Join(where, ` and `)
	}

	args = append(args, f.Limit)
	return query + fmt.Sprintf(` order by id desc limit $%d`, len(args)), args
}

// What the indexes of outcomes and triggers hold: most runs succeed, or are started by schedules and folders, and need no entry
// to be found soon.
const (
	rareOutcome = `outcome not in ('', 'success', 'nothing')`
	rareTrigger = `triggered_by not in ('schedule', 'watch')`
)

// clockSlack is how far a clock may have been set back in all without runs being overlooked that are searched for by time.
const clockSlack = 25 * time.Hour

// boundByTime has a listing of a time look at the runs of about that time only, and not at all of them until it has enough.
func boundByTime(ctx context.Context, db *store.DB, f *Filter) error {
	if !f.Since.IsZero() {
		first, err := firstRunFrom(ctx, db, "", f.Since.Add(-clockSlack))
		if err != nil {
			return err
		}
		f.After = max(f.After, first-1)
	}

	if !f.Until.IsZero() {
		end, err := firstRunFrom(ctx, db, "", f.Until.Add(clockSlack))
		if err != nil {
			return err
		}
		if f.Before == 0 || end < f.Before {
			f.Before = max(end, 1)
		}
	}
	return nil
}

// runText finds a text in what a run says of itself, and in what its model said.
const runText = `(lower(summary) like $%[1]d escape '!' or lower(error) like $%[1]d escape '!'
	or exists (select 1 from steps s where s.run = runs.id and lower(s.body) like $%[1]d escape '!'))`

// likePattern finds a text anywhere, whatever signs it has.
func likePattern(text string) string {
	return "%" + escapeLike(strings.ToLower(text)) + "%"
}

// escapeLike is a text of which like, with the escape !, finds the same signs alone.
func escapeLike(text string) string {
	return strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(text)
}

// sessionOf is how the key of a session stands in the detail of a run. It may stand elsewhere in a detail, too.
func sessionOf(key string) string {
	text, err := json.Marshal(struct {
		Session string `json:"session"`
	}{key})
	if err != nil {
		return "" // a string can always be marshalled
	}
	return strings.Trim(string(text), "{}")
}

// Claimable lists runs above an id that may be started now, oldest first. Two queries, so
// that each walks its index and stops at the limit, however long the queue is.
func (l *Runs) Claimable(ctx context.Context, now time.Time, after int64, limit int) ([]record.Run, error) {
	const tail = ` and state <> 'finished' and not_before <= $1 and id > $2 order by id limit $3`
	queued, err := store.List(store.Reads(ctx, l.DB), record.RunFields, `select `+record.RunColumns+` from runs where state = 'queued'`+tail, store.Millis(now), after, limit)
	if err != nil {
		return nil, err
	}

	waiting, err := store.List(store.Reads(ctx, l.DB), record.RunFields, `select `+record.RunColumns+` from runs where state = 'waiting' and waiting_for in ('retry', 'resume')`+tail, store.Millis(now), after, limit)
	if err != nil {
		return nil, err
	}

	// Both lists are sorted and cut; together they may hold more than asked for.
	all := slices.Concat(queued, waiting)
	slices.SortFunc(all, func(a, b record.Run) int { return cmp.Compare(a.ID, b.ID) })
	return all[:min(limit, len(all))], nil
}

// NextDue is the earliest instant after now at which a run becomes claimable by time
// alone, or the pause of a model ends; zero when there is none.
func (l *Runs) NextDue(ctx context.Context, now time.Time) (time.Time, error) {
	return store.TimeOf(store.Reads(ctx, l.DB), `select coalesce(min(due), 0) from (select min(not_before) as due from runs where not_before <> 0 and not_before > $1
		union all select min(until) from model_pauses where until > $1) as dues`, store.Millis(now))
}

// Running lists the runs that have an attempt in progress.
func (l *Runs) Running(ctx context.Context) ([]record.Run, error) {
	return store.List(store.Reads(ctx, l.DB), record.RunFields, record.RunningRuns)
}

// unfinished names the states, so that it is asked by their index and not in the order of all ids.
const unfinished = `select ` + record.RunColumns + ` from runs where state in ('queued', 'running', 'waiting') and state <> 'finished' order by id`

// Unfinished lists the runs that are queued, running or waiting, oldest first.
func (l *Runs) Unfinished(ctx context.Context) ([]record.Run, error) {
	return store.List(store.Reads(ctx, l.DB), record.RunFields, unfinished)
}

// Cancelling lists the running runs that somebody asked to cancel, with the reason.
func (l *Runs) Cancelling(ctx context.Context) (map[int64]string, error) {
	return store.Pairs[int64, string](store.Reads(ctx, l.DB), `select id, cancel_reason from runs where state = 'running' and state <> 'finished' and cancel_reason <> ''`)
}

// lastRuns skips from job to job in their index, however many runs each has.
const lastRuns = `with recursive names(job) as (select min(job) from runs where job > ''
		union all select (select min(job) from runs where job > names.job) from names where names.job is not null)
	select ` + record.RunColumns + ` from runs where id in (select (select max(r.id) from runs r where r.job = names.job) from names where names.job is not null)`

// Last is the latest run of every job.
func (l *Runs) Last(ctx context.Context) (map[string]record.Run, error) {
	found, err := store.List(store.Reads(ctx, l.DB), record.RunFields, lastRuns)
	out := make(map[string]record.Run, len(found))
	for _, r := range found {
		out[r.Job] = r
	}
	return out, err
}

const (
	// lastSuccessAt reads the index of what has ended: many runs may be queued after it.
	lastSuccessAt = `select started_at, finished_at from runs where job = $1 and state = 'finished' and outcome = 'success' order by finished_at desc, id desc limit 1`
	lastEndAt     = `select finished_at from runs where job = $1 and state = 'finished' and outcome <> 'skipped' and id < $2 order by id desc limit 1`
)

// LastTimes holds times of earlier runs of a job. Zero means that there is no such run.
type LastTimes struct {
	SuccessStart, SuccessEnd time.Time // of the last successful run
	End                      time.Time // of the last run, without skipped runs
}

// LastTimes returns the times of a job's runs before a given run. It does not read whole rows, because every run calls it.
func (l *Runs) LastTimes(ctx context.Context, job string, before int64) (t LastTimes, err error) {
	err = store.Scan(store.Reads(ctx, l.DB), []any{store.Time(&t.SuccessStart), store.Time(&t.SuccessEnd)}, lastSuccessAt, job)
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		t.End, err = store.OrZero(store.TimeOf(store.Reads(ctx, l.DB), lastEndAt, job, before))
	}
	return t, err
}

const lastDoneAt = `select finished_at from runs where job = $1 and state = 'finished' and outcome = $2 order by finished_at desc, id desc limit 1`

// LastDone returns the end of a job's last run with outcome success or nothing, or the zero time.
func (l *Runs) LastDone(ctx context.Context, job string) (time.Time, error) {
	success, err := store.OrZero(store.TimeOf(store.Reads(ctx, l.DB), lastDoneAt, job, domain.OutcomeSuccess))
	if err != nil {
		return success, err
	}
	nothing, err := store.OrZero(store.TimeOf(store.Reads(ctx, l.DB), lastDoneAt, job, domain.OutcomeNothing))
	if nothing.After(success) {
		return nothing, err
	}
	return success, err
}

const countUnfinished = `select state, count(*) from runs where state <> 'finished' group by state`

// Counts counts the unfinished runs.
func (l *Runs) Counts(ctx context.Context) (Counts, error) {
	n, err := store.Pairs[domain.State, int](store.Reads(ctx, l.DB), countUnfinished)
	return Counts{Queued: n[domain.StateQueued], Running: n[domain.StateRunning], Waiting: n[domain.StateWaiting]}, err
}

// QueuedOf is how many runs of a job wait in the queue, most at most.
func (l *Runs) QueuedOf(ctx context.Context, job string, most int) (int, error) {
	return store.Value[int](store.Reads(ctx, l.DB), `select count(*) from (select 1 from runs where job = $1 and state <> 'finished' and state = 'queued' limit $2) q`, job, most)
}

// Queued is how many runs wait for their turn, of all jobs and agents; it counts up to most.
func (l *Runs) Queued(ctx context.Context, most int) (int, error) {
	return store.Value[int](store.Reads(ctx, l.DB), `select count(*) from (select 1 from runs where state <> 'finished' and state = 'queued' limit $1) q`, most)
}

// Attempts lists the attempts of a run in order.
func (l *Runs) Attempts(ctx context.Context, run int64) ([]record.Attempt, error) {
	return store.List(store.Reads(ctx, l.DB), func(a *record.Attempt) []any {
		return []any{&a.Run, &a.Number, &a.State, store.Time(&a.StartedAt), store.Time(&a.FinishedAt), &a.Error}
	}, `select run, number, state, started_at, finished_at, error from attempts where run = $1 order by number`, run)
}

// OutcomeOf is how a run ended, "" while it has not. It reads less than Run.
func (l *Runs) OutcomeOf(ctx context.Context, run int64) (domain.Outcome, error) {
	outcome, err := store.Value[domain.Outcome](store.Reads(ctx, l.DB), `select outcome from runs where id = $1`, run)
	return store.OrNotFound(outcome, err, "run %d", run)
}

// Filter selects runs, newest first.
type Filter struct {
	Job, Agent string
	Trigger    domain.Trigger
	Outcome    domain.Outcome
	State      domain.State
	Since      time.Time // queued at this time or later
	Until      time.Time // queued before this time
	// Text is looked for in summaries, errors and what models said, regardless of the case of ASCII letters.
	Text string
	// Session is the key of a session. What is found besides are runs in whose detail it stands elsewhere: look at Detail.Session.
	Session string
	// Woken selects runs of wakes, which have no job. With Job, it selects only wakes that runs of Job planned.
	Woken  bool
	Before int64 // ids below this one
	After  int64 // ids above this one; bounds the scan of a filter without an index
	Limit  int   // 0 means 100
	// Brief reads of each run only its job, where it stands, when it was queued and on, and what it cost: of many
	// runs that is several times faster.
	Brief bool
}

// Counts are the unfinished runs by state.
type Counts struct{ Queued, Running, Waiting int }

// WaitingRun is a run that waits for a person.
type WaitingRun struct {
	Run  int64
	Text string // of its wait: waits for an approval
}

// ForPersons returns the oldest run of each job that waits for a person, with the text of its wait.
func (l *Runs) ForPersons(ctx context.Context) (map[string]WaitingRun, error) {
	all, err := store.List(store.Reads(ctx, l.DB), record.RunFields, waitingForPersons)
	out := map[string]WaitingRun{}
	for _, r := range all {
		if _, older := out[r.Job]; !older {
			out[r.Job] = WaitingRun{r.ID, r.WaitText()}
		}
	}
	return out, err
}

const waitingForPersons = `select ` + record.RunColumns + ` from runs where state = 'waiting' and waiting_for in ('input', 'approval', 'pause') and state <> 'finished' order by id`

// Held returns the queued runs of instants that were held back until a time after from and up to to, the oldest first.
func (l *Runs) Held(ctx context.Context, from, to time.Time) ([]record.Run, error) {
	return store.List(store.Reads(ctx, l.DB), record.RunFields, heldRuns, store.Millis(from), store.Millis(to))
}

const heldRuns = `select ` + record.RunColumns + ` from runs where state = 'queued' and state <> 'finished' and triggered_by = 'schedule' and attempt = 0
	and not_before > $1 and not_before <= $2 order by id`

// DeliveryBody is what came with the request that started a run, "" for any other run.
func (l *Runs) DeliveryBody(ctx context.Context, run int64) (string, error) {
	stored, known, err := store.OrFalse(store.Value[string](store.Reads(ctx, l.DB), `select body from deliveries where run = $1`, run))
	if err != nil || !known {
		return "", err
	}

	text, err := l.Blobs.Unpack(ctx, stored)
	if err != nil {
		return "", err
	}

	var body string
	if err := json.Unmarshal(text, &body); err != nil {
		return "", fmt.Errorf("what came with the request of run %d is damaged: %w", run, err)
	}
	return body, nil
}

// ByKey is the run that a request of a key has made; false where none has.
func (l *Runs) ByKey(ctx context.Context, key string) (record.Run, bool, error) {
	return store.OrFalse(store.One(store.Reads(ctx, l.DB), record.RunFields, `select `+record.RunColumns+` from runs where key = $1`, key))
}

// Blocked is how many runs something is in the way of.
func (l *Runs) Blocked(ctx context.Context) (int, error) {
	return store.Value[int](store.Reads(ctx, l.DB), BlockedRuns)
}

// BlockedRuns counts in the index of what has not ended.
const BlockedRuns = `select count(*) from runs where state <> 'finished' and state in ('queued', 'waiting') and blocked_since <> 0 and blocked_until = 0`
