package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/daemon"
	"rouse/cmd/internal/service"
	"rouse/internal/domain"
)

func newStop(at *place) *cobra.Command {
	cmd := newRunAction(at, "stop", "cancel", "Stops a run: at once if it is queued, after its current call if it runs",
		func(r api.Run) string {
			if r.State == "finished" {
				return fmt.Sprintf("run %s is cancelled", r.ID)
			}
			return fmt.Sprintf("run %s will stop", r.ID)
		})
	cmd.Aliases = []string{"cancel"}
	cmd.Long = cmd.Short + `.

It stops one run, never the daemon. The daemon ends with Ctrl-C in its terminal, with "rouse service stop"
if it is a service, or with SIGTERM. "rouse stop" without a run tells which of these applies here.`
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("RUN is missing; runs that can be stopped are listed by: rouse runs --state running. %s", at.howToStop(cmd.Context()))
		}
		return cobra.ExactArgs(1)(cmd, args)
	}
	return cmd
}

// howToStop explains how to stop the daemon of this home.
func (at *place) howToStop(ctx context.Context) string {
	home, err := at.homeDir()
	if err != nil {
		return "To stop the daemon: rouse service stop, or Ctrl-C in its terminal"
	}
	client, st, err := daemon.Connect(ctx, home)
	if err != nil || st.Foreground {
		return "No daemon serves " + home
	}
	client.Close()
	if recorded, err := service.Recorded(home); err == nil && recorded.Name != "" {
		return "To stop the daemon: rouse service stop"
	}
	return fmt.Sprintf("To stop the daemon: Ctrl-C in its terminal, or kill %d", st.PID)
}

func newRetry(at *place) *cobra.Command {
	return newRunAction(at, "retry", "retry", "Runs a finished run again as a new attempt, or one that waits for its retry at once",
		func(r api.Run) string { return fmt.Sprintf("run %s is queued again", r.ID) })
}

// newRunAction returns a command that posts an action on one run to the API.
func newRunAction(at *place, name, action, short string, said func(api.Run) string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   name + " RUN",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: withSession(at.openToRead, func(cmd *cobra.Command, args []string, s *session) error {
			var r api.Run
			if done, err := s.send(cmd, asJSON, "/v1/runs/"+args[0]+"/"+action, struct{}{}, &r); done || err != nil {
				return err
			}

			text := said(r)
			// If no process executes the run, only the request is recorded.
			if !s.executes(r) && r.State != domain.StateFinished {
				text += " when a daemon starts: rouse serve"
			}

			return sayf(cmd.OutOrStdout(), "%s\n", text)
		}),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
