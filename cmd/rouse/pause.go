package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/ledger/pause"
	"rouse/internal/text"
)

// scopeFlags holds the flags that select the scope of a pause.
type scopeFlags struct {
	agent string
	all   bool
}

func (f *scopeFlags) add(cmd *cobra.Command, verb string) {
	cmd.Flags().StringVar(&f.agent, "agent", "", verb+" this `agent`: all its jobs, and the wakes that it plans")
	cmd.Flags().BoolVar(&f.all, "all", false, verb+" everything")
}

// scope returns the selected scope, or "" if there is none, and the remaining arguments.
func (f *scopeFlags) scope(args []string) (scope, name string, rest []string, err error) {
	switch {
	case f.all && f.agent != "":
		return "", "", nil, usagef("give --agent or --all, not both: --all is every agent")
	// Only "tomorrow" may follow a flag. It is the end of the pause, not a job.
	case (f.all || f.agent != "") && len(args) > 0 && !strings.EqualFold(args[0], tomorrow):
		flag := "--all"
		if f.agent != "" {
			flag = "--agent " + f.agent
		}
		return "", "", nil, usagef("give the job %s or %s, not both", text.OneLine(args[0]), flag)
	case f.all:
		return pause.All, "", args, nil
	case f.agent != "":
		return pause.Agent, f.agent, args, nil
	case len(args) > 0:
		return pause.Job, args[0], args[1:], nil
	}
	return "", "", nil, nil
}

const tomorrow = "tomorrow"

type pauseOptions struct {
	scopeFlags
	length, until, reason string
}

func newPause(env *cli) *cobra.Command {
	var o pauseOptions
	cmd := &cobra.Command{
		Use:   "pause [JOB | --agent A | --all] [--for 4h | --until T | tomorrow] [--reason R]",
		Short: "Keeps a job, an agent or everything from starting for a while; alone, lists what is paused",
		Long: `Keeps a job, an agent or everything from starting for a while. Without an end the pause
lasts until "rouse resume". Alone, it lists what is paused.

Occurrences of a schedule that fall into a pause are skipped, and not caught up. Files that
arrive, and wakes that agents planned, wait for its end. Runs that are on go on, and what
you start yourself with "rouse run" still runs. Pausing what is paused replaces the pause.

--until takes 15:04 (the next one), monday, "monday 08:00", 2026-11-21 and more (rouse help times).
"tomorrow" is the start of the next day.`,
		Example: `  rouse pause morning-report --for 4h
  rouse pause morning-report tomorrow --reason "the bank is down"
  rouse pause --agent bookkeeper --until "2026-12-27 08:00"
  rouse pause --all
  rouse pause`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return runPause(cmd, env, o, args) },
	}

	f := cmd.Flags()
	o.add(cmd, "pause")
	f.StringVar(&o.length, "for", "", "pause for a length of `time`: 90m, 4h, 7d")
	f.StringVar(&o.until, "until", "", "pause until a `time`: 15:04, tomorrow, \"monday 08:00\", 2026-11-21")
	f.StringVar(&o.reason, "reason", "", "`text` that is shown wherever the pause is")
	return withJSON(cmd)
}

// ask returns the request for the command line. If the command line requests no pause, Scope is "".
func (o pauseOptions) ask(cmd *cobra.Command, args []string) (api.PauseRequest, error) {
	scope, name, rest, err := o.scope(args)
	ask := api.PauseRequest{Scope: scope, Name: name, For: o.length, Until: o.until, Reason: o.reason}
	if err != nil {
		return ask, err
	}

	given := func(flag string) bool { return cmd.Flags().Changed(flag) }
	for _, flag := range []string{"agent", "for", "until"} {
		// An empty value usually comes from an unset shell variable. Without this check, --agent ""
		// would count as not given, and the command would do something else.
		if given(flag) && cmd.Flag(flag).Value.String() == "" {
			return ask, usagef("--%s is empty", flag)
		}
	}

	switch {
	// Without arguments the command lists pauses, so flags without a scope must not be ignored.
	case scope == "" && (given("for") || given("until") || given("reason")):
		return ask, usagef("name a job, or give --agent or --all: what is to be paused?")
	case len(rest) > 0 && !strings.EqualFold(rest[0], tomorrow):
		return ask, usagef("%q was not understood; after what is paused only %q may follow, other times go with --for and --until", shorten(rest[0], 60), tomorrow)
	case len(rest) > 1:
		return ask, usagef("%q was not understood", shorten(rest[1], 60))
	case len(rest) == 1 && (given("until") || given("for")), given("until") && given("for"):
		return ask, usagef("give one end of the pause: --for, --until or tomorrow")
	case len(rest) == 1:
		ask.Until = tomorrow
	}

	return ask, nil
}

func runPause(cmd *cobra.Command, env *cli, o pauseOptions, args []string) error {
	ask, err := o.ask(cmd, args)
	switch {
	case err != nil:
		return err
	case ask.Scope == "":
		return showing(env, "/v1/pauses", listPauses)(cmd, nil)
	}
	return env.with(toChange, func(s *session, _ []string) error {
		var p api.Paused
		return s.send("/v1/pauses", ask, &p, func() error { return printPaused(s, p) })
	})(cmd, args)
}

// printPaused prints what is paused, what still runs, and how to end the pause.
func printPaused(s *session, p api.Paused) error {
	fmt.Fprintln(s.out, text.OneLine(p.Text(s.zone)))

	its, wakes, hand := "every schedule", "", "rouse run"
	switch p.Scope {
	case pause.Job:
		its, hand = "its schedule", "rouse run "+p.Name
	case pause.Agent:
		its, wakes = "the schedule of each of its jobs", " and wakes that it planned"
	default:
		wakes = " and planned wakes"
	}
	fmt.Fprintf(s.out, "  %s is skipped meanwhile, and not caught up; files that arrive%s wait, requests to webhooks are refused (503)\n", its, wakes)

	active := "no run of it is active"
	switch n := len(p.Running); {
	case n == 1:
		active = fmt.Sprintf("run %s is running and continues (stop it: rouse stop %[1]s)", p.Running[0])
	case n > 1:
		active = fmt.Sprintf("%d runs are running and continue (%s)", n, text.List(p.Running, 10))
	}
	fmt.Fprintf(s.out, "  %s; you can still start runs yourself: %s\n", active, hand)

	for _, other := range p.Held {
		fmt.Fprintf(s.out, "  besides: %s\n", text.OneLine(other.Text(s.zone)))
	}
	fmt.Fprintf(s.out, "  end it: rouse resume %s\n", api.ScopeArgs(p.Scope, p.Name))
	if !s.daemon {
		fmt.Fprintln(s.out, "  no daemon runs now; the next one keeps to the pause")
	}
	return nil
}

func listPauses(s *session, pauses []api.Pause) error {
	now := s.now()
	return list(s.out, pauses, "nothing is paused", "PAUSED SINCE UNTIL BY REASON", func(p api.Pause) []string {
		until := "resumed"
		if !p.Until.IsZero() {
			until = when(p.Until, now)
		}
		return []string{api.ScopeText(p.Scope, p.Name), when(p.Since, now), until, p.By, shorten(p.Reason, 120)}
	})
}

func newResume(env *cli) *cobra.Command {
	var o scopeFlags
	cmd := &cobra.Command{
		Use:   "resume JOB | --agent A | --all",
		Short: "Ends a pause",
		Long: `Ends a pause before its time. A job whose agent is paused stays paused with it, and
--all ends the pause of everything, not those of single jobs and agents: what still holds
is said. Wakes and files that waited start at once; occurrences that were skipped do not.`,
		Example: `  rouse resume morning-report
  rouse resume --all`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			scope, name, rest, err := o.scope(args)
			switch {
			case err != nil:
				return err
			case scope == "" || (scope == pause.Agent && name == ""):
				return usagef("name a job, or give --agent or --all; what is paused is listed by: rouse pause")
			case len(rest) > 0:
				return usagef("%q was not understood: resume takes effect at once", shorten(rest[0], 60))
			}

			return env.with(toRead, func(s *session, _ []string) error { return runResume(s, scope, name) })(cmd, args)
		},
	}

	o.add(cmd, "resume")
	return withJSON(cmd)
}

func runResume(s *session, scope, name string) error {
	var r api.Resumed
	return s.send("/v1/pauses/end", map[string]string{"scope": scope, "name": name}, &r, func() error {
		// A pause of the agent or of everything may still cover the resumed job.
		fmt.Fprintf(s.out, "%s is resumed\n", api.ScopeText(scope, name))
		for _, p := range r.Held {
			fmt.Fprintf(s.out, "  but %s; resume with: rouse resume %s\n", text.OneLine(p.Text(s.zone)), api.ScopeArgs(p.Scope, p.Name))
		}
		return nil
	})
}

// loadZone returns the named time zone, or this machine's zone if the name is unknown.
func loadZone(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if name == "" || err != nil { // older daemons do not send a name
		return time.Local
	}
	return zone
}
