package control

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/runs"
	"rouse/scheduler"
	"rouse/scheduler/schedule"
)

// maxBackfill is the maximum number of scheduled times in a span. It keeps a typing error from
// queuing a year of runs.
const maxBackfill = 1000

// Backfill queues the runs that a job missed in a time span. A dry run only lists them.
func (x *Runs) Backfill(ctx context.Context, job string, ask api.BackfillRequest) (api.Backfill, error) {
	s, now := x.Setup(), x.Ledger.Now()
	if err := s.Known(job, ""); err != nil {
		return api.Backfill{}, err
	}
	if j := s.Job(job); !config.On(j.Enabled) {
		return api.Backfill{}, &api.Error{Status: http.StatusConflict, Message: fmt.Sprintf("the job %s is disabled (enabled: false at %s)", job, j.At)}
	}

	standing, _ := x.Scheduler.JobStatus(job)
	if len(standing.Job.Schedules) == 0 {
		return api.Backfill{}, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("no clock starts the job %s, so it has no instants that could be backfilled", job), Usage: true}
	}

	from, to, err := backfillSpan(ask, now, s.Config.Zone())
	if err != nil {
		return api.Backfill{}, &api.Error{Status: http.StatusBadRequest, Message: err.Error(), Usage: true}
	}
	due, err := instantsBetween(standing.Job, from, to)
	if err != nil {
		return api.Backfill{}, err
	}

	out := api.Backfill{Job: job, Zone: s.Config.Zone().String(), From: api.At(from), To: api.At(to), DryRun: ask.DryRun}
	if due, err = x.planBackfill(ctx, &out, due, standing.Watermark); err != nil {
		return api.Backfill{}, err
	}
	if out.Runs > 0 {
		last, err := x.Ledger.Runs.LastUsages(ctx, job, forecastRuns)
		if err != nil {
			return api.Backfill{}, err
		}
		f := foreseen(out.Runs, last)
		out.ForecastUSD, out.RunsUnforeseen = usd(f.cost), f.unknown
	}

	if !ask.DryRun {
		err = x.queueBackfill(ctx, &out, due, now)
	}
	return out, err
}

// backfillSpan returns the requested time span, including both ends.
func backfillSpan(ask api.BackfillRequest, now time.Time, zone *time.Location) (from, to time.Time, err error) {
	if ask.From == "" {
		return from, to, fmt.Errorf("say from when on: a time like 2026-03-08, \"2026-03-08 02:30\" or RFC 3339")
	}
	begin, err := schedule.ParseTime(ask.From, now, zone, false)
	if err != nil {
		return from, to, fmt.Errorf("from: %w", err)
	}
	if from, to = begin.At, now; from.After(now) {
		return from, to, fmt.Errorf("from %s lies ahead; what comes is started by the schedule itself", api.LocalTime(from, zone))
	}
	if ask.To != "" {
		end, err := schedule.ParseTime(ask.To, now, zone, false)
		if err != nil {
			return from, to, fmt.Errorf("to: %w", err)
		}
		// A time without seconds, or a date, includes the whole minute or day.
		if to = end.At; end.Precision > time.Second {
			to = to.Add(end.Precision - time.Millisecond)
		}
	}

	if to.Before(from) {
		return from, to, fmt.Errorf("the span ends (%s) before it begins (%s)", api.LocalTime(to, zone), api.LocalTime(from, zone))
	}
	return from, domain.Earlier(to, now), nil
}

// instantsBetween returns the scheduled times of a job in a span, oldest first and without
// duplicates.
func instantsBetween(j scheduler.Job, from, to time.Time) ([]ledger.Due, error) {
	var out []ledger.Due
	for _, sch := range j.Schedules {
		n := 0
		for at := sch.Next(from.Add(-time.Nanosecond)); !at.IsZero() && !at.After(to); at = sch.Next(at) {
			if n++; n > maxBackfill {
				return nil, &api.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("the span has more than %d instants of the job %s; choose a shorter one, and the next after it", maxBackfill, j.Name), Usage: true}
			}
			out = append(out, ledger.Due{Job: j.Name, Agent: j.Agent, Source: sch.Source(), Nominal: at, Actual: at})
		}
	}

	slices.SortStableFunc(out, func(a, b ledger.Due) int { return a.Nominal.Compare(b.Nominal) })
	return slices.CompactFunc(out, func(a, b ledger.Due) bool { return a.Nominal.Equal(b.Nominal) }), nil
}

// planBackfill adds the decision about each scheduled time to out, and returns the times to run.
func (x *Runs) planBackfill(ctx context.Context, out *api.Backfill, due []ledger.Due, watermark time.Time) (chosen []ledger.Due, err error) {
	out.Instants = make([]api.BackfillInstant, 0, len(due))
	if len(due) == 0 {
		return nil, nil
	}

	// The result has at most one row for each scheduled time, and rows of earlier schedules of the
	// job.
	recorded, err := x.Ledger.Occurrences.List(ctx, out.Job, out.From.Time, out.To.Time, maxBackfillRows)
	if err != nil {
		return nil, err
	}
	rows, stretches := map[int64]runs.Occurrence{}, []runs.Occurrence{}
	for _, o := range recorded {
		rows[o.Nominal.UnixMilli()] = o
		if !o.Through.IsZero() {
			stretches = append(stretches, o)
		}
	}

	for _, one := range due {
		row, known := rows[one.Nominal.UnixMilli()]
		if !known { // it may be part of a stretch of missed times
			i := slices.IndexFunc(stretches, func(o runs.Occurrence) bool { return !one.Nominal.Before(o.Nominal) && !one.Nominal.After(o.Through) })
			if known = i >= 0; known {
				row = stretches[i]
			}
		}

		in := api.BackfillInstant{Nominal: api.At(one.Nominal), Source: one.Source}
		in.Runs, in.Reason = backfillDecision(row, known, one.Nominal.After(watermark))
		if row.Run != 0 {
			in.Run, in.Outcome = strconv.FormatInt(row.Run, 10), row.Outcome
		}
		if in.Runs {
			out.Runs++
			chosen = append(chosen, one)
		}
		out.Instants = append(out.Instants, in)
	}
	return chosen, nil
}

// maxBackfillRows limits the rows of a span, including rows of earlier schedules of the job.
const maxBackfillRows = 100 * maxBackfill

// backfillDecision reports whether a scheduled time needs a run, and the reason. The row is its
// occurrence, if known is set.
func backfillDecision(row runs.Occurrence, known, undecided bool) (runs bool, reason string) {
	switch {
	case !known && undecided:
		return false, "not decided yet: the scheduler does so, by on_miss, when a daemon runs"
	case !known:
		return true, "there is no record of it"
	case row.Decision != domain.DecisionRun:
		return true, strings.TrimSuffix(fmt.Sprintf("was %s: %s", row.Decision, row.Reason), ": ")
	case row.Outcome == "":
		return false, fmt.Sprintf("run %d is not finished", row.Run)
	case row.Outcome.Failed():
		return false, fmt.Sprintf("it ran: run %d, %s; to try it again: rouse retry %[1]d", row.Run, row.Outcome)
	}
	return false, fmt.Sprintf("it ran: run %d, %s", row.Run, row.Outcome)
}

// queueBackfill queues the planned runs. If the scheduler has queued a run meanwhile, that run is
// kept.
func (x *Runs) queueBackfill(ctx context.Context, out *api.Backfill, due []ledger.Due, now time.Time) error {
	queued, err := x.Ledger.Backfill(ctx, now, due)
	if err != nil {
		return err
	}

	for _, o := range queued {
		i, _ := slices.BinarySearchFunc(out.Instants, o.Nominal, func(in api.BackfillInstant, at time.Time) int { return in.Nominal.Compare(at) })
		out.Instants[i].Run, out.Instants[i].Outcome, out.Instants[i].Reason = strconv.FormatInt(o.Run, 10), o.Outcome, o.Reason
	}
	return nil
}
