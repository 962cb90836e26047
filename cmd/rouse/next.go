package main

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/scheduler"
)

func newNext(at *place) *cobra.Command {
	var asJSON bool
	var n int
	cmd := &cobra.Command{
		Use:   "next [JOB]",
		Short: "Lists coming occurrences of every schedule, and the wakes that agents planned",
		Long: `Lists coming occurrences of every schedule, the wakes that agents planned, and runs that
wait for their time (retries, jitter), of one job or of all. NOTE says what is special:
jitter, a change of the clock, and why one will be skipped (an excluded date, a pause).`,
		Example: `  rouse next
  rouse next morning-report -n 10`,
		Args: cobra.MaximumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			s, err := at.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()

			q := url.Values{"n": {strconv.Itoa(n)}}
			if len(args) == 1 {
				q.Set("job", args[0])
			}

			var coming []api.Occurrence
			if err := s.Get(cmd.Context(), "/v1/next", q, &coming); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), coming)
			}

			now := time.Now()
			var rows [][]string
			for _, o := range coming {
				rows = append(rows, []string{local(o.Actual, now), inText(o.Actual, now), comingJob(o), o.Source, comingNote(o)})
			}
			if len(rows) == 0 {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "nothing is to come by the clock")
				return err
			}

			return table(cmd.OutOrStdout(), "AT IN JOB SOURCE NOTE", rows)
		}),
	}

	cmd.Flags().IntVarP(&n, "number", "n", 5, "how many")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
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
func comingNote(o api.Occurrence) string {
	if o.Decision == domain.DecisionRun {
		return shorten(readable(o.Reason, time.Local), 160)
	}
	return shorten(string(o.Decision)+": "+readable(o.Reason, time.Local), 160)
}
