package main

import (
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/text"
	"rouse/scheduler"
	"rouse/watcher"
)

func newJobs(env *cli) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "jobs",
		Short: "Lists each job: triggers, next occurrence, last outcome",
		RunE:  showing(env, "/v1/jobs", printJobs),
	})
}

func printJobs(s *session, jobs []api.Job) error {
	now := s.now()
	err := list(s.out, jobs, "", "JOB AGENT STATE NEXT LAST TRIGGERS", func(j api.Job) []string {
		state := jobState(j, now)
		if !s.daemon && state == stateArmed {
			state = "not armed"
		}
		return []string{j.Name, j.Agent, state, when(j.Next, now), lastOf(j, now), strings.Join(j.Triggers, "; ")}
	})
	if err == nil && !s.daemon {
		err = sayf(s.out, "no daemon serves %s, so nothing starts by itself: rouse serve\n", s.home)
	}
	return err
}

// stateArmed is the state of a job that the daemon starts when it comes due.
const stateArmed = "armed"

func jobState(j api.Job, now time.Time) string {
	switch {
	case !j.Enabled:
		return "disabled"
	case j.Paused:
		text := "paused"
		if !j.PausedUntil.IsZero() {
			text += " until " + local(j.PausedUntil, now)
		}
		if j.PausedWhy != "" {
			text += ": " + shorten(j.PausedWhy, 60)
		}
		return text
	case j.Problem != "":
		return "▲ " + shorten(j.Problem, 60)
	case j.Watch != nil && j.Watch.State != "" && (j.Watch.State != string(watcher.StateIdle) || len(j.Watch.Waits) > 0):
		return j.Watch.Text()
	}
	return stateArmed
}

func lastOf(j api.Job, now time.Time) string {
	if j.LastRun == "" {
		return "–"
	}
	last := outcomeMark(api.Run{Outcome: j.LastOutcome, State: j.LastState}) + " " + when(j.LastAt, now)
	for _, i := range j.Incidents {
		last += ", incident " + i.ID
	}
	return last
}

func newNext(env *cli) *cobra.Command {
	var cost bool
	var n int
	cmd := &cobra.Command{
		Use:   "next [JOB]",
		Short: "Lists coming occurrences of every schedule, and the wakes that agents planned",
		Long: `Lists coming starts: occurrences of every schedule, the wakes that agents planned, and runs
that wait for their time (jitter), of one job or of all. NOTE says what is special:
jitter, a change of the clock, and why one will be skipped (an excluded date, a calendar, a pause).
A retry, and the expiry of an approval, are no starts: see rouse status and rouse inbox.

With --cost it says what the runs of the coming week will cost, if they are like the last fifty of their job: in
the median, and at the price that nine of ten cost no more than. What a job has no history of is in no sum.`,
		Example: `  rouse next
  rouse next morning-report -n 10
  rouse next --cost`,
		RunE: env.with(toRead, func(s *session, args []string) error {
			q := queryOf("job", strings.Join(args, ""))
			if cost {
				var c api.Cost
				return s.show("/v1/cost", q, &c, func() error { return printCost(s.out, c, s.now()) })
			}
			q.Set("n", strconv.Itoa(n))
			var coming []api.Occurrence
			return s.show("/v1/next", q, &coming, func() error {
				now := s.now()
				return list(s.out, coming, "nothing is to come by the clock", "AT IN JOB SOURCE NOTE", func(o api.Occurrence) []string {
					return []string{local(o.Actual, now), inText(o.Actual, now), comingJob(o), o.Source, comingNote(o, s.zone)}
				})
			})
		}),
	}

	cmd.Flags().IntVarP(&n, "number", "n", 5, "how many")
	cmd.Flags().BoolVar(&cost, "cost", false, "say what the coming week will cost, by what runs have cost")
	cmd.MarkFlagsMutuallyExclusive("cost", "number")
	return withJSON(cmd)
}

// printCost prints the expected cost of the coming week.
func printCost(out io.Writer, c api.Cost, now time.Time) error {
	if len(c.Jobs) == 0 {
		return sayf(out, "nothing is to come by the clock until %s\n", local(c.To, now))
	}
	err := list(out, c.Jobs, "", "JOB RUNS MEDIAN HIGH TOKENS NOTE", func(r api.CostRow) []string {
		runs := strconv.Itoa(r.Runs)
		if r.After > 0 {
			runs += fmt.Sprintf(" (%d after others)", r.After)
		}
		if r.PastRuns == 0 {
			return []string{r.Job, runs, "–", "–", "–", "no history: nobody knows"}
		}
		return []string{r.Job, runs, dollars(r.MedianUSD), dollars(r.HighUSD), fmt.Sprintf("%d to %d", r.MedianTokens, r.HighTokens),
			fmt.Sprintf("%s to %s a run, by %s of the past", dollars(r.RunMedianUSD), dollars(r.RunHighUSD), text.Plural(r.PastRuns, "run"))}
	})
	if err != nil {
		return err
	}

	unforeseen := ""
	if c.Unforeseen > 0 {
		unforeseen = fmt.Sprintf("; beside %s of which there is no history", text.Plural(c.Unforeseen, "run"))
	}
	return sayf(out, "until %s: %s in the median, %s at the price that nine of ten runs cost no more than%s\n", local(c.To, now), dollars(c.MedianUSD), dollars(c.HighUSD), unforeseen)
}

// comingJob returns the name of an occurrence in a listing. A wake is listed under its agent.
func comingJob(o api.Occurrence) string {
	switch {
	case o.Source == scheduler.SourceWake:
		return "agent " + o.Agent
	case o.Job == "":
		return "(" + o.Agent + ")"
	}
	return o.Job
}

// comingNote returns the decision and the reason for an occurrence that does not simply run.
func comingNote(o api.Occurrence, zone *time.Location) string {
	said := readable(o.Reason, zone)
	if o.Decision != domain.DecisionRun {
		said = string(o.Decision) + ": " + said
	}
	return shorten(said, 160)
}

func newBackfill(env *cli) *cobra.Command {
	var ask api.BackfillRequest
	cmd := &cobra.Command{
		Use:   "backfill JOB --from T [--to T] [--dry-run]",
		Short: "Runs the past instants of a job's schedule that did not run",
		Long: `Queues a run for each past instant of a job's schedule that did not run: it was missed,
skipped or refused, or nothing was recorded because rouse did not know the job yet. An
instant that ran, however it ended, is left alone. Asked again, it queues nothing twice.

The instants are those of the schedule as it is configured now, at most 1,000 at once. Their
runs see the time of their instant (.Scheduled), wait behind all other runs, and do
not count as an overlap while they wait. Pauses, conditions (when:) and budgets hold for them.

--dry-run shows what would run, and what it may cost. A time is like yesterday,
2026-03-08 or "2026-03-08 02:30" (rouse help times). A date as --to includes that day.`,
		Example: `  rouse backfill morning-report --from 2026-11-01 --to 2026-11-07 --dry-run
  rouse backfill morning-report --from 2026-11-01 --to 2026-11-07
  rouse runs --job morning-report --trigger backfill`,
		RunE: env.with(toChange, func(s *session, args []string) error {
			var out api.Backfill
			return s.send("/v1/jobs/"+url.PathEscape(args[0])+"/backfill", ask, &out, func() error { return printBackfill(s, out) })
		}),
	}

	f := cmd.Flags()
	f.StringVar(&ask.From, "from", "", "the first `time` whose instants count")
	f.StringVar(&ask.To, "to", "", "the last `time` (default now)")
	f.BoolVar(&ask.DryRun, "dry-run", false, "only show what would run")
	_ = cmd.MarkFlagRequired("from") // the flag exists
	return withJSON(cmd)
}

// printBackfill lists the instants and the number of runs.
func printBackfill(s *session, b api.Backfill) error {
	zone, err := time.LoadLocation(b.Zone)
	if err != nil {
		return fmt.Errorf("the time zone of the daemon: %w", err)
	}
	if len(b.Instants) == 0 {
		return sayf(s.out, "the job has no instant in that span\n")
	}
	err = list(s.out, b.Instants, "", "DUE BACKFILL RUN REASON", func(in api.BackfillInstant) []string {
		runs := "runs"
		if !in.Runs {
			runs = "stays"
		}
		return []string{in.Nominal.In(zone).Format("Mon 2006-01-02 15:04:05 MST"), runs, in.Run, in.Reason}
	})
	if err != nil {
		return err
	}

	runs, cost := text.Plural(b.Runs, "run"), ""
	switch {
	case b.ForecastUSD > 0:
		cost = fmt.Sprintf(", about $%.2f if each costs what the last ones did", b.ForecastUSD)
	case b.RunsUnforeseen > 0:
		cost = "; the job has not run yet, so nobody can say what that costs"
	}
	switch {
	case b.Runs == 0:
		return sayf(s.out, "nothing is left to run\n")
	case b.DryRun:
		return sayf(s.out, "%s would be queued%s\n", runs, cost)
	case !s.daemon:
		return sayf(s.out, "%s queued; they run when a daemon does: rouse serve\n", runs)
	}
	return sayf(s.out, "%s queued%s; follow them with: rouse runs --job %s --trigger backfill\n", runs, cost, b.Job)
}
