package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/daemon"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Prints the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "rouse %s (%s, %s/%s)\n", daemon.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
