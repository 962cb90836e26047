package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

func newEngine(at *place) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "engine [status|migrate|take]",
		Short: "Says where the ledger is and which nodes share it, and moves it",
		Args:  cobra.NoArgs,
		RunE: verb(func(*cobra.Command, []string) error {
			return usagef("say rouse engine with one of: status, migrate, take")
		}),
	}

	var asJSON bool
	status := &cobra.Command{
		Use:   "status",
		Short: "Says where the ledger is, and which nodes share it; exits 1 when something keeps them from being one",
		Args:  cobra.NoArgs,
		RunE: withSession(at.openToRead, func(cmd *cobra.Command, _ []string, s *session) error {
			var e api.Engine
			if err := s.Get(cmd.Context(), "/v1/engine", nil, &e); err != nil {
				return err
			}
			var err error
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), e)
			} else {
				err = printEngine(cmd.OutOrStdout(), s.home, e)
			}
			if err == nil && len(e.Problems) > 0 {
				err = errSilent
			}
			return err
		}),
	}
	status.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(status, newEngineMigrate(at), newEngineTake())
	return cmd
}

func printEngine(out io.Writer, home string, e api.Engine) error {
	if e.Address == "" {
		return sayf(out, "the ledger is a file of the home %s, which one daemon has to itself; several share one with engine.postgres\n", home)
	}

	fmt.Fprintf(out, "the ledger is in PostgreSQL, %s; this home is of the node %s\n", text.OneLine(e.Address), e.Node)
	var rows [][]string
	now := time.Now()
	for _, n := range e.Nodes {
		state, seen := "alive", when(n.SeenAt, now)
		if !n.Alive {
			state, seen = "gone: "+n.Why, when(n.GoneAt, now)
		}
		rows = append(rows, []string{n.Name, n.Host, fmt.Sprint(n.PID), n.Version, when(n.StartedAt, now), seen, state, n.Marks()})
	}
	if err := table(out, "NODE HOST PID VERSION SINCE SEEN STATE NOTES", rows); err != nil {
		return err
	}

	var agents [][]string
	for _, name := range slices.Sorted(maps.Keys(e.Agents)) {
		note := ""
		if slices.Contains(e.Stay, name) {
			note = "stays: it has files there, or its database was not shipped yet"
		}
		agents = append(agents, []string{name, e.Agents[name], note})
	}
	if len(agents) > 0 {
		fmt.Fprintln(out)
		if err := table(out, "AGENT NODE NOTES", agents); err != nil {
			return err
		}
	}
	for _, why := range e.Problems {
		fmt.Fprintf(out, "▲ %s\n", text.OneLine(why))
	}
	return nil
}
