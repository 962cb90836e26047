package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/homedir"
	"rouse/internal/text"
)

func newStatus(env *cli) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Says whether a daemon serves this home; exits 1 if none does",
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, home, err := daemonStatus(cmd.Context(), env, wait)
			if errors.Is(err, api.ErrNoDaemon) {
				none := api.Status{Home: home, Problem: homedir.Problem(cmd.Context(), home), ConfigProblems: []api.Problem{}, ConfigRestart: []string{}, WatchProblems: []string{}, Calendars: []api.Calendar{}, ModelPauses: []api.ModelPause{}, Engine: api.Engine{Nodes: []api.Node{}, Agents: map[string]string{}, Problems: []string{}}}
				return failIf(true, jsonOr(cmd, none, func() error {
					fmt.Fprintf(cmd.OutOrStdout(), "no daemon serves %s; start one with: rouse serve\n", home)
					warn(cmd.OutOrStdout(), none.Problem)
					return nil
				}))
			}
			if err != nil {
				return err
			}
			return failIf(st.Foreground, jsonOr(cmd, st, func() error {
				printStatus(cmd.OutOrStdout(), st, time.Now().In(loadZone(st.Zone)))
				return nil
			}))
		},
	}

	cmd.Flags().DurationVar(&wait, "wait", 0, "wait this long for a daemon to be ready")
	return withJSON(cmd)
}

// warn prints each non-empty problem on its own line.
func warn(w io.Writer, problems ...string) {
	for _, problem := range problems {
		if problem != "" {
			fmt.Fprintf(w, "▲ %s\n", text.OneLine(problem))
		}
	}
}

func readyText(st api.Status) string {
	if st.Ready {
		return "ready"
	}
	return "starting"
}

func printStatus(w io.Writer, st api.Status, now time.Time) {
	if st.Foreground {
		fmt.Fprintf(w, "no daemon serves %s; process %d executes a run there since %s: rouse runs\n", st.Home, st.PID, local(st.StartedAt, now))
		return
	}
	fmt.Fprintf(w, "%s: process %d (rouse %s) serves %s with %s since %s\n%d queued, %d running, %d waiting\n",
		readyText(st), st.PID, st.Version, st.Home, st.Config, local(st.StartedAt, now), st.Queued, st.Running, st.Waiting)
	if st.Engine.Address != "" {
		fmt.Fprintf(w, "node %s of the ledger at %s:\n", st.Engine.Node, text.OneLine(st.Engine.Address))
		for _, n := range st.Engine.Nodes {
			fmt.Fprintf(w, "  %s\n", text.OneLine(n.Text(now.Location())))
		}
		warn(w, st.Engine.Problems...)
	}
	if st.Dashboard != "" {
		fmt.Fprintf(w, "pages at %s: rouse dashboard\n", st.Dashboard)
	}
	if st.DashboardProblem != "" {
		warn(w, "there are no pages: "+st.DashboardProblem)
	}
	warn(w, st.Problem)
	for _, what := range st.ConfigRestart {
		fmt.Fprintf(w, "%s\n", text.OneLine(what))
	}
	if len(st.ConfigProblems) > 0 {
		warn(w, fmt.Sprintf("the configuration on disk cannot be used; the one of %s stays in use:", local(st.ConfigAt, now)))
		printProblems(w, st.ConfigProblems)
	}
	for _, p := range st.ModelPauses {
		warn(w, p.Text(now.Location()))
	}
	warn(w, st.WatchProblems...)
	for _, c := range st.Calendars {
		mark := ""
		if c.Problem != "" {
			mark = "▲ "
		}
		fmt.Fprintf(w, "%s%s\n", mark, text.OneLine(c.Text(now)))
	}
}

// daemonStatus requests the daemon's status until the daemon is ready or the wait is over.
func daemonStatus(ctx context.Context, env *cli, wait time.Duration) (api.Status, string, error) {
	home, err := env.homeDir()
	if err != nil {
		return api.Status{}, "", err
	}

	deadline := time.Now().Add(wait)
	for {
		client, st, err := homedir.Connect(ctx, home)
		if err == nil {
			client.Close() // otherwise each retry would leave an open connection
		}
		// With --wait, retry every failure until the deadline: a starting daemon first has no
		// socket, and then answers before it is ready.
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
