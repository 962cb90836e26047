package main

import (
	"cmp"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/text"
)

func newWhy(env *cli) *cobra.Command {
	var when string
	var n int
	cmd := &cobra.Command{
		Use:   "why JOB|FILE [--at T]",
		Short: "Says why a job ran, or did not, at every instant; of a file, what the watches make of it",
		Long: `Says why a job ran, or did not. Every instant of its schedule is a line with what was
decided about it and why; runs by other triggers, attempts after the first, pauses, and
starts and stops of the daemon stand in between. Without --at these are the latest up to
now and the next to come; with --at those around that time.

--at takes 08:00 (of today), "yesterday 08:00", monday (the most recent), -2h and more (rouse help
times). Instants that no daemon has looked at yet are marked "not decided yet", with what
would be decided now.

Of a file it says which jobs watch its folder, and whether a run has taken it, it waits,
or it is left out, and why; of a folder it says so of each file in it. A name without a
slash is a job; ./NAME is a file.`,
		Example: `  rouse why morning-report
  rouse why morning-report --at 08:00
  rouse why inbox --at "2026-11-20 14:30" -n 10
  rouse why ./inbox/report.pdf.part
  rouse why ./inbox`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("at") && when == "" {
				return usagef("--at is empty")
			}

			if !isPath(args[0]) {
				return env.with(toRead, func(s *session, args []string) error {
					var why api.Why
					if err := s.get("/v1/why", url.Values{"job": args, "at": {when}, "n": {strconv.Itoa(n)}}, &why); err != nil {
						return err
					}
					return jsonOr(s.cmd, why.Lines, func() error { return printWhy(s, why) })
				})(cmd, args)
			}
			if cmd.Flags().Changed("at") || cmd.Flags().Changed("number") {
				return usagef("--at and --number go with a job, and %s is a file", args[0])
			}
			path, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			return env.with(toRead, func(s *session, _ []string) error {
				var files []api.WhyFile
				return s.show("/v1/why/file", url.Values{"path": {path}}, &files, func() error { return printWhyFiles(s, files) })
			})(cmd, args)
		},
	}

	cmd.Flags().StringVar(&when, "at", "", "a `time`: show what lies around it")
	cmd.Flags().IntVarP(&n, "number", "n", 20, "how many lines")
	return withJSON(cmd)
}

// isPath reports whether an argument is a file. Names of jobs cannot look like that.
func isPath(arg string) bool {
	return strings.ContainsRune(arg, filepath.Separator) || strings.ContainsRune(arg, '/') || arg == "." || arg == ".."
}

// printWhyFiles prints the state of a file, or of the files in a folder, for each watch.
func printWhyFiles(s *session, files []api.WhyFile) error {
	return list(s.out, files, "", "FILE JOB STATE RUN REASON", func(f api.WhyFile) []string {
		state := strings.ReplaceAll(f.Verdict, "_", " ")
		if !f.Since.IsZero() {
			state += " since " + local(f.Since, s.now())
		}
		return []string{shorten(filepath.Base(f.Path), 60), f.Job, state, orDash(f.Run), shorten(f.Reason, 400)}
	})
}

// printWhy prints the notes, and then the lines with the events between them.
func printWhy(s *session, why api.Why) error {
	for _, note := range why.Notes {
		fmt.Fprintln(s.out, text.OneLine(note))
	}
	// Print the zone only if the daemon's clock differs from the local one.
	if now := time.Now(); s.now().Format("-0700") != now.Format("-0700") {
		fmt.Fprintf(s.out, "times are those of %s\n", s.zone)
	}
	if len(why.Lines) == 0 {
		fmt.Fprintln(s.out, "nothing has come due and nothing has run")
	}
	if len(why.Lines)+len(why.Between) == 0 {
		return nil
	}

	clock := clockOf(why, s.zone)
	var rows [][]string
	between := why.Between
	for _, l := range why.Lines {
		// Both lists are ordered by time, so the events before this line are a prefix.
		n := slices.IndexFunc(between, func(h api.TimelineEntry) bool { return h.At.After(l.Nominal.Time) })
		if n < 0 {
			n = len(between)
		}
		rows = append(append(rows, timelineRows(between[:n], clock)...), explanationRow(l, s.zone, clock))
		between = between[n:]
	}

	rows = append(rows, timelineRows(between, clock)...)
	return table(s.out, "AT SOURCE DECISION RUN REASON", rows)
}

// clockOf returns a formatter for instants in a zone. It adds the zone name if the offset changes.
func clockOf(why api.Why, zone *time.Location) func(api.Time) string {
	offsets := map[int]bool{}
	for _, l := range why.Lines {
		_, offset := l.Nominal.In(zone).Zone()
		offsets[offset] = true
	}

	layout := time.DateTime
	// The same local time can occur twice when the clock changes.
	if len(offsets) > 1 {
		layout += " MST"
	}
	return func(t api.Time) string { return t.In(zone).Format(layout) }
}

func explanationRow(l api.Explanation, zone *time.Location, clock func(api.Time) string) []string {
	mark := ""
	if l.Asked {
		mark = " ←"
	}
	run := "–"
	if l.Run != "" {
		run = l.Run + " " + outcomeMark(api.Run{Outcome: l.Outcome, State: l.State, WaitingFor: l.WaitingFor})
		if l.State == domain.StateWaiting && l.WaitingFor == "" { // the attempt is over
			run = l.Run + " ? waited"
		}
		if l.Node != "" {
			run += " on " + l.Node
		}
	}
	return []string{clock(l.Nominal) + mark, l.Source, cmp.Or(string(l.Decision), "–"), run, shorten(readable(l.Reason, zone), 400)}
}

// timelineRows omits the middle of a long timeline, such as that of a daemon in a restart loop.
func timelineRows(happened []api.TimelineEntry, clock func(api.Time) string) (rows [][]string) {
	const each = 3 // number of rows at each end
	left := len(happened) - 2*each
	for i, h := range happened {
		switch {
		// Do not omit a single row: the "more" row would take the same space.
		case left < 2, i < each, i >= each+left:
			rows = append(rows, []string{clock(h.At), h.What, h.Did, "", shorten(h.Text, 400)})
		case i == each:
			rows = append(rows, []string{"…", "", "", "", fmt.Sprintf("%d more of these", left)})
		}
	}
	return rows
}
