package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/text"
)

type runsOptions struct {
	job, agent, trigger, outcome, state, since string
	pages
}

func newRuns(env *cli) *cobra.Command {
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
		RunE: func(cmd *cobra.Command, args []string) error {
			// Check the filters: a misspelt filter would match no runs, which looks like a result.
			for _, flag := range []struct {
				name, value string
				known       []string
			}{{"trigger", o.trigger, triggers}, {"outcome", o.outcome, outcomes}, {"state", o.state, states}} {
				if flag.value != "" && !slices.Contains(flag.known, flag.value) {
					return usagef("--%s %q is none of %s", flag.name, flag.value, strings.Join(flag.known, ", "))
				}
			}
			return env.with(toRead, func(s *session, _ []string) error { return listRuns(s, o) })(cmd, args)
		},
	}

	f := cmd.Flags()
	f.StringVar(&o.job, "job", "", "only this `job`")
	f.StringVar(&o.agent, "agent", "", "only this `agent`")
	f.StringVar(&o.trigger, "trigger", "", "only what this `trigger` asked for: "+strings.Join(triggers, ", "))
	f.StringVar(&o.outcome, "outcome", "", "only this `outcome`: "+strings.Join(outcomes, ", "))
	f.StringVar(&o.state, "state", "", "only this `state`: "+strings.Join(states, ", "))
	f.StringVar(&o.since, "since", "", "only runs queued since a `time`: 7d, yesterday, \"monday 08:00\", 2026-11-21")
	o.flags(f, 20, "run", "")
	return withJSON(cmd)
}

var (
	outcomes = text.Strings(domain.Outcomes())
	triggers = text.Strings(domain.Triggers())
	states   = text.Strings(domain.States())
)

func listRuns(s *session, o runsOptions) error {
	since, err := s.since("--since", o.since)
	if err != nil {
		return err
	}
	q := queryOf("job", o.job, "agent", o.agent, "trigger", o.trigger, "outcome", o.outcome, "state", o.state, "since", since)
	runs, err := getPages(s, "/v1/runs", q, o.pages, func(r api.Run) string { return r.ID })
	if err != nil {
		return err
	}
	planned := plannedWakes(s, o)
	if wantsJSON(s.cmd) {
		all := []api.Run{}
		for _, w := range planned {
			detail, _ := json.Marshal(w.Wake)
			all = append(all, api.Run{Agent: w.Agent, Trigger: domain.TriggerSelf, TriggerDetail: detail, State: "planned", ScheduledAt: w.Wake.At, Summary: w.Wake.Instructions, Artifacts: []string{}, Taint: []string{}})
		}
		return printJSON(s.out, append(all, runs...))
	}

	now := s.now()
	for _, w := range planned {
		fmt.Fprintf(s.out, "planned by run %s: a wake of %s at %s: %s\n", cmp.Or(w.Wake.Run, "–"), w.Agent, local(w.Wake.At, now), shorten(w.Wake.Instructions, 80))
	}
	err = list(s.out, runs, "no runs", "RUN QUEUED JOB TRIGGER OUTCOME TOOK STEPS SUMMARY", func(r api.Run) []string {
		return []string{r.ID, when(r.QueuedAt, now), jobName(r), string(r.Trigger), s.mark(r), runDuration(r, now), strconv.Itoa(r.Steps), shorten(runSummary(r), 80)}
	})
	if err != nil {
		return err
	}
	return s.sayNoDaemon(runs...)
}

// plannedWakes returns the wakes that a job planned. It returns nil without a job, if a filter is
// set, or if the request fails. The runs are still listed in these cases.
func plannedWakes(s *session, o runsOptions) []api.AgentWake {
	var all []api.AgentWake
	if o.job == "" || o.outcome != "" || o.state != "" || o.before != "" || s.get("/v1/slots", nil, &all) != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(w api.AgentWake) bool { return w.Wake == nil || w.Wake.Job != o.job })
}

// jobName returns the job of a run for a listing. A run without a job is listed under its agent.
func jobName(r api.Run) string {
	if r.Job == "" {
		return "(" + r.Agent + ")"
	}
	return r.Job
}

// runSummary returns one line about the result of a run.
func runSummary(r api.Run) string { return cmp.Or(r.Error, r.Summary) }
