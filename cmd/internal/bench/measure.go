package bench

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"time"
)

// Options bound a measurement.
type Options struct {
	Passes   int           // how often to measure, alternating with the baseline
	Idle     time.Duration // start: how long to watch an idle daemon
	Files    int           // watch: how many files are dropped on a daemon whose job reads each
	Runs     int           // web: how many runs the home holds
	Sizes    []int         // home: the same, for each home
	Postgres string        // engine: the URL of a database
	Queued   int           // engine: how many runs are drained for one figure
	Home     string        // web, home: the folder of homes that are filled once, and kept; "": one that is thrown away
	Progress io.Writer
}

// Figure is one measured value beside its baseline.
type Figure struct {
	Name     string  `json:"name"`
	Value    float64 `json:"value"`
	Baseline float64 `json:"baseline,omitempty"`
	Unit     string  `json:"unit"`
	Ratio    float64 `json:"ratio,omitempty"` // median of the passes' ratios
	Goal     string  `json:"goal"`
	Met      bool    `json:"met"`
}

// Measurement is one verb of rouse bench.
type Measurement struct {
	Name, Short string
	Run         func(context.Context, Options) ([]Figure, error)
}

// Measurements are all there are, in the order in which they are listed.
func Measurements() []Measurement {
	return []Measurement{
		{"start", "Start-up, idle cost and verbs, beside a small program that opens the same libraries (built with the Go toolchain, where there is one)", benchStart},
		{"schedule", "Wake-ups, bursts and additions of the scheduler against a plain heap", benchSchedule},
		{"queue", "The ledger's writes and the queue against fsync and bare SQLite", benchQueue},
		{"run", "Runs of a daemon from end to end, with what each costs the processor and the disk, against the queue alone", benchRun},
		{"loop", "The agent loop against a bare net/http and encoding/json loop, with and without its record", benchLoop},
		{"db", "Imports, rows and many agents against the sqlite3 program and bare SQLite", benchDB},
		{"skills", "Finding a thousand skills against a bare walk that reads the same files", benchSkills},
		{"modules", "Runs of modules (module.ts) against the same without confinement, calls of their host, and compiling", benchModules},
		{"tools", "Searching 100,000 files against ripgrep and grep, a file of 5 MiB, and the start of confined commands", benchTools},
		{"web", "Pages and listings of a home with a million runs against their bare queries", benchWeb},
		{"home", "Opening, starting, asking and pruning homes with ten thousand, a hundred thousand and a million runs", benchHome},
		{"engine", "Nodes that share a ledger in PostgreSQL against a bare queue (for update skip locked), rescue and cancel, and what continuous copies cost", benchEngine},
		{"watch", "Dropped files, many folders, bursts and lost events against bare inotify and fsnotify", benchWatch},
	}
}

// ChildVerb is the hidden verb behind rouse bench with which a measurement starts this program
// again, for what must not be measured, or must be suspended.
const ChildVerb = "child"

// Child is such a process: stub, runs DIR URL DUE SINGLE, engine-node, engine-bare, or observed [-rescan D] [-no-runs] DIR.
func Child(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	switch {
	case len(args) == 1 && args[0] == "stub":
		return serveStubModel(ctx, in, out)
	case len(args) == 5 && args[0] == "runs":
		sizes, err := parseRunSizes(args[3], args[4])
		if err != nil {
			return err
		}
		return runsChild(ctx, args[1], args[2], sizes, out)
	case len(args) == 1 && args[0] == "engine-node":
		return engineChild(ctx, in, out, workAsNode)
	case len(args) == 1 && args[0] == "engine-bare":
		return engineChild(ctx, in, out, workBare)
	case len(args) > 1 && args[0] == "observed":
		return observedChild(ctx, args[1:], in, out)
	}
	return fmt.Errorf("a measurement has no child %q", args)
}

func observedChild(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	var o observedOptions
	flags := flag.NewFlagSet("observed", flag.ContinueOnError)
	flags.DurationVar(&o.rescan, "rescan", time.Hour, "how often the folder is scanned")
	flags.BoolVar(&o.noRuns, "no-runs", false, "only queue the runs")
	if err := flags.Parse(args); err != nil {
		return err
	}

	if flags.NArg() != 1 {
		return fmt.Errorf("observed takes one folder, not %q", flags.Args())
	}

	return serveObserved(ctx, flags.Arg(0), o, in, out)
}

// Row is a figure as cells: name, value, baseline, unit, ratio, goal, verdict.
func (f Figure) Row() []string {
	ratio, baseline, verdict := "–", "–", "met"
	if f.Baseline != 0 {
		baseline = number(f.Baseline)
	}

	if f.Ratio != 0 {
		ratio = fmt.Sprintf("%.2f", f.Ratio)
	}

	if !f.Met {
		verdict = "missed"
	}

	// Without a goal there is nothing to meet.
	if f.Goal == "" {
		f.Goal, verdict = "–", "–"
	}

	return []string{f.Name, number(f.Value), baseline, f.Unit, ratio, f.Goal, verdict}
}

func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 1:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// median of measured values; their order is not kept.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// ratios are those of each pass.
func ratios(values, baselines []float64) []float64 {
	out := make([]float64, len(values))
	for i := range values {
		// Pass by pass, since both ran one after the other: a slow moment of the machine hits both.
		out[i] = values[i] / baselines[i]
	}
	return out
}
