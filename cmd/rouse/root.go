package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Exit codes of every command (design: cli).
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// run executes one command line and returns the process's exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, "rouse:", err)
		return exitUsage
	}
	return exitDone
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "rouse",
		Short:         "Wakes AI agents when something happens",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newVersion())
	return root
}
