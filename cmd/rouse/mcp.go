package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/daemon"
	"rouse/cmd/internal/mcpserver"
)

func newMCP(at *place) *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Lets another agent program ask rouse, by the Model Context Protocol on standard input and output",
		Long: `Answers one client of the Model Context Protocol, which starts this command: jobs, runs and
why they ran or did not, the inbox, questions (no approvals), and agents' databases, read-only.
Over the network the same is at /mcp of the dashboard, with its token.

  {"mcpServers": {"rouse": {"command": "rouse", "args": ["mcp", "--config", "/home/me/rouse.yaml"]}}}`,
		Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return runMCP(cmd, at) }),
	}
}

func runMCP(cmd *cobra.Command, at *place) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()

	// The home is opened for each call, and left: a daemon may start meanwhile.
	connect := func(ctx context.Context) (mcpserver.Connection, error) {
		s, err := at.open(ctx)
		if err != nil {
			return mcpserver.Connection{}, err
		}
		return mcpserver.Connection{Client: s.Client, Close: s.close, Executes: s.daemon}, nil
	}
	server := mcpserver.New(mcpserver.Options{Version: daemon.Version(), Logger: slog.New(slog.DiscardHandler), Done: ctx, Connect: connect})

	return server.ServeStream(ctx, cmd.InOrStdin(), cmd.OutOrStdout())
}
