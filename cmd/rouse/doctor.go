package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

func newDoctor(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Checks everything that would stop a run; exits 1 if something would",
		Args:  cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			checks, err := diagnose(cmd, at)
			if err != nil {
				return err
			}

			bad := false
			for _, c := range checks {
				bad = bad || !c.OK
			}

			if asJSON {
				if err := printJSON(cmd.OutOrStdout(), checks); err != nil {
					return err
				}
			} else {
				printChecks(cmd, checks)
			}

			if bad {
				return errSilent
			}

			return nil
		}),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// diagnose asks the daemon; where not even the parts can be opened, that is the finding.
func diagnose(cmd *cobra.Command, at *place) ([]api.Check, error) {
	s, err := at.open(cmd.Context())
	if err != nil {
		// Not an error of the command: a home that cannot be opened is what doctor is asked about.
		return []api.Check{{Name: "start", Detail: err.Error(), Remedy: "see the message; nothing can run before it is solved"}}, nil
	}
	defer s.close()

	var checks []api.Check
	err = s.Get(cmd.Context(), "/v1/doctor", nil, &checks)
	return checks, err
}

func printChecks(cmd *cobra.Command, checks []api.Check) {
	out := cmd.OutOrStdout()
	for _, c := range checks {
		mark := "ok  "
		if !c.OK {
			mark = "FAIL"
		}

		fmt.Fprintf(out, "%s  %-14s %s\n", mark, c.Name, text.OneLine(c.Detail))
		if c.Remedy != "" && !c.OK {
			fmt.Fprintf(out, "      %-14s → %s\n", "", text.OneLine(c.Remedy))
		}
	}
}
