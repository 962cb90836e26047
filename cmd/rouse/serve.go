package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/web"
)

// maxShown is how many jobs the first screen lists.
const maxShown = 20

func newServe(at *place) *cobra.Command {
	var adopt bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Runs the daemon in the foreground",
		Long: `Runs the daemon in the foreground until it is interrupted. Prints what it watches, what
is next and where history is, and a line starting with "ready" once every trigger is
armed. On SIGTERM or Ctrl-C it stops accepting, lets running jobs finish within the
configured drain time, and parks the rest, which go on at the next start.`,
		Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return serve(cmd, at, adopt) }),
	}
	cmd.Flags().BoolVar(&adopt, "adopt", false, "accept a home that was used with another configuration file")
	return cmd
}

func serve(cmd *cobra.Command, at *place, adopt bool) error {
	cfg, err := at.load()
	if err != nil {
		return err
	}
	d, err := openDaemon(cmd.Context(), daemonOptions{
		home: string(cfg.Home), config: cfg, adopt: adopt, daemon: true, logger: newLogger(cfg.Log, cmd.ErrOrStderr()),
	})
	if err != nil {
		return err
	}
	defer d.close()
	out := cmd.OutOrStdout()
	for _, w := range cfg.Warnings {
		fmt.Fprintf(out, "warning: %s\n", w)
	}
	if err := d.serve(cmd.Context(), func(ctx context.Context) error { return printReady(ctx, d, out) }); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "stopped")
	return err
}

// printReady is the daemon's first screen: what is armed, what is next, where to look.
func printReady(ctx context.Context, d *daemon, out io.Writer) error {
	jobs, err := d.Jobs(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	fmt.Fprintf(out, "rouse %s, process %d\n  home     %s\n  config   %s\n", version(), os.Getpid(), d.home.dir, strings.Join(d.config.Files, ", "))
	for i, j := range jobs {
		if i == maxShown {
			fmt.Fprintf(out, "  …        %d more: rouse jobs%s\n", len(jobs)-i, d.flagHint())
			break
		}
		line := strings.Join(j.Triggers, "; ")
		if !j.Next.IsZero() {
			line += ", next " + local(j.Next, now)
		}
		if j.Problem != "" {
			line += "  ▲ " + j.Problem
		}
		if !j.Enabled {
			line = "disabled"
		}
		fmt.Fprintf(out, "  job      %-16s %s\n", j.Name, oneLine(line))
	}
	for _, hint := range d.hints() {
		fmt.Fprintf(out, "  note     %s\n", hint)
	}
	fmt.Fprintf(out, "  history  rouse runs%s\n", d.flagHint())
	_, err = fmt.Fprintf(out, "ready %s\n", web.Time{Time: now}.UTC().Format(time.RFC3339))
	return errors.Join(err, ctx.Err())
}
