// Package runs reads runs, their attempts, and the occurrences of schedules.
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

// Get returns a run. It returns ErrNotFound if there is no run with the id.
func (l *Runs) Get(ctx context.Context, id int64) (record.Run, error) {
	r, err := store.One(store.Reads(ctx, l.DB), record.RunFields, `select `+record.RunColumns+` from runs where id = $1`, id)
	return store.OrNotFound(r, err, "run %d", id)
}

// ByID returns runs by their ids. It omits runs that do not exist.
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

// List returns the runs that match a filter, newest first.
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

// briefColumns are the columns that Filter.Brief selects.
const briefColumns = `id, job, state, waiting_for, outcome, queued_at, started_at, finished_at, cost_micro_usd`

func briefFields(r *record.Run) []any {
	return []any{&r.ID, &r.Job, &r.State, &r.WaitingFor, &r.Outcome, store.Time(&r.QueuedAt), store.Time(&r.StartedAt), store.Time(&r.FinishedAt), &r.Usage.CostMicroUSD}
}

// LastUsages returns the usage of the last finished runs of a job. The number of runs is of. Runs
// that never started count towards it, but are omitted.
func (l *Runs) LastUsages(ctx context.Context, job string, of int) ([]record.Usage, error) {
	return store.List(store.Reads(ctx, l.DB), func(u *record.Usage) []any {
		return []any{&u.TokensIn, &u.TokensOut, &u.CostMicroUSD, &u.EstimatedMicroUSD}
	}, lastUsages, job, of)
}

// lastUsages omits runs that never started, because they cost 0 and would distort an average.
const lastUsages = `select tokens_in, tokens_out, cost_micro_usd, estimated_micro_usd from (select tokens_in, tokens_out, cost_micro_usd, estimated_micro_usd, attempt, outcome from runs where job = $1 and state = 'finished' order by id desc limit $2) latest
	where attempt > 0 and outcome <> 'skipped'`

// runsQuery returns the query for a filter. SQLite's planner has no row statistics, so the
// conditions are written to lead it to the most selective index. The order is: unfinished runs,
// job, outcome, agent.
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
			agent = "agent || '' = $%d" // without its index
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
		// A literal, as in the condition of the index. SQLite inspects a bound value that it
		// compares with such a column, and plans the statement again each time.
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

// The conditions of the partial indexes on outcomes and triggers. Common outcomes and triggers are
// not indexed, because a scan finds them quickly.
const (
	rareOutcome = `outcome not in ('', 'success', 'nothing')`
	rareTrigger = `triggered_by not in ('schedule', 'watch')`
)

// clockSlack is the maximum total time that the clock may have been set back. A search by time
// misses no runs up to that limit.
const clockSlack = 25 * time.Hour

// boundByTime limits a filter with a time to the ids of runs from about that time. Otherwise the
// query would scan all runs until it has enough.
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

// runText matches a text in the summary and the error of a run, and in the responses of its model.
const runText = `(lower(summary) like $%[1]d escape '!' or lower(error) like $%[1]d escape '!'
	or exists (select 1 from steps s where s.run = runs.id and lower(s.body) like $%[1]d escape '!'))`

// likePattern returns a pattern that matches a text anywhere. It escapes special characters.
func likePattern(text string) string {
	return "%" + escapeLike(strings.ToLower(text)) + "%"
}

// escapeLike escapes a text for LIKE with the escape character !.
func escapeLike(text string) string {
	return strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(text)
}

// sessionOf returns the key of a session as it appears in the detail of a run. The same text may
// also appear elsewhere in a detail.
func sessionOf(key string) string {
	text, err := json.Marshal(struct {
		Session string `json:"session"`
	}{key})
	if err != nil {
		return "" // a string can always be marshalled
	}
	return strings.Trim(string(text), "{}")
}

// Claimable returns the runs with an id greater than after that may start now, oldest first. It
// uses two queries, so that each one uses an index and stops at the limit.
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

	// Both lists are sorted and limited. Together they may exceed the limit.
	all := slices.Concat(queued, waiting)
	slices.SortFunc(all, func(a, b record.Run) int { return cmp.Compare(a.ID, b.ID) })
	return all[:min(limit, len(all))], nil
}

// NextDue returns the earliest time after now at which a delayed run becomes claimable or the pause
// of a model ends. Without one it returns the zero time.
func (l *Runs) NextDue(ctx context.Context, now time.Time) (time.Time, error) {
	return store.TimeOf(store.Reads(ctx, l.DB), `select coalesce(min(due), 0) from (select min(not_before) as due from runs where not_before <> 0 and not_before > $1
		union all select min(until) from model_pauses where until > $1) as dues`, store.Millis(now))
}

// Running returns the runs with an attempt in progress.
func (l *Runs) Running(ctx context.Context) ([]record.Run, error) {
	return store.List(store.Reads(ctx, l.DB), record.RunFields, record.RunningRuns)
}

// unfinished names the states, so that SQLite uses their index instead of scanning all ids.
const unfinished = `select ` + record.RunColumns + ` from runs where state in ('queued', 'running', 'waiting') and state <> 'finished' order by id`

// Unfinished returns the runs that are queued, running or waiting, oldest first.
func (l *Runs) Unfinished(ctx context.Context) ([]record.Run, error) {
	return store.List(store.Reads(ctx, l.DB), record.RunFields, unfinished)
}

// Cancelling returns the running runs that are to be cancelled, with the reason.
func (l *Runs) Cancelling(ctx context.Context) (map[int64]string, error) {
	return store.Pairs[int64, string](store.Reads(ctx, l.DB), `select id, cancel_reason from runs where state = 'running' and state <> 'finished' and cancel_reason <> ''`)
}

// lastRuns skips from job to job in the index, so that the number of runs does not matter.
const lastRuns = `with recursive names(job) as (select min(job) from runs where job > ''
		union all select (select min(job) from runs where job > names.job) from names where names.job is not null)
	select ` + record.RunColumns + ` from runs where id in (select (select max(r.id) from runs r where r.job = names.job) from names where names.job is not null)`

// Last returns the latest run of every job.
func (l *Runs) Last(ctx context.Context) (map[string]record.Run, error) {
	found, err := store.List(store.Reads(ctx, l.DB), record.RunFields, lastRuns)
	out := make(map[string]record.Run, len(found))
	for _, r := range found {
		out[r.Job] = r
	}
	return out, err
}

const (
	// lastSuccessAt uses the index of finished runs, because many runs may be queued after the last
	// success.
	lastSuccessAt = `select started_at, finished_at from runs where job = $1 and state = 'finished' and outcome = 'success' order by finished_at desc, id desc limit 1`
	lastEndAt     = `select finished_at from runs where job = $1 and state = 'finished' and outcome <> 'skipped' and id < $2 order by id desc limit 1`
)

// LastTimes holds times of earlier runs of a job. Zero means that there is no such run.
type LastTimes struct {
	SuccessStart, SuccessEnd time.Time // of the last successful run
	End                      time.Time // of the last run, without skipped runs
}

// LastTimes returns the times of a job's runs before a given run. It does not read whole rows,
// because every run calls it.
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

// Counts returns the numbers of unfinished runs.
func (l *Runs) Counts(ctx context.Context) (Counts, error) {
	n, err := store.Pairs[domain.State, int](store.Reads(ctx, l.DB), countUnfinished)
	return Counts{Queued: n[domain.StateQueued], Running: n[domain.StateRunning], Waiting: n[domain.StateWaiting]}, err
}

// QueuedOf returns the number of queued runs of a job. It stops counting at most.
func (l *Runs) QueuedOf(ctx context.Context, job string, most int) (int, error) {
	return store.Value[int](store.Reads(ctx, l.DB), `select count(*) from (select 1 from runs where job = $1 and state <> 'finished' and state = 'queued' limit $2) q`, job, most)
}

// Queued returns the number of queued runs of all jobs and agents. It stops counting at most.
func (l *Runs) Queued(ctx context.Context, most int) (int, error) {
	return store.Value[int](store.Reads(ctx, l.DB), `select count(*) from (select 1 from runs where state <> 'finished' and state = 'queued' limit $1) q`, most)
}

// Attempts returns the attempts of a run in order.
func (l *Runs) Attempts(ctx context.Context, run int64) ([]record.Attempt, error) {
	return store.List(store.Reads(ctx, l.DB), func(a *record.Attempt) []any {
		return []any{&a.Run, &a.Number, &a.State, store.Time(&a.StartedAt), store.Time(&a.FinishedAt), &a.Error}
	}, `select run, number, state, started_at, finished_at, error from attempts where run = $1 order by number`, run)
}

// OutcomeOf returns the outcome of a run, or "" if it has not ended. It reads less than Get.
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
	// Text is searched for in summaries, errors and model responses. ASCII letters match in either
	// case.
	Text string
	// Session is the key of a session. The result may include runs with the same text elsewhere in
	// their detail, so callers must check Detail.Session.
	Session string
	// Woken selects runs of wakes, which have no job. With Job, it selects only wakes that runs of
	// Job planned.
	Woken  bool
	Before int64 // ids below this one
	After  int64 // ids above this one; bounds the scan of a filter without an index
	Limit  int   // 0 means 100
	// Brief reads only the columns needed for an overview: job, state, outcome, times and cost. It
	// is several times faster for many runs.
	Brief bool
}

// Counts holds the numbers of unfinished runs by state.
type Counts struct{ Queued, Running, Waiting int }

// WaitingRun is a run that waits for a person.
type WaitingRun struct {
	Run  int64
	Text string // description of its wait, such as "waits for an approval"
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

// Held returns the queued scheduled runs that were delayed until a time after from and not after
// to, oldest first.
func (l *Runs) Held(ctx context.Context, from, to time.Time) ([]record.Run, error) {
	return store.List(store.Reads(ctx, l.DB), record.RunFields, heldRuns, store.Millis(from), store.Millis(to))
}

const heldRuns = `select ` + record.RunColumns + ` from runs where state = 'queued' and state <> 'finished' and triggered_by = 'schedule' and attempt = 0
	and not_before > $1 and not_before <= $2 order by id`

// DeliveryBody returns the body of the request that started a run. For other runs it returns "".
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

// ByKey returns the run with a key. It returns false if the key is unknown.
func (l *Runs) ByKey(ctx context.Context, key string) (record.Run, bool, error) {
	return store.OrFalse(store.One(store.Reads(ctx, l.DB), record.RunFields, `select `+record.RunColumns+` from runs where key = $1`, key))
}

// Blocked returns the number of blocked runs.
func (l *Runs) Blocked(ctx context.Context) (int, error) {
	return store.Value[int](store.Reads(ctx, l.DB), BlockedRuns)
}

// BlockedRuns counts the blocked runs with the index of unfinished runs.
const BlockedRuns = `select count(*) from runs where state <> 'finished' and state in ('queued', 'waiting') and blocked_since <> 0 and blocked_until = 0`
