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
	"rouse/internal/text"
)

func newIncidents(env *cli) *cobra.Command {
	var job string
	var all bool
	cmd := &cobra.Command{
		Use:   "incidents [--job J] [--all]",
		Short: "Lists jobs that fail, by the kind of error, until they succeed again",
		Long: `Lists the incidents that are open: a job, or the wakes of an agent, and a kind of error, from
the first failure to the next success. You are told of the first failure, of every tenth or as the
channel says, and of the recovery; of no further failure once you acknowledge it: rouse ack.`,
		Example: `  rouse incidents
  rouse incidents --job backup --all`,
		RunE: env.with(toRead, func(s *session, _ []string) error {
			query := queryOf("job", job, "n", strconv.Itoa(pageSize))
			if all {
				query.Set("all", "true")
			}
			var incidents []api.Incident
			return s.show("/v1/incidents", query, &incidents, func() error { return printIncidents(s.out, incidents) })
		}),
	}

	cmd.Flags().StringVar(&job, "job", "", "those of this `job`")
	cmd.Flags().BoolVar(&all, "all", false, "those that are over, too, the newest first")
	return withJSON(cmd)
}

func printIncidents(w io.Writer, incidents []api.Incident) error {
	now := time.Now()
	return list(w, incidents, "no incident is open", "INCIDENT JOB KIND FAILURES SINCE STATE RUN ERROR", func(i api.Incident) []string {
		state := "open"
		switch {
		case !i.ClosedAt.IsZero():
			state = "over " + when(i.ClosedAt, now)
		case !i.AckedAt.IsZero():
			state = strings.TrimSuffix("known: "+shorten(i.Note, 40), ": ")
		}
		return []string{i.ID, text.OneLine(i.Of()), i.Kind, fmt.Sprint(i.Failures), when(i.OpenedAt, now), state, i.LastRun, shorten(i.Error, 100)}
	})
}

func newAck(env *cli) *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use:   "ack INCIDENT",
		Short: "Acknowledges an incident: you are told of no further failure of it until the job succeeds",
		Long: `Acknowledges an incident, whose number is in the notice of the failure and in "rouse incidents".
Failures of the same job with the same kind of error are counted, and told to nobody any more. That
the job has recovered is told; it ends the incident, and a later failure opens another one. So does
a failure of another kind meanwhile.`,
		Example: `  rouse ack 3
  rouse ack 3 --note "the bank is down until Monday"`,
		RunE: env.with(toRead, func(s *session, args []string) error {
			var i api.Incident
			return s.send("/v1/incidents/"+url.PathEscape(args[0])+"/acknowledge", api.Acknowledgement{Note: note}, &i, func() error {
				return sayf(s.out, "incident %s of %s is known: further failures (%s) are counted, and told when it has recovered\n", i.ID, text.OneLine(i.Of()), i.Kind)
			})
		}),
	}

	cmd.Flags().StringVar(&note, "note", "", "`text` that is shown with the incident")
	return withJSON(cmd)
}

func newNotify(env *cli) *cobra.Command {
	var channel string
	cmd := &cobra.Command{
		Use:   "notify TEXT",
		Short: "Tries a notification channel",
		Args:  cobra.MinimumNArgs(1),
		RunE: env.with(toChange, func(s *session, args []string) error {
			var sent api.NotifySent
			return s.send("/v1/notices", api.NotifyRequest{Channel: channel, Text: strings.Join(args, " ")}, &sent, func() error {
				return sayf(s.out, "sent to %s\n", sent.Channel)
			})
		}),
	}

	cmd.Flags().StringVar(&channel, "channel", "", "`name` of the channel, the default channel if empty")
	return cmd
}
