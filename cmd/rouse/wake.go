package main

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

type wakeOptions struct {
	api.WakeRequest
	clear bool
}

func newWake(env *cli) *cobra.Command {
	var o wakeOptions
	cmd := &cobra.Command{
		Use:     "wake [AGENT] [--at T | --in 2h] [--instructions TEXT] [--clear]",
		Aliases: []string{"slot"},
		Short:   "Shows, sets or cancels an agent's next wake",
		Long: `An agent with self_scheduling plans one next wake, with the instructions that it gets then.
"rouse wake AGENT" shows it and the limits of the agent; without an agent it lists the next
wakes of all agents.

With --at or --in you plan the next wake, which replaces the planned one; of the limits only
the horizon holds for you. What you leave out stays as it was planned.
--at takes 15:04 (the next one), "monday 08:00", tomorrow, "2026-11-21 15:04" and more (rouse help
times).`,
		Example: `  rouse wake
  rouse wake bookkeeper --in 2h --instructions "Look whether the bank has answered."
  rouse wake bookkeeper --at "2026-11-23 08:00"
  rouse wake bookkeeper --clear`,
		RunE: func(cmd *cobra.Command, args []string) error { return runWake(cmd, env, o, args) },
	}

	f := cmd.Flags()
	f.StringVar(&o.At, "at", "", "plan the wake for a `time`")
	f.StringVar(&o.In, "in", "", "plan the wake in a length of `time`: 30m, 2h, 3d")
	f.StringVar(&o.Instructions, "instructions", "", "`text` that the agent gets then")
	f.StringVar(&o.Priority, "priority", "", "normal, or low: may be put off, and then dropped, when everything is busy")
	f.StringVar((*string)(&o.OnMiss), "on-miss", "", "when nothing ran at that time: `skip`, run_once (the default) or run_catchup")
	f.BoolVar(&o.clear, "clear", false, "cancel the planned wake")
	return withJSON(cmd)
}

// planning reports whether the command line plans a wake.
func (o wakeOptions) planning(cmd *cobra.Command) (bool, error) {
	planning := false
	for _, flag := range []string{"at", "in", "instructions", "priority", "on-miss"} {
		if !cmd.Flags().Changed(flag) {
			continue
		}
		planning = true
		if strings.TrimSpace(cmd.Flag(flag).Value.String()) == "" {
			return false, usagef("--%s is empty", flag)
		}
	}

	switch {
	case planning && o.clear:
		return false, usagef("--clear cancels the planned wake, so it goes with no other flag")
	case o.At != "" && o.In != "":
		return false, usagef("give --at or --in, not both")
	}

	return planning, nil
}

func runWake(cmd *cobra.Command, env *cli, o wakeOptions, args []string) error {
	planning, err := o.planning(cmd)
	switch {
	case err != nil:
		return err
	case len(args) == 0 && (planning || o.clear):
		return usagef("name the agent; agents that plan are listed by: rouse wake")
	case len(args) == 0:
		return showing(env, "/v1/slots", listWakes)(cmd, nil)
	}

	o.Agent = args[0]
	switch {
	case planning:
		return env.with(toChange, func(s *session, _ []string) error { return planWake(s, o.WakeRequest) })(cmd, args)
	case o.clear:
		return env.with(toRead, func(s *session, _ []string) error { return clearWake(s, o.Agent) })(cmd, args)
	}
	return env.with(toRead, func(s *session, _ []string) error {
		var slots []api.AgentWake
		if err := s.get("/v1/slots", url.Values{"agent": {o.Agent}}, &slots); err != nil {
			return err
		}
		// The daemon always answers with a list, also for a single agent.
		if len(slots) != 1 {
			return fmt.Errorf("the daemon answered with %d wakes of one agent; is it of the same version?", len(slots))
		}
		return jsonOr(cmd, slots[0], func() error {
			printPlannedWake(s, slots[0])
			return nil
		})
	})(cmd, args)
}

func listWakes(s *session, slots []api.AgentWake) error {
	now := s.now()
	none := "no agent plans wakes; to let one, give it in the configuration: self_scheduling: {mode: ambient}"
	return list(s.out, slots, none, "AGENT WAKES IN BY LEFT INSTRUCTIONS", func(a api.AgentWake) []string {
		row := []string{a.Agent, "–", "–", "–", leftText(a), "nothing is planned"}
		if a.Wake != nil {
			row = []string{a.Agent, local(a.Wake.At, now), inText(a.Wake.At, now), a.Wake.ScheduledBy, leftText(a), shorten(a.Wake.Instructions, 100)}
		}
		if a.Paused != "" {
			row[5] = "paused; " + row[5]
		}
		return row
	})
}

// leftText returns how many wakes may still start within 24 hours.
func leftText(a api.AgentWake) string {
	switch {
	case a.Limits == nil:
		return "off"
	case a.Limits.Mode == string(schedule.ModeManual):
		return a.Limits.Mode
	case a.Left == nil:
		return "any"
	}
	return fmt.Sprintf("%d of %d", *a.Left, a.Limits.DailyCap)
}

// printPlannedWake prints the planned wake and the limits for new wakes.
func printPlannedWake(s *session, a api.AgentWake) {
	field := func(name, format string, args ...any) {
		fmt.Fprintf(s.out, "  %-13s %s\n", name, fmt.Sprintf(format, args...))
	}
	switch {
	case a.Wake == nil && !a.Planning:
		fmt.Fprintln(s.out, a.Off)
		return
	case a.Wake == nil:
		fmt.Fprintf(s.out, "nothing is planned for the agent %s; plan its next wake: rouse wake %[1]s --in 2h --instructions \"…\"\n", a.Agent)
	default:
		fmt.Fprintf(s.out, "the agent %s wakes %s (%s), planned by %s\n", a.Agent, api.LocalTime(a.Wake.At.Time, s.zone), inText(a.Wake.At, s.now()), plannedBy(*a.Wake))
		field("instructions", "%s", shorten(a.Wake.Instructions, 500))
		// The limits moved the wake.
		if !a.Wake.Asked.Equal(a.Wake.At.Time) {
			field("asked for", "%s", api.LocalTime(a.Wake.Asked.Time, s.zone))
		}
		field("when missed", "%s; priority %s", a.Wake.OnMiss, a.Wake.Priority)
		if a.Wake.Depth > 0 {
			field("chain", "wake %d in a row that the agent planned", a.Wake.Depth)
		}
	}

	if a.Paused != "" {
		field("paused", "%s; a wake waits for its end", text.OneLine(a.Paused))
	}
	// Self-scheduling is off. A wake that was planned earlier may still be shown above.
	if a.Limits == nil {
		field("off", "%s", a.Off)
		return
	}
	field("mode", "%s", limitsText(a))
}

// plannedBy describes the author of a wake and its run.
func plannedBy(s api.Wake) string {
	text := "the " + s.ScheduledBy
	if s.Run != "" {
		text += " in run " + s.Run
	}
	if s.Job != "" {
		text += ", in a chain that the job " + s.Job + " began"
	}
	return text
}

// limitsText describes the limits within which an agent can plan wakes.
func limitsText(a api.AgentWake) string {
	l := a.Limits
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	// Zero means no limit.
	if l.Horizon != "0s" {
		add("at most %s ahead", l.Horizon)
	}
	if l.Mode == string(schedule.ModeManual) {
		return strings.Join(append([]string{"manual: only you plan"}, parts...), ", ")
	}
	if l.MinInterval != "0s" {
		add("at least %s ahead", l.MinInterval)
	}
	if a.Left != nil {
		add("%d wakes in 24 hours, %d of them left", l.DailyCap, *a.Left)
	} else {
		add("any number of wakes")
	}
	if l.QuietHours != "none" {
		add("none at %s", l.QuietHours)
	}
	if len(l.Days) < 7 {
		add("only on %s", strings.Join(l.Days, " "))
	}
	if l.MaxChain > 0 {
		add("at most %d in a row", l.MaxChain)
	}
	return l.Mode + ": " + strings.Join(parts, ", ")
}

func planWake(s *session, ask api.WakeRequest) error {
	var p api.PlannedWake
	return s.send("/v1/slots", ask, &p, func() error {
		if p.Wake == nil { // the wake starts at once
			fmt.Fprintf(s.out, "the agent %s is woken now\n", p.Agent)
		} else {
			printPlannedWake(s, p.AgentWake)
		}
		for _, w := range p.Warnings {
			fmt.Fprintf(s.out, "  note          %s\n", text.OneLine(w))
		}
		if !s.daemon {
			fmt.Fprintln(s.out, "  no daemon runs now; the wake comes once one does")
		}
		return nil
	})
}

func clearWake(s *session, agent string) error {
	var a api.CancelledWake
	return s.send("/v1/slots/clear", map[string]string{"agent": agent}, &a, func() error {
		return sayf(s.out, "the wake of the agent %s at %s is cancelled; it was to do: %s\n", a.Agent, api.LocalTime(a.Wake.At.Time, s.zone), shorten(a.Wake.Instructions, 200))
	})
}
