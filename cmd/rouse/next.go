package main

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/text"
	"rouse/scheduler"
)

func newNext(at *place) *cobra.Command {
	var asJSON, cost bool
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
		Args: cobra.MaximumNArgs(1),
		RunE: withSession(at.openToRead, func(cmd *cobra.Command, args []string, s *session) error {
			q := url.Values{}
			if len(args) == 1 {
				q.Set("job", args[0])
			}
			if cost {
				return printCost(cmd, s, q, asJSON)
			}
			q.Set("n", strconv.Itoa(n))

			var coming []api.Occurrence
			if done, err := s.fetch(cmd, asJSON, "/v1/next", q, &coming); done || err != nil {
				return err
			}

			now := s.now()
			var rows [][]string
			for _, o := range coming {
				rows = append(rows, []string{local(o.Actual, now), inText(o.Actual, now), comingJob(o), o.Source, comingNote(o, s.zone)})
			}
			if len(rows) == 0 {
				return sayf(cmd.OutOrStdout(), "nothing is to come by the clock\n")
			}

			return table(cmd.OutOrStdout(), "AT IN JOB SOURCE NOTE", rows)
		}),
	}

	cmd.Flags().IntVarP(&n, "number", "n", 5, "how many")
	cmd.Flags().BoolVar(&cost, "cost", false, "say what the coming week will cost, by what runs have cost")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.MarkFlagsMutuallyExclusive("cost", "number")
	return cmd
}

// printCost says what the coming week will cost.
func printCost(cmd *cobra.Command, s *session, q url.Values, asJSON bool) error {
	var c api.Cost
	if done, err := s.fetch(cmd, asJSON, "/v1/cost", q, &c); done || err != nil {
		return err
	}

	out, now := cmd.OutOrStdout(), s.now()
	if len(c.Jobs) == 0 {
		return sayf(out, "nothing is to come by the clock until %s\n", local(c.To, now))
	}

	var rows [][]string
	for _, r := range c.Jobs {
		runs := strconv.Itoa(r.Runs)
		if r.After > 0 {
			runs += fmt.Sprintf(" (%d after others)", r.After)
		}
		if r.PastRuns == 0 {
			rows = append(rows, []string{r.Job, runs, "–", "–", "–", "no history: nobody knows"})
			continue
		}
		rows = append(rows, []string{r.Job, runs, dollars(r.MedianUSD), dollars(r.HighUSD), fmt.Sprintf("%d to %d", r.MedianTokens, r.HighTokens),
			fmt.Sprintf("%s to %s a run, by %s of the past", dollars(r.RunMedianUSD), dollars(r.RunHighUSD), text.Plural(r.PastRuns, "run"))})
	}
	if err := table(out, "JOB RUNS MEDIAN HIGH TOKENS NOTE", rows); err != nil {
		return err
	}

	said := fmt.Sprintf("until %s: %s in the median, %s at the price that nine of ten runs cost no more than", local(c.To, now), dollars(c.MedianUSD), dollars(c.HighUSD))
	if c.Unforeseen > 0 {
		said += fmt.Sprintf("; beside %s of which there is no history", text.Plural(c.Unforeseen, "run"))
	}
	return sayf(out, "%s\n", said)
}

// comingJob is what a listing calls the job of a coming occurrence: a wake is its agent's.
func comingJob(o api.Occurrence) string {
	switch {
	case o.Source == scheduler.SourceWake:
		return "agent " + o.Agent
	case o.Job == "":
		return "(" + o.Agent + ")"
	}
	return o.Job
}

// comingNote says what becomes of an occurrence when it is not simply run, and why.
func comingNote(o api.Occurrence, zone *time.Location) string {
	if o.Decision == domain.DecisionRun {
		return shorten(readable(o.Reason, zone), 160)
	}
	return shorten(string(o.Decision)+": "+readable(o.Reason, zone), 160)
}
