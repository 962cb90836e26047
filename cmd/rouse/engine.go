package main

import (
	"github.com/spf13/cobra"
)

func newEngine(at *place) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "engine",
		Short: "Moves a home to PostgreSQL and back, and shows the nodes there",
		Long:  `With engine: {postgres: URL} in their configuration, several daemons work on one ledger. See docs/cluster.md.`,
		RunE:  verb(func(*cobra.Command, []string) error { return usagef("say rouse engine with one of: migrate, take") }),
	}
	cmd.AddCommand(newEngineMigrate(at), newEngineTake(at))
	return cmd
}
