package main

import (
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/bench"
)

func newBench() *cobra.Command {
	var o bench.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "The measurements behind docs/performance.md",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	cmd.PersistentFlags().IntVar(&o.Passes, "passes", 5, "how often to measure, alternating with the baseline")
	cmd.PersistentFlags().DurationVar(&o.Idle, "idle", 10*time.Second, "start: how long to watch an idle daemon")
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print JSON")

	for _, m := range bench.Measurements() {
		measurement := &cobra.Command{Use: m.Name, Short: m.Short, Args: cobra.NoArgs, RunE: verb(func(cmd *cobra.Command, _ []string) error {
			if m.Name == "engine" && o.Postgres == "" {
				return usagef("say --postgres URL of a database in which schemas may be made, and are removed again")
			}
			o.Progress = cmd.ErrOrStderr()
			figures, err := m.Run(cmd.Context(), o)
			if err != nil {
				return err
			}

			if asJSON {
				return printJSON(cmd.OutOrStdout(), figures)
			}

			rows := [][]string{{"MEASURED", "VALUE", "BASELINE", "UNIT", "RATIO", "GOAL", "VERDICT"}}
			for _, f := range figures {
				rows = append(rows, f.Row())
			}

			return align(cmd.OutOrStdout(), rows)
		})}

		switch m.Name {
		case "watch":
			measurement.Flags().IntVar(&o.Files, "files", 2000, "how many files are dropped on a daemon whose job reads each; the goal is about 100,000")
		case "engine":
			measurement.Flags().StringVar(&o.Postgres, "postgres", "", "the `URL` of a database in which schemas may be made; they are removed again")
			measurement.Flags().IntVar(&o.Queued, "runs", 5000, "how many runs that do nothing are drained for one figure")
		case "web":
			measurement.Flags().IntVar(&o.Runs, "runs", 1_000_000, "how many runs the home holds, with 20 events each")
			measurement.Flags().StringVar(&o.Home, "home-dir", "", "a `folder` that is filled once, and kept for the next time (10 GB for a million runs)")
		case "home":
			measurement.Flags().IntSliceVar(&o.Sizes, "runs", []int{10_000, 100_000, 1_000_000}, "how many runs each home holds, with 20 events each")
			measurement.Flags().StringVar(&o.Home, "home-dir", "", "a `folder` in which the homes are filled once, and kept for the next time (10 GB for a million runs)")
		}

		cmd.AddCommand(measurement)
	}

	cmd.AddCommand(&cobra.Command{
		// Measurements that need another process start this binary again with this verb. Its
		// arguments are the measurement's own, not flags of this command.
		Use: bench.ChildVerb, Hidden: true, DisableFlagParsing: true,
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			return bench.Child(cmd.Context(), args, cmd.InOrStdin(), cmd.OutOrStdout())
		}),
	})

	return cmd
}
