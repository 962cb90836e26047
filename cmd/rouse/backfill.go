package main

import (
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

func newBackfill(at *place) *cobra.Command {
	var ask api.BackfillRequest
	var asJSON bool
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
		Args: cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			if ask.From == "" {
				return usagef("say from when on: --from 2026-11-01")
			}

			s, err := at.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()

			var out api.Backfill
			if done, err := s.send(cmd, asJSON, "/v1/jobs/"+url.PathEscape(args[0])+"/backfill", ask, &out); done || err != nil {
				return err
			}
			return printBackfill(cmd.OutOrStdout(), out, s.daemon)
		}),
	}

	f := cmd.Flags()
	f.StringVar(&ask.From, "from", "", "the first `time` whose instants count")
	f.StringVar(&ask.To, "to", "", "the last `time` (default now)")
	f.BoolVar(&ask.DryRun, "dry-run", false, "only show what would run")
	f.BoolVar(&asJSON, "json", false, "print JSON")

	return cmd
}

// printBackfill lists the instants, and says how many run.
func printBackfill(w io.Writer, b api.Backfill, daemon bool) error {
	zone, err := time.LoadLocation(b.Zone)
	if err != nil {
		return fmt.Errorf("the time zone of the daemon: %w", err)
	}

	var rows [][]string
	for _, in := range b.Instants {
		runs := "runs"
		if !in.Runs {
			runs = "stays"
		}
		rows = append(rows, []string{in.Nominal.In(zone).Format("Mon 2006-01-02 15:04:05 MST"), runs, in.Run, in.Reason})
	}
	if len(rows) > 0 {
		if err := table(w, "DUE BACKFILL RUN REASON", rows); err != nil {
			return err
		}
	}

	return sayBackfilled(w, b, daemon)
}

func sayBackfilled(w io.Writer, b api.Backfill, daemon bool) (err error) {
	cost := ""
	switch {
	case b.ForecastUSD > 0:
		cost = fmt.Sprintf(", about $%.2f if each costs what the last ones did", b.ForecastUSD)
	case b.RunsUnforeseen > 0:
		cost = "; the job has not run yet, so nobody can say what that costs"
	}

	switch {
	case len(b.Instants) == 0:
		_, err = fmt.Fprintln(w, "the job has no instant in that span")
	case b.Runs == 0:
		_, err = fmt.Fprintln(w, "nothing is left to run")
	case b.DryRun:
		_, err = fmt.Fprintf(w, "%s would be queued%s\n", text.Plural(b.Runs, "run"), cost)
	case !daemon:
		_, err = fmt.Fprintf(w, "%s queued; they run when a daemon does: rouse serve\n", text.Plural(b.Runs, "run"))
	default:
		_, err = fmt.Fprintf(w, "%s queued%s; follow them with: rouse runs --job %s --trigger backfill\n", text.Plural(b.Runs, "run"), cost, b.Job)
	}
	return err
}
