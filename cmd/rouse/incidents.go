package main

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

func newIncidents(at *place) *cobra.Command {
	var job string
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "incidents [--job J] [--all]",
		Short: "Lists jobs that fail, by the kind of error, until they succeed again",
		Long: `Lists the incidents that are open: a job, or the wakes of an agent, and a kind of error, from
the first failure to the next success. You are told of the first failure, of every tenth or as the
channel says, and of the recovery; of no further failure once you acknowledge it: rouse ack.`,
		Example: `  rouse incidents
  rouse incidents --job backup --all`,
		Args: cobra.NoArgs,
		RunE: withSession(at.openToRead, func(cmd *cobra.Command, _ []string, s *session) error {
			query := url.Values{"job": {job}, "n": {strconv.Itoa(pageSize)}}
			if all {
				query.Set("all", "true")
			}
			var incidents []api.Incident
			if done, err := s.fetch(cmd, asJSON, "/v1/incidents", query, &incidents); done || err != nil {
				return err
			}
			return printIncidents(cmd, incidents)
		}),
	}

	cmd.Flags().StringVar(&job, "job", "", "those of this `job`")
	cmd.Flags().BoolVar(&all, "all", false, "those that are over, too, the newest first")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printIncidents(cmd *cobra.Command, incidents []api.Incident) error {
	if len(incidents) == 0 {
		return sayf(cmd.OutOrStdout(), "no incident is open\n")
	}

	now := time.Now()
	var rows [][]string
	for _, i := range incidents {
		state := "open"
		switch {
		case !i.ClosedAt.IsZero():
			state = "over " + when(i.ClosedAt, now)
		case !i.AckedAt.IsZero():
			state = "known"
			if i.Note != "" {
				state += ": " + shorten(i.Note, 40)
			}
		}
		rows = append(rows, []string{i.ID, text.OneLine(i.Of()), i.Kind, fmt.Sprint(i.Failures), when(i.OpenedAt, now), state, i.LastRun, shorten(i.Error, 100)})
	}
	return table(cmd.OutOrStdout(), "INCIDENT JOB KIND FAILURES SINCE STATE RUN ERROR", rows)
}

func newAck(at *place) *cobra.Command {
	var note string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ack INCIDENT",
		Short: "Acknowledges an incident: you are told of no further failure of it until the job succeeds",
		Long: `Acknowledges an incident, whose number is in the notice of the failure and in "rouse incidents".
Failures of the same job with the same kind of error are counted, and told to nobody any more. That
the job has recovered is told; it ends the incident, and a later failure opens another one. So does
a failure of another kind meanwhile.`,
		Example: `  rouse ack 3
  rouse ack 3 --note "the bank is down until Monday"`,
		Args: cobra.ExactArgs(1),
		RunE: withSession(at.openToRead, func(cmd *cobra.Command, args []string, s *session) error {
			var i api.Incident
			if done, err := s.send(cmd, asJSON, "/v1/incidents/"+url.PathEscape(args[0])+"/acknowledge", api.Acknowledgement{Note: note}, &i); done || err != nil {
				return err
			}
			return sayf(cmd.OutOrStdout(), "incident %s of %s is known: further failures (%s) are counted, and told when it has recovered\n", i.ID, text.OneLine(i.Of()), i.Kind)
		}),
	}

	cmd.Flags().StringVar(&note, "note", "", "`text` that is shown with the incident")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
