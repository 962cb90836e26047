package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/watcher"
)

func newJobs(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "Lists each job: triggers, next occurrence, last outcome",
		Args:  cobra.NoArgs,
		RunE: withSession(at.openToRead, func(cmd *cobra.Command, _ []string, s *session) error {
			var jobs []api.Job
			if done, err := s.fetch(cmd, asJSON, "/v1/jobs", nil, &jobs); done || err != nil {
				return err
			}

			now := s.now()
			var rows [][]string
			for _, j := range jobs {
				state := jobState(j, now)
				if !s.daemon && state == stateArmed {
					state = "not armed"
				}
				rows = append(rows, []string{j.Name, j.Agent, state, when(j.Next, now), lastOf(j, now), strings.Join(j.Triggers, "; ")})
			}

			err := table(cmd.OutOrStdout(), "JOB AGENT STATE NEXT LAST TRIGGERS", rows)
			if err == nil && !s.daemon {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "no daemon serves %s, so nothing starts by itself: rouse serve\n", s.home)
			}
			return err
		}),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// stateArmed is the state of a job that the daemon starts when it is time.
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
