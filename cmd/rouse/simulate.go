package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/homedir"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/why"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/wake"
	"rouse/internal/text"
	"rouse/scheduler"
	"rouse/scheduler/schedule"
	"rouse/scheduler/simulate"
)

// defaultRuntime is the assumed duration of a run.
const defaultRuntime = time.Minute

type simulateOptions struct {
	at       *cli
	job      string
	from, to string
	outages  []string
	runtimes []string
}

func newSimulate(env *cli) *cobra.Command {
	o := simulateOptions{at: env}
	cmd := &cobra.Command{
		Use:   "simulate [JOB]",
		Short: "What would run, be skipped or be missed, and why: a virtual clock over the real configuration",
		Long: `Plays the schedules of the configuration on a virtual clock, with the code that decides
in the daemon, and lists what becomes of every occurrence: no model, no effect.

Without --from it begins now, with what the home holds: pauses, planned wakes, runs that
are not finished, and what came due since a daemon last looked. With --from it begins
with nothing pending at that time. A time is like 2026-03-08, "2026-03-08 02:30" or
+2h (rouse help times). A date alone as --to includes that day.

Each run is assumed to take --runtime (1m) and to succeed; conditions (when:) are assumed
to hold. With a JOB only its occurrences are listed; the others still take their lanes.
The table shows the first 1000 occurrences, and --json all of them.`,
		Example: `  rouse simulate                                        the next 24 hours
  rouse simulate --from 2026-03-07 --to 2026-03-09      over a change of the clock
  rouse simulate --outage "2026-11-21 10:00..11:00"     an hour without a daemon
  rouse simulate --runtime 5m --runtime report=2h       what overlaps`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.job = strings.Join(args, "")
			return runSimulate(cmd, o)
		},
	}

	cmd.Flags().StringVar(&o.from, "from", "", "when the simulated daemon starts (default now)")
	cmd.Flags().StringVar(&o.to, "to", "", "when it ends (default 24 hours later)")
	cmd.Flags().StringArrayVar(&o.outages, "outage", nil, "FROM..TO: no daemon runs then; may be repeated")
	cmd.Flags().StringArrayVar(&o.runtimes, "runtime", nil, "how long a run takes (default 1m), or JOB=TIME; may be repeated")
	return withJSON(cmd)
}

func runSimulate(cmd *cobra.Command, o simulateOptions) error {
	cfg, err := o.at.load()
	if err != nil {
		return err
	}
	// Check before the simulation, which may take long.
	if names := (&plan.Setup{Config: cfg}).JobNames(); o.job != "" && !slices.Contains(names, o.job) {
		return usagef("%s", text.NoSuch("job", o.job, names))
	}

	p, err := plan.New(cfg, logging.Quiet())
	if err != nil {
		return err
	}
	world, err := o.world(cmd, cfg, p)
	if err != nil {
		return err
	}
	out, err := simulate.Run(cmd.Context(), world, o.progress(cmd, world))
	if err != nil {
		return err
	}
	why.NoteSimulated(out, cfg, p)
	out = why.Excluded(out, world, o.job)
	return jsonOr(cmd, simulated(out), func() error { return printSimulated(cmd.OutOrStdout(), world, out, cfg.Zone()) })
}

// world returns the initial state of the simulation.
func (o simulateOptions) world(cmd *cobra.Command, cfg *config.Config, p *plan.Plan) (simulate.Options, error) {
	now := time.Now()
	w := simulate.Options{Jobs: p.Jobs, Job: o.job, From: now, Policy: p.Policy, Runs: cfg.Limits.Runs, RunsPerAgent: cfg.Limits.RunsPerAgent}
	var err error
	if o.from != "" {
		if w.From, err = simulatedTime(o.from, now, cfg.Zone(), false); err != nil {
			return w, usagef("--from: %w", err)
		}
		w.From = w.From.Add(-time.Millisecond) // include occurrences that are due at exactly this time
	}

	w.To = w.From.Add(24 * time.Hour)
	if o.to != "" {
		if w.To, err = simulatedTime(o.to, w.From, cfg.Zone(), true); err != nil {
			return w, usagef("--to: %w", err)
		}
	}
	if w.Events, err = o.events(now, cfg.Zone()); err != nil {
		return w, err
	}
	if w.Runtime, err = o.runtime((&plan.Setup{Config: cfg}).JobNames()); err != nil {
		return w, err
	}

	// The daemon keeps a run without a model queued, so the simulation must do the same.
	w.Blocked = why.Blocked(p)

	// Do not create a missing home.
	dir, err := o.at.homeDir()
	if err != nil {
		return w, err
	}
	if _, err := os.Stat(filepath.Join(dir, "ledger.db")); err != nil && homedir.SharedLedger(dir) == nil {
		return w, nil //nolint:nilerr // a missing home has no history
	}
	return w, o.at.with(toChange, func(s *session, _ []string) error { return o.addState(s, &w) })(cmd, nil)
}

// events returns the outages, ordered by time.
func (o simulateOptions) events(now time.Time, zone *time.Location) ([]simulate.Event, error) {
	var out []simulate.Event
	for _, text := range o.outages {
		begin, end, ok := strings.Cut(text, "..")
		if !ok {
			return nil, usagef("--outage %q: write FROM..TO", text)
		}

		from, err := simulatedTime(begin, now, zone, false)
		var to time.Time
		if err == nil {
			to, err = simulatedTime(end, from, zone, true)
		}
		switch {
		case err != nil:
			return nil, usagef("--outage: %w", err)
		case !to.After(from):
			return nil, usagef("--outage %q: ends before it begins", text)
		}
		out = append(out, simulate.Event{At: from, Kind: simulate.Down}, simulate.Event{At: to, Kind: simulate.Up})
	}

	slices.SortStableFunc(out, func(a, b simulate.Event) int { return a.At.Compare(b.At) })
	return out, nil
}

// simulatedTime parses a time. If end is true, a date means the end of that day, and a time of day
// means its next occurrence after near.
func simulatedTime(text string, near time.Time, zone *time.Location, end bool) (time.Time, error) {
	switch day, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(text)), " "); day {
	case "now", "today", "yesterday", "tomorrow": // relative to now, even for the end
		near = time.Now()
	}

	w, err := schedule.ParseTime(text, near, zone, end)
	if end && w.Precision > time.Minute {
		return w.At.Add(w.Precision - time.Millisecond), err
	}
	return w.At, err
}

// runtime parses the assumed durations of runs.
func (o simulateOptions) runtime(jobs []string) (func(job, agent string) time.Duration, error) {
	all, each := defaultRuntime, map[string]time.Duration{}
	for _, given := range o.runtimes {
		job, length, named := strings.Cut(given, "=")
		if !named {
			length = given
		}

		d, err := config.ParseDuration(length)
		switch {
		case err != nil:
			return nil, usagef("--runtime: %w", err)
		case !named:
			all = d
		case !slices.Contains(jobs, job):
			return nil, usagef("%s", text.NoSuch("job", job, jobs))
		default:
			each[job] = d
		}
	}

	return func(job, _ string) time.Duration {
		if d, ok := each[job]; ok {
			return d
		}
		return all
	}, nil
}

// addState adds the state of the home to the initial state.
func (o simulateOptions) addState(s *session, w *simulate.Options) error {
	var st api.State
	if err := s.get("/v1/state", nil, &st); err != nil {
		return err
	}

	w.Pauses, w.Wakes, w.States = st.Pauses, st.Wakes, map[string]ledger.JobState{}
	for _, j := range w.Jobs {
		for _, known := range st.Jobs {
			// A job that has changed gets a fresh state, as in the daemon.
			if known.Name == j.Name && known.Hash == scheduler.Hash(j) {
				w.States[j.Name] = ledger.JobState{Anchor: known.Anchor.Time, Watermark: known.Watermark.Time}
			}
		}
	}

	// With --from, keep future pauses, wakes and the schedule grids, but no watermarks and open
	// runs.
	if o.from != "" {
		for name, known := range w.States {
			known.Watermark = w.From
			w.States[name] = known
		}
		w.Wakes = slices.DeleteFunc(w.Wakes, func(sl wake.Wake) bool { return sl.At.Before(w.From) })
		return nil
	}

	for _, r := range st.Runs {
		id, err := strconv.ParseInt(r.ID, 10, 64)
		if err != nil {
			return fmt.Errorf("the daemon named a run %q: %w", r.ID, err)
		}
		w.Open = append(w.Open, ledger.Run{ID: id, Job: r.Job, Agent: r.Agent, Trigger: r.Trigger, State: r.State, WaitingFor: r.WaitingFor,
			NotBefore: r.NotBefore.Time, QueuedAt: r.QueuedAt.Time, Attempt: r.Attempt, Interruptions: r.Interruptions})
	}

	return nil
}

// progress returns a function that shows the progress of a long simulation on a terminal.
func (o simulateOptions) progress(cmd *cobra.Command, w simulate.Options) func(time.Time) {
	// A pipe or a log would collect hundreds of these lines.
	if wantsJSON(cmd) || !text.IsTerminal(cmd.ErrOrStderr()) {
		return nil
	}

	began, shown := time.Now(), time.Now()
	return func(now time.Time) {
		// Short simulations need no progress line.
		if time.Since(began) < time.Second || time.Since(shown) < 200*time.Millisecond {
			return
		}
		shown = time.Now()
		fmt.Fprintf(cmd.ErrOrStderr(), "\r%3.0f %% ", 100*now.Sub(w.From).Seconds()/w.To.Sub(w.From).Seconds())
	}
}

// simulatedOccurrence is an occurrence in the output of `--json`.
type simulatedOccurrence struct {
	api.Occurrence
	Agent    string   `json:"agent"`
	Started  api.Time `json:"started"`
	Finished api.Time `json:"finished"`
	Through  api.Time `json:"through"`
	Instants int      `json:"instants"`
}

func simulated(out []simulate.Occurrence) []simulatedOccurrence {
	list := []simulatedOccurrence{}
	for _, o := range out {
		instants := 1
		if !o.Through.IsZero() {
			instants = o.Instants
		}
		list = append(list, simulatedOccurrence{
			Occurrence: api.Occurrence{Job: o.Job, Source: o.Source, Nominal: api.At(o.Nominal), Actual: api.At(o.Actual),
				Decision: o.Decision, Reason: o.Reason, Outcome: o.Outcome},
			Agent: o.Agent, Started: api.At(o.Started), Finished: api.At(o.Finished), Through: api.At(o.Through), Instants: instants,
		})
	}
	return list
}

func printSimulated(stdout io.Writer, w simulate.Options, out []simulate.Occurrence, zone *time.Location) error {
	const layout, most = "Mon 2006-01-02 15:04:05 MST", 1000
	count := map[domain.Decision]int{}
	for _, o := range out {
		// A row can represent a series of instants with the same decision.
		count[o.Decision] += max(o.Instants, 1)
	}
	err := list(stdout, out[:min(len(out), most)], "nothing comes due", "DUE JOB SOURCE DECISION RUNS REASON", func(o simulate.Occurrence) []string {
		name := o.Job
		if o.Source == scheduler.SourceWake {
			name = "agent " + o.Agent
		}
		at := o.Nominal.In(zone).Format(layout)
		if !o.Through.IsZero() {
			at += " to " + o.Through.In(zone).Format(layout)
		}
		return []string{at, name, o.Source, string(o.Decision), runsFromTo(o, zone), readable(o.Reason, zone)}
	})
	if err != nil {
		return err
	}
	if more := len(out) - most; more > 0 {
		fmt.Fprintf(stdout, "… and %d more; choose a shorter time with --from and --to, or use --json\n", more)
	}
	return sayf(stdout, "%s to %s: %d run, %d skipped, %d missed\n", w.From.Add(time.Millisecond).In(zone).Format(layout), w.To.In(zone).Format(layout),
		count[domain.DecisionRun], count[domain.DecisionSkipped], count[domain.DecisionMissed])
}

// runsFromTo describes when the run of an occurrence starts and ends.
func runsFromTo(o simulate.Occurrence, zone *time.Location) string {
	switch {
	case o.Run == 0, o.Started.IsZero() && o.Outcome != "": // dropped before it could start
		return "–"
	case o.Started.IsZero():
		return "waits"
	case o.Finished.IsZero():
		return o.Started.In(zone).Format(time.TimeOnly) + " to later"
	}

	text := o.Started.In(zone).Format(time.TimeOnly) + " to " + o.Finished.In(zone).Format(time.TimeOnly)
	if o.Outcome != domain.OutcomeSuccess {
		text += fmt.Sprintf(" (%s)", o.Outcome)
	}
	return text
}
