package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
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
		Long: `Lists history, newest first. With --job, runs of wakes that the job planned are
part of it, and its planned wakes stand above it: in JSON with the state planned and no id.
Wakes that you plan belong to no job: rouse runs --agent AGENT --trigger self.`,
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
	f.StringVar(&o.since, "since", "", "only runs queued since a `time`: 7d, yesterday, \"monday 08:00\", 2026-11-21")
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

	s, err := at.openToRead(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	since, err := s.since("--since", o.since)
	if err != nil {
		return err
	}
	if !since.IsZero() {
		q.Set("since", since.Format(time.RFC3339Nano))
	}

	runs, err := getPages(cmd.Context(), s, "/v1/runs", q, o.pages, func(r api.Run) string { return r.ID })
	if err != nil {
		return err
	}
	planned := plannedWakes(cmd.Context(), s, o)
	if o.json {
		return printJSON(cmd.OutOrStdout(), append(plannedRuns(planned), runs...))
	}

	now := s.now()
	for _, w := range planned {
		fmt.Fprintf(cmd.OutOrStdout(), "planned by run %s: a wake of %s at %s: %s\n", cmp.Or(w.Wake.Run, "–"), w.Agent, local(w.Wake.At, now), shorten(w.Wake.Instructions, 80))
	}
	if len(runs) == 0 {
		return sayf(cmd.OutOrStdout(), "no runs\n")
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

// plannedWakes returns the wakes that a job planned. It returns nil without a job, if only some runs are listed, or if the
// configuration cannot be used, because runs are listed then, too.
func plannedWakes(ctx context.Context, s *session, o runsOptions) (out []api.AgentWake) {
	var all []api.AgentWake
	if o.job == "" || o.outcome != "" || o.state != "" || o.before != "" || s.Get(ctx, "/v1/slots", nil, &all) != nil {
		return nil
	}
	for _, w := range all {
		if w.Wake != nil && w.Wake.Job == o.job {
			out = append(out, w)
		}
	}
	return out
}

// plannedRuns converts planned wakes to runs with the state planned.
func plannedRuns(wakes []api.AgentWake) []api.Run {
	out := []api.Run{}
	for _, w := range wakes {
		detail, _ := json.Marshal(w.Wake)
		out = append(out, api.Run{Agent: w.Agent, Trigger: domain.TriggerSelf, TriggerDetail: detail, State: "planned", ScheduledAt: w.Wake.At, Summary: w.Wake.Instructions, Artifacts: []string{}, Taint: []string{}})
	}
	return out
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
