package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

// scopeFlags say what a pause is about.
type scopeFlags struct {
	agent string
	all   bool
}

func (f *scopeFlags) add(cmd *cobra.Command, verb string) {
	cmd.Flags().StringVar(&f.agent, "agent", "", verb+" this `agent`: all its jobs, and the wakes that it plans")
	cmd.Flags().BoolVar(&f.all, "all", false, verb+" everything")
}

// scope is the one thing that the command line names, "" when it names nothing, and the
// arguments behind it.
func (f *scopeFlags) scope(args []string) (scope, name string, rest []string, err error) {
	switch {
	case f.all && f.agent != "":
		return "", "", nil, usagef("give --agent or --all, not both: --all is every agent")
	// "tomorrow" is the one word that may follow a flag: it is the end of the pause, not a job.
	case (f.all || f.agent != "") && len(args) > 0 && !strings.EqualFold(args[0], tomorrow):
		flag := "--all"
		if f.agent != "" {
			flag = "--agent " + f.agent
		}
		return "", "", nil, usagef("give the job %s or %s, not both", text.OneLine(args[0]), flag)
	case f.all:
		return ledger.PauseAll, "", args, nil
	case f.agent != "":
		return ledger.PauseAgent, f.agent, args, nil
	case len(args) > 0:
		return ledger.PauseJob, args[0], args[1:], nil
	}
	return "", "", nil, nil
}

const tomorrow = "tomorrow"

type pauseOptions struct {
	scopeFlags
	length, until, reason string
	json                  bool
}

func newPause(at *place) *cobra.Command {
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
		RunE: verb(func(cmd *cobra.Command, args []string) error { return runPause(cmd, at, o, args) }),
	}

	f := cmd.Flags()
	o.add(cmd, "pause")
	f.StringVar(&o.length, "for", "", "pause for a length of `time`: 90m, 4h, 7d")
	f.StringVar(&o.until, "until", "", "pause until a `time`: 15:04, tomorrow, \"monday 08:00\", 2026-11-21")
	f.StringVar(&o.reason, "reason", "", "`text` that is shown wherever the pause is")
	f.BoolVar(&o.json, "json", false, "print JSON")

	return cmd
}

// ask is the request that the command line means; Scope is "" when it asks for nothing.
func (o pauseOptions) ask(cmd *cobra.Command, args []string) (api.PauseRequest, error) {
	scope, name, rest, err := o.scope(args)
	ask := api.PauseRequest{Scope: scope, Name: name, For: o.length, Until: o.until, Reason: o.reason}
	if err != nil {
		return ask, err
	}

	given := func(flag string) bool { return cmd.Flags().Changed(flag) }
	for _, flag := range []string{"agent", "for", "until"} {
		// An empty value is mostly a shell variable that was not set. Without this check
		// --agent "" would count as not given, and the command would do something else.
		if given(flag) && cmd.Flag(flag).Value.String() == "" {
			return ask, usagef("--%s is empty", flag)
		}
	}

	switch {
	// Alone the command lists pauses, so flags without a scope must not pass silently.
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

func runPause(cmd *cobra.Command, at *place, o pauseOptions, args []string) error {
	ask, err := o.ask(cmd, args)
	if err != nil {
		return err
	}

	open := at.open
	if ask.Scope == "" {
		open = at.openToRead
	}
	s, err := open(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	if ask.Scope == "" {
		return listPauses(cmd, s, o.json)
	}

	var p api.Paused
	if done, err := s.send(cmd, o.json, "/v1/pauses", ask, &p); done || err != nil {
		return err
	}

	printPaused(cmd.OutOrStdout(), p, s.daemon)
	return nil
}

// printPaused says what is paused, what goes on all the same, and how to end the pause.
func printPaused(w io.Writer, p api.Paused, daemon bool) {
	zone := loadZone(p.Zone)
	fmt.Fprintln(w, text.OneLine(p.Text(zone)))

	switch p.Scope {
	case ledger.PauseJob:
		fmt.Fprintln(w, "  its schedule is skipped meanwhile, and not caught up; files that arrive wait, requests to its webhook are refused (503)")
	case ledger.PauseAgent:
		fmt.Fprintln(w, "  the schedules of its jobs are skipped meanwhile, and not caught up; files that arrive and wakes that it planned wait, requests to their webhooks are refused (503)")
	default:
		fmt.Fprintln(w, "  every schedule is skipped meanwhile, and not caught up; files that arrive and planned wakes wait, requests to webhooks are refused (503)")
	}

	hand := "rouse run"
	if p.Scope == ledger.PauseJob {
		hand += " " + p.Name
	}

	switch n := len(p.Running); {
	case n == 1:
		fmt.Fprintf(w, "  run %s is running and continues (stop it: rouse stop %s); you can still start runs yourself: %s\n", p.Running[0], p.Running[0], hand)
	case n > 1:
		fmt.Fprintf(w, "  %d runs are running and continue (%s); you can still start runs yourself: %s\n", n, text.List(p.Running, 10), hand)
	default:
		fmt.Fprintf(w, "  no run of it is active; you can still start runs yourself: %s\n", hand)
	}

	if len(p.Held) > 0 {
		fmt.Fprintf(w, "  besides: %s\n", text.OneLine(heldText(p.Held, zone)))
	}

	fmt.Fprintf(w, "  end it: rouse resume %s\n", api.ScopeArgs(p.Scope, p.Name))
	if !daemon {
		fmt.Fprintln(w, "  no daemon runs now; the next one keeps to the pause")
	}
}

func heldText(held []api.Pause, zone *time.Location) string {
	var out []string
	for _, p := range held {
		out = append(out, p.Text(zone))
	}
	return strings.Join(out, "; ")
}

func listPauses(cmd *cobra.Command, s *session, asJSON bool) error {
	var pauses []api.Pause
	if done, err := s.fetch(cmd, asJSON, "/v1/pauses", nil, &pauses); done || err != nil {
		return err
	}

	if len(pauses) == 0 {
		return sayf(cmd.OutOrStdout(), "nothing is paused\n")
	}

	now := s.now()
	var rows [][]string
	for _, p := range pauses {
		// A pause without an end lasts until somebody resumes it.
		until := "resumed"
		if !p.Until.IsZero() {
			until = when(p.Until, now)
		}
		rows = append(rows, []string{api.ScopeText(p.Scope, p.Name), when(p.Since, now), until, p.By, shorten(p.Reason, 120)})
	}

	return table(cmd.OutOrStdout(), "PAUSED SINCE UNTIL BY REASON", rows)
}

func newResume(at *place) *cobra.Command {
	var o scopeFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "resume JOB | --agent A | --all",
		Short: "Ends a pause",
		Long: `Ends a pause before its time. A job whose agent is paused stays paused with it, and
--all ends the pause of everything, not those of single jobs and agents: what still holds
is said. Wakes and files that waited start at once; occurrences that were skipped do not.`,
		Example: `  rouse resume morning-report
  rouse resume --all`,
		Args: cobra.MaximumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			scope, name, rest, err := o.scope(args)
			switch {
			case err != nil:
				return err
			case scope == "" || (scope == ledger.PauseAgent && name == ""):
				return usagef("name a job, or give --agent or --all; what is paused is listed by: rouse pause")
			case len(rest) > 0:
				return usagef("%q was not understood: resume takes effect at once", shorten(rest[0], 60))
			}

			return runResume(cmd, at, scope, name, asJSON)
		}),
	}

	o.add(cmd, "resume")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func runResume(cmd *cobra.Command, at *place, scope, name string, asJSON bool) error {
	s, err := at.openToRead(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	var r api.Resumed
	if done, err := s.send(cmd, asJSON, "/v1/pauses/end", map[string]string{"scope": scope, "name": name}, &r); done || err != nil {
		return err
	}

	out, zone := cmd.OutOrStdout(), loadZone(r.Zone)
	// A pause of the agent, or of everything, may still cover what was resumed.
	fmt.Fprintf(out, "%s is resumed\n", api.ScopeText(scope, name))
	for _, p := range r.Held {
		fmt.Fprintf(out, "  but %s; resume with: rouse resume %s\n", text.OneLine(p.Text(zone)), api.ScopeArgs(p.Scope, p.Name))
	}

	return nil
}

// loadZone returns the time zone that a daemon named, or this machine's if the name is unknown here.
func loadZone(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if name == "" || err != nil { // older daemons return no name
		return time.Local
	}
	return zone
}
