package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// benchOptions bound a measurement.
type benchOptions struct {
	passes int
	idle   time.Duration
	json   bool
}

// figure is one measured value beside its baseline.
type figure struct {
	Name     string  `json:"name"`
	Value    float64 `json:"value"`
	Baseline float64 `json:"baseline,omitempty"`
	Unit     string  `json:"unit"`
	Ratio    float64 `json:"ratio,omitempty"` // median of the passes' ratios
	Goal     string  `json:"goal"`
	Met      bool    `json:"met"`
}

func newBench() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "The measurements behind docs/performance.md",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().IntVar(&o.passes, "passes", 5, "how often to measure, alternating with the baseline")
	cmd.PersistentFlags().DurationVar(&o.idle, "idle", 10*time.Second, "start: how long to watch an idle daemon")
	cmd.PersistentFlags().BoolVar(&o.json, "json", false, "print JSON")
	measured := func(use, short string, measure func(*cobra.Command, benchOptions) ([]figure, error)) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: verb(func(cmd *cobra.Command, _ []string) error {
			figures, err := measure(cmd, o)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), figures)
			}
			return printFigures(cmd.OutOrStdout(), figures)
		})}
	}
	cmd.AddCommand(
		measured("start", "Start-up and idle cost against a floor: a program that opens the same libraries", benchStart),
		measured("schedule", "Wake-ups, bursts and additions of the scheduler against a plain heap", benchSchedule),
		measured("queue", "The ledger's writes and the queue against fsync and bare SQLite", benchQueue),
		measured("loop", "The agent loop against a bare net/http and encoding/json loop, with and without its record", benchLoop),
		measured("db", "Imports, rows and many agents against the sqlite3 program and bare SQLite", benchDB),
		measured("skills", "Finding a thousand skills against a bare walk that reads the same files", benchSkills),
		measured("tools", "Searching 100,000 files against ripgrep and grep, a file of 5 MiB, and the start of confined commands", benchTools),
		withFiles(measured("watch", "Dropped files, many folders, bursts and lost events against bare inotify and fsnotify", benchWatch)),
		newFloor(),
		newStubModel(),
	)
	return cmd
}

func printFigures(w io.Writer, figures []figure) error {
	var rows [][]string
	for _, f := range figures {
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
		if f.Goal == "" {
			f.Goal, verdict = "–", "–"
		}
		rows = append(rows, []string{f.Name, number(f.Value), baseline, f.Unit, ratio, f.Goal, verdict})
	}
	return align(w, append([][]string{{"MEASURED", "VALUE", "BASELINE", "UNIT", "RATIO", "GOAL", "VERDICT"}}, rows...))
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
		out[i] = values[i] / baselines[i]
	}
	return out
}
