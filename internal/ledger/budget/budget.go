// Package budget counts the cost of model calls by day and month, and refuses a call that exceeds a
// limit.
//
// The cost of a call is reserved before the call and settled after it. A process that is killed
// overspends by at most one call.
package budget

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// The scopes of a budget.
const (
	ScopeDaemon = "daemon"
	ScopeAgent  = "agent"
	ScopeJob    = "job"
)

// KeepSpending is the retention period of the sums of a day, in days.
const KeepSpending = 400

// Day is a day or a month in a time zone, the period of a budget.
type Day struct {
	Name string    // 2026-11-21, or 2026-11 for a month
	Ends time.Time // first moment after the period
}

// DayOf returns the day of a time. A day ends when its date does, so it may have 23 or 25 hours,
// and midnight may not exist.
func DayOf(at time.Time, zone *time.Location) Day {
	at = at.In(zone)
	name := at.Format(time.DateOnly)
	// A search, because time.Date cannot name a midnight that does not exist or comes twice.
	low, high := at, at.Add(50*time.Hour) // longer than the longest day
	for high.Sub(low) > time.Nanosecond {
		middle := low.Add(high.Sub(low) / 2)
		if middle.Format(time.DateOnly) == name {
			low = middle
		} else {
			high = middle
		}
	}

	return Day{Name: name, Ends: high.UTC()}
}

// MonthOf returns the calendar month of a time.
func MonthOf(at time.Time, zone *time.Location) Day {
	at = at.In(zone)
	next := time.Date(at.Year(), at.Month()+1, 1, 12, 0, 0, 0, zone) // noon, which every day has
	last := next.AddDate(0, 0, -1)
	return Day{Name: MonthOfDay(at.Format(time.DateOnly)), Ends: DayOf(last, zone).Ends}
}

// MonthOfDay returns the month of a day.
func MonthOfDay(day string) string { return day[:min(len(day), len("2026-11"))] }

// Limit holds the maximum spending in a day and in a calendar month. Zero means no limit.
type Limit struct{ CostMicroUSD, Tokens, MonthMicroUSD, MonthTokens int64 }

// Reservation is the maximum cost of one model call. Once it is committed it counts, even if the
// process is killed.
type Reservation struct {
	Step       int
	Day        string
	Agent, Job string       // empty without a job
	Usage      record.Usage // maximum expected usage of the call
	// The limits that apply.
	DaemonLimit, AgentLimit, JobLimit Limit
}

// Spending holds the spending of a day or a month, and the reservations of calls in progress.
type Spending struct {
	Day, Scope, Name                 string
	Tokens, CostMicroUSD             int64
	ReservedTokens, ReservedMicroUSD int64
	// The estimated part of the spending, and the reason for the latest estimate.
	EstimatedTokens, EstimatedMicroUSD int64
	EstimatedWhy                       string
}

// Monthly reports whether the spending is of a month. Day is then 2026-11, for example.
func (s Spending) Monthly() bool { return len(s.Day) == len("2026-11") }

// Limit returns the part of a limit that applies to the period of s.
func (s Spending) Limit(l Limit) (costMicroUSD, tokens int64) {
	if s.Monthly() {
		return l.MonthMicroUSD, l.MonthTokens
	}
	return l.CostMicroUSD, l.Tokens
}

// Exceeded is a limit of a day or a month that a call would exceed.
type Exceeded struct {
	Spending
	Limit Limit
	Money bool // whether the cost limit is exceeded, not the token limit
}

// Budget holds the spending of a ledger.
type Budget struct{ DB *store.DB }

// account is a row of spending, with its limit.
type account struct {
	period, scope, name string
	limit               Limit
}

const spendingColumns = `period, scope, name, tokens, cost_micro_usd, reserved_tokens, reserved_micro_usd, estimated_tokens, estimated_micro_usd, estimated_why`

// accounts returns the accounts of a reservation. Their order is the order of locking and always
// the same, so that two reservations cannot deadlock.
func (r Reservation) accounts() []account {
	whose := []account{{scope: ScopeDaemon, limit: r.DaemonLimit}, {scope: ScopeAgent, name: r.Agent, limit: r.AgentLimit}}
	if r.Job != "" {
		whose = append(whose, account{scope: ScopeJob, name: r.Job, limit: r.JobLimit})
	}

	var out []account
	for _, acc := range whose {
		acc.period = MonthOfDay(r.Day)
		out = append(out, acc)
		acc.period = r.Day
		out = append(out, acc)
	}
	return out
}

// lock reads and locks the row of an account. It creates the row if it does not exist.
func (l *Budget) lock(tx *store.Tx, acc account) (Spending, error) {
	tx.Run(`insert into spending (period, scope, name) values ($1, $2, $3) on conflict do nothing`, acc.period, acc.scope, acc.name)
	return store.One(tx, spendingFields, `select `+spendingColumns+` from spending where period = $1 and scope = $2 and name = $3`+l.DB.ForUpdate, acc.period, acc.scope, acc.name)
}

func tokensOf(u record.Usage) int64 { return u.TokensIn + u.TokensOut }

func spendingFields(s *Spending) []any {
	return []any{
		&s.Day, &s.Scope, &s.Name, &s.Tokens, &s.CostMicroUSD, &s.ReservedTokens, &s.ReservedMicroUSD,
		&s.EstimatedTokens, &s.EstimatedMicroUSD, &s.EstimatedWhy,
	}
}

// Reserve reserves the cost of a model call if no limit is exceeded. Otherwise it returns the
// exceeded limit and writes no row. Concurrent attempts see each other's reservations.
func (l *Budget) Reserve(ctx context.Context, a record.Attempt, r Reservation) (id int64, full *Exceeded, err error) {
	// A reservation starts and ends no run, so no waiter needs to wake.
	err = store.WriteQuietly(ctx, l.DB, func(tx *store.Tx) error {
		id, full = 0, nil
		if _, err := record.CheckFence(tx, l.DB, a); err != nil {
			return err
		}

		for _, acc := range r.accounts() {
			// All limits are checked before a sum is changed, so that a refusal changes no row.
			var err error
			if full, err = l.checkLimit(tx, r, acc); err != nil || full != nil {
				return err
			}
		}

		for _, acc := range r.accounts() {
			tx.Run(`update spending set reserved_tokens = reserved_tokens + $1, reserved_micro_usd = reserved_micro_usd + $2
				where period = $3 and scope = $4 and name = $5`, tokensOf(r.Usage), r.Usage.CostMicroUSD, acc.period, acc.scope, acc.name)
		}

		var err error
		id, err = store.Value[int64](tx, `insert into reservations (run, attempt, step, day, agent, job, tokens_in, tokens_out, cost_micro_usd, at)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) returning id`,
			a.Run, a.Number, r.Step, r.Day, r.Agent, r.Job, r.Usage.TokensIn, r.Usage.TokensOut, r.Usage.CostMicroUSD, store.Millis(l.DB.Now()))
		return err
	})

	return id, full, err
}

// checkLimit locks the row of an account, and returns its limit if the call would exceed it. A call
// without cost fits any cost limit.
func (l *Budget) checkLimit(tx *store.Tx, r Reservation, acc account) (*Exceeded, error) {
	s, err := l.lock(tx, acc)
	if err != nil {
		return nil, err
	}

	over := func(limit, taken, reserved, wanted int64) bool {
		return limit > 0 && wanted > 0 && taken+reserved+wanted > limit
	}
	cost, tokens := s.Limit(acc.limit)
	switch {
	case over(cost, s.CostMicroUSD, s.ReservedMicroUSD, r.Usage.CostMicroUSD):
		return &Exceeded{Spending: s, Limit: acc.limit, Money: true}, nil
	case over(tokens, s.Tokens, s.ReservedTokens, tokensOf(r.Usage)):
		return &Exceeded{Spending: s, Limit: acc.limit}, nil
	}

	return nil, nil
}

// Settle replaces a reservation with the usage of the call, and adds the usage to its step. It
// returns the sums of the day and the month. why is the reason for the estimated part of the usage.
// If the attempt has ended in the meantime, the reservation is already settled and Settle returns
// no sums.
func (l *Budget) Settle(ctx context.Context, id int64, used record.Usage, why string) ([]Spending, error) {
	var out []Spending
	err := store.WriteQuietly(ctx, l.DB, func(tx *store.Tx) error {
		out = nil
		rows, err := store.List(tx, reservationFields, `delete from reservations where id = $1 returning `+reservationColumns, id)
		if err != nil || len(rows) == 0 {
			return err
		}

		used, why := used, why // the operation may run more than once
		if impossible(used) {
			used = rows[0].Usage
			used.EstimatedTokens, used.EstimatedMicroUSD = tokensOf(used), used.CostMicroUSD
			why = strings.TrimPrefix(fmt.Sprintf("%s; run %d: an impossible use was reported, so all that was set aside for the call counts as spent", why, rows[0].Run), "; ")
		}
		out, err = l.settle(tx, rows[0], used, why)
		return err
	})

	return out, err
}

// maxUse is more than any call can use: 10,000 USD in micro-USD, and as many tokens.
const maxUse = 10_000_000_000

// impossible reports whether a usage cannot be true. Counting it would reduce the spending of other
// calls, or use up every budget.
func impossible(u record.Usage) bool {
	all := []int64{u.TokensIn, u.TokensOut, u.TokensCached, u.CostMicroUSD, u.EstimatedTokens, u.EstimatedMicroUSD}
	return slices.Min(all) < 0 || slices.Max(all) > maxUse
}

// openReservation is a reservation that has not been settled, with its attempt.
type openReservation struct {
	Reservation
	record.Attempt
}

const reservationColumns = `run, attempt, step, day, agent, job, tokens_in, tokens_out, cost_micro_usd`

func reservationFields(h *openReservation) []any {
	return []any{&h.Run, &h.Number, &h.Step, &h.Day, &h.Agent, &h.Job, &h.Usage.TokensIn, &h.Usage.TokensOut, &h.Usage.CostMicroUSD}
}

func (l *Budget) settle(tx *store.Tx, h openReservation, used record.Usage, why string) ([]Spending, error) {
	var out []Spending
	for _, acc := range h.accounts() {
		s, err := store.One(tx, spendingFields, `update spending set tokens = tokens + $1, cost_micro_usd = cost_micro_usd + $2,
			reserved_tokens = reserved_tokens - $3, reserved_micro_usd = reserved_micro_usd - $4,
			estimated_tokens = estimated_tokens + $5, estimated_micro_usd = estimated_micro_usd + $6, estimated_why = case when $5 > 0 or $6 > 0 then $7 else estimated_why end
			where period = $8 and scope = $9 and name = $10 returning `+spendingColumns,
			tokensOf(used), used.CostMicroUSD, tokensOf(h.Usage), h.Usage.CostMicroUSD, used.EstimatedTokens, used.EstimatedMicroUSD, why, acc.period, acc.scope, acc.name)
		if err != nil {
			return nil, fmt.Errorf("what a call of run %d took cannot be counted for the %s %s: %w", h.Run, acc.scope, acc.name, err)
		}
		out = append(out, s)
	}

	tx.Run(`update steps set tokens_in = tokens_in + $1, tokens_out = tokens_out + $2, tokens_cached = tokens_cached + $3, cost_micro_usd = cost_micro_usd + $4,
		estimated_tokens = estimated_tokens + $5, estimated_micro_usd = estimated_micro_usd + $6
		where run = $7 and attempt = $8 and number = $9`,
		used.TokensIn, used.TokensOut, used.TokensCached, used.CostMicroUSD, used.EstimatedTokens, used.EstimatedMicroUSD, h.Run, h.Number, h.Step)
	return out, nil
}

// SettleAttempt counts the open reservations of an attempt as spent, because their calls may have
// been made at an unknown cost. It counts the maximum, and all of it as estimated.
func (l *Budget) SettleAttempt(tx *store.Tx, a record.Attempt) error {
	open, err := store.List(tx, reservationFields, `delete from reservations where run = $1 and attempt = $2 returning `+reservationColumns, a.Run, a.Number)
	if err != nil {
		return err
	}

	for _, h := range open {
		h.Usage.EstimatedTokens, h.Usage.EstimatedMicroUSD = tokensOf(h.Usage), h.Usage.CostMicroUSD
		if _, err := l.settle(tx, h, h.Usage, fmt.Sprintf("run %d: its process ended during a request", a.Run)); err != nil {
			return err
		}
	}
	return nil
}

// SpendingOn returns the spending and the reservations of a day or a month.
func (l *Budget) SpendingOn(ctx context.Context, period string) ([]Spending, error) {
	return store.List(store.Reads(ctx, l.DB), spendingFields, `select `+spendingColumns+` from spending where period = $1 order by scope, name`, period)
}

// SpentSince returns the spending of all agents together since a day (2026-11-21), including that
// day.
func (l *Budget) SpentSince(ctx context.Context, day string) (tokens, costMicroUSD int64, err error) {
	err = store.Scan(store.Reads(ctx, l.DB), []any{&tokens, &costMicroUSD}, `select cast(coalesce(sum(tokens), 0) as bigint), cast(coalesce(sum(cost_micro_usd), 0) as bigint)
		from spending where scope = $1 and period >= $2 and length(period) = 10`, ScopeDaemon, day)
	return tokens, costMicroUSD, err
}
