package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/daemon"
	"rouse/internal/text"
)

func newStatus(at *place) *cobra.Command {
	var asJSON bool
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Says whether a daemon serves this home; exits 1 if none does",
		Args:  cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			st, home, err := daemonStatus(cmd.Context(), at, wait)
			if errors.Is(err, api.ErrNoDaemon) {
				problem := daemon.HomeProblem(cmd.Context(), home)
				if asJSON {
					if err := printJSON(cmd.OutOrStdout(), api.Status{Home: home, Problem: problem, ConfigProblems: []api.Problem{}, ConfigRestart: []string{}, WatchProblems: []string{}, Calendars: []api.Calendar{}, ModelPauses: []api.ModelPause{}, Engine: api.Engine{Nodes: []api.Node{}, Agents: map[string]string{}, Problems: []string{}}}); err != nil {
						return err
					}
				} else {
					fmt.Fprintf(cmd.OutOrStdout(), "no daemon serves %s; start one with: rouse serve\n", home)
					if problem != "" {
						fmt.Fprintf(cmd.OutOrStdout(), "▲ %s\n", text.OneLine(problem))
					}
				}
				return errSilent
			}

			if err != nil {
				return err
			}
			if asJSON {
				err := printJSON(cmd.OutOrStdout(), st)
				if err == nil && st.Foreground {
					err = errSilent
				}
				return err
			}
			now := time.Now().In(loadZone(st.Zone))
			if st.Foreground {
				fmt.Fprintf(cmd.OutOrStdout(), "no daemon serves %s; process %d executes a run there since %s: rouse runs\n", st.Home, st.PID, local(st.StartedAt, now))
				return errSilent
			}

			ready := "ready"
			if !st.Ready {
				ready = "starting"
			}

			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: process %d (rouse %s) serves %s with %s since %s\n%d queued, %d running, %d waiting\n",
				ready, st.PID, st.Version, st.Home, st.Config, local(st.StartedAt, now), st.Queued, st.Running, st.Waiting)
			if st.Engine.Address != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "node %s of the ledger at %s:\n", st.Engine.Node, text.OneLine(st.Engine.Address))
				for _, n := range st.Engine.Nodes {
					fmt.Fprintf(cmd.OutOrStdout(), "  %s\n", text.OneLine(n.Text(now.Location())))
				}
				for _, why := range st.Engine.Problems {
					fmt.Fprintf(cmd.OutOrStdout(), "▲ %s\n", text.OneLine(why))
				}
			}
			if st.Dashboard != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "pages at %s: rouse dashboard\n", st.Dashboard)
			}
			if st.DashboardProblem != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "▲ there are no pages: %s\n", text.OneLine(st.DashboardProblem))
			}
			if st.Problem != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "▲ %s\n", text.OneLine(st.Problem))
			}
			for _, what := range st.ConfigRestart {
				fmt.Fprintf(cmd.OutOrStdout(), "%s\n", text.OneLine(what))
			}

			if len(st.ConfigProblems) > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "▲ the configuration on disk cannot be used; the one of %s stays in use:\n", local(st.ConfigAt, now))
				printProblems(cmd.OutOrStdout(), st.ConfigProblems)
			}

			for _, p := range st.ModelPauses {
				fmt.Fprintf(cmd.OutOrStdout(), "▲ %s\n", text.OneLine(p.Text(now.Location())))
			}

			for _, what := range st.WatchProblems {
				fmt.Fprintf(cmd.OutOrStdout(), "▲ %s\n", text.OneLine(what))
			}

			for _, c := range st.Calendars {
				mark := ""
				if c.Problem != "" {
					mark = "▲ "
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s%s\n", mark, text.OneLine(c.Text(now)))
			}

			return err
		}),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait this long for a daemon to be ready")
	return cmd
}

// daemonStatus asks the daemon who it is, again until it is ready or the wait is over.
func daemonStatus(ctx context.Context, at *place, wait time.Duration) (api.Status, string, error) {
	home, err := at.homeDir()
	if err != nil {
		return api.Status{}, "", err
	}

	deadline := time.Now().Add(wait)
	for {
		client, st, err := daemon.Connect(ctx, home)
		if err == nil {
			client.Close() // or each try would leave a connection open
		}
		// With --wait every failure is tried again until the deadline: a daemon that starts has no
		// socket at first, then one that answers and is not ready.
		if (err == nil && (st.Ready || wait == 0)) || time.Now().After(deadline) {
			return st, home, err
		}

		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return st, home, ctx.Err()
		}
	}
}
