package main

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/domain"
	"rouse/internal/text"
)

type runsOptions struct {
	job, agent, trigger, outcome, state, since string
	pages
	json bool
}

func newRuns(at *place) *cobra.Command {
	var o runsOptions
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "Lists history, newest first",
		Example: `  rouse runs --job inbox --outcome error
  rouse runs -n 100 --before 4711
  rouse runs --all --json`,
		Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return runRuns(cmd, at, o) }),
	}

	f := cmd.Flags()
	f.StringVar(&o.job, "job", "", "only this `job`")
	f.StringVar(&o.agent, "agent", "", "only this `agent`")
	f.StringVar(&o.trigger, "trigger", "", "only what this `trigger` asked for: "+strings.Join(triggers, ", "))
	f.StringVar(&o.outcome, "outcome", "", "only this `outcome`: "+strings.Join(outcomes, ", "))
	f.StringVar(&o.state, "state", "", "only this `state`: "+strings.Join(states, ", "))
	f.StringVar(&o.since, "since", "", "only runs queued since a `time` ago (7d, 12h) or an RFC 3339 instant")
	o.flags(f, 20, "run", "")
	f.BoolVar(&o.json, "json", false, "print JSON")

	return cmd
}

var (
	outcomes = text.Strings(domain.Outcomes())
	triggers = text.Strings(domain.Triggers())
	states   = text.Strings(domain.States())
)

func runRuns(cmd *cobra.Command, at *place, o runsOptions) error {
	// Checked here, since a misspelt filter would find no runs and look like an answer.
	if o.trigger != "" && !slices.Contains(triggers, o.trigger) {
		return usagef("--trigger %q is none of %s", o.trigger, strings.Join(triggers, ", "))
	}
	if o.outcome != "" && !slices.Contains(outcomes, o.outcome) {
		return usagef("--outcome %q is none of %s", o.outcome, strings.Join(outcomes, ", "))
	}
	if o.state != "" && !slices.Contains(states, o.state) {
		return usagef("--state %q is none of %s", o.state, strings.Join(states, ", "))
	}

	q := url.Values{}
	for key, value := range map[string]string{"job": o.job, "agent": o.agent, "trigger": o.trigger, "outcome": o.outcome, "state": o.state} {
		if value != "" {
			q.Set(key, value)
		}
	}

	now := time.Now()
	if o.since != "" {
		since, err := parseSince(o.since, now)
		if err != nil {
			return err
		}
		q.Set("since", since.UTC().Format(time.RFC3339Nano))
	}

	s, err := at.open(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	runs, err := getPages(cmd.Context(), s, "/v1/runs", q, o.pages, func(r api.Run) string { return r.ID })
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(cmd.OutOrStdout(), runs)
	}

	if len(runs) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "no runs")
		return err
	}

	var rows [][]string
	for _, r := range runs {
		rows = append(rows, []string{r.ID, when(r.QueuedAt, now), jobName(r), string(r.Trigger), s.mark(r), runDuration(r, now), strconv.Itoa(r.Steps), shorten(runSummary(r), 80)})
	}

	if err := table(cmd.OutOrStdout(), "RUN QUEUED JOB TRIGGER OUTCOME TOOK STEPS SUMMARY", rows); err != nil {
		return err
	}
	return s.sayNoDaemon(cmd.OutOrStdout(), runs...)
}

// parseSince reads a length of time back from now, or an instant.
func parseSince(text string, now time.Time) (time.Time, error) {
	if d, err := config.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	return time.Time{}, usagef("--since %q is neither a length of time (90m, 7d) nor an RFC 3339 instant (2026-11-21T08:00:00Z)", text)
}

// jobName is what a listing calls a run's job: an ad-hoc run has only an agent.
func jobName(r api.Run) string {
	if r.Job == "" {
		return "(" + r.Agent + ")"
	}
	return r.Job
}

// runSummary is the one line that tells what a run did.
func runSummary(r api.Run) string {
	if r.Error != "" {
		return r.Error
	}
	return r.Summary
}
