package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
)

func newCancel(at *place) *cobra.Command {
	return newRunAction(at, "cancel", "Stops a run: at once if it is queued, after its current call if it runs",
		func(r api.Run) string {
			if r.State == "finished" {
				return fmt.Sprintf("run %s is cancelled", r.ID)
			}
			return fmt.Sprintf("run %s will stop", r.ID)
		})
}

func newRetry(at *place) *cobra.Command {
	return newRunAction(at, "retry", "Runs a finished run again as a new attempt, or one that waits for its retry at once",
		func(r api.Run) string { return fmt.Sprintf("run %s is queued again", r.ID) })
}

// newRunAction is a verb that asks for something to happen to one run.
func newRunAction(at *place, name, short string, said func(api.Run) string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   name + " RUN",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			s, err := at.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()

			var r api.Run
			if err := s.Post(cmd.Context(), "/v1/runs/"+args[0]+"/"+name, struct{}{}, &r); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), r)
			}

			text := said(r)
			// Only the request is on record, where nobody executes the run.
			if !s.executes(r) && r.State != domain.StateFinished {
				text += " when a daemon starts: rouse serve"
			}

			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		}),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
