package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"rouse/cmd/internal/daemon"
)

// newMan is for whoever makes packages: the pages come from the same tree of commands that --help does.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Writes a manual page for each command into a folder, which has to be there",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			// The date of the pages is $SOURCE_DATE_EPOCH where it is set, so that a build can be repeated.
			cmd.Root().DisableAutoGenTag = true
			return doc.GenManTree(cmd.Root(), &doc.GenManHeader{Section: "1", Source: "rouse " + daemon.Version(), Manual: "rouse"}, args[0])
		}),
	}
}
