package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/daemon"
	"rouse/internal/text"
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
configured drain time, and parks the rest, which go on at the next start. A change of the
configuration takes effect without a restart; a mistake in it changes nothing and is reported.`,
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

	// A variable level, so that a reload can change it without another logger.
	level := &slog.LevelVar{}
	d, err := daemon.OpenWaiting(cmd.Context(), daemon.Options{
		Home: string(cfg.Home), FlagHome: at.home, Config: cfg, Adopt: adopt, Serves: true, Logger: daemon.NewLogger(cfg.Log, level, cmd.ErrOrStderr()), Level: level,
	}, at.sayWaiting)
	if err != nil {
		return err
	}
	defer d.Close()

	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()

	// Before Serve, so that a SIGHUP during the start does not kill the process.
	defer onHangup(d.ReloadSoon, cancel)()

	out := cmd.OutOrStdout()
	for _, w := range cfg.Warnings {
		fmt.Fprintf(out, "warning: %s\n", w)
	}

	if err := d.Serve(ctx, func(ctx context.Context) error { return printReady(ctx, d, out) }); err != nil {
		return err
	}

	_, err = fmt.Fprintln(out, "stopped")
	return err
}

// printReady is the daemon's first screen: what is armed, what is next, where to look.
func printReady(ctx context.Context, d *daemon.Daemon, out io.Writer) error {
	jobs, err := d.Jobs(ctx)
	if err != nil {
		return err
	}

	now, held := time.Now(), d.Current()
	fmt.Fprintf(out, "rouse %s, process %d\n  home     %s\n  config   %s\n", daemon.Version(), os.Getpid(), d.Dir(), strings.Join(held.Config.Files, ", "))

	for i, j := range jobs {
		if i == maxShown {
			fmt.Fprintf(out, "  …        %d more: rouse jobs%s\n", len(jobs)-i, held.FlagHint())
			break
		}

		line := strings.Join(j.Triggers, "; ")
		if !j.Next.IsZero() {
			line += ", next " + local(j.Next, now)
		}

		if j.Problem != "" {
			line += "  ▲ " + j.Problem
		}

		if j.Paused {
			line += ", " + jobState(j, now)
		}

		if !j.Enabled {
			line = "disabled"
		}

		fmt.Fprintf(out, "  job      %-16s %s\n", j.Name, text.OneLine(line))
	}

	if note := daemon.RestoredNote(d.Dir()); note != "" {
		fmt.Fprintf(out, "  note     %s\n", text.OneLine(note))
	}
	for _, hint := range held.Hints() {
		fmt.Fprintf(out, "  note     %s\n", hint)
	}

	if link, err := d.Login(ctx, "/"); err == nil {
		fmt.Fprintf(out, "  pages    %s\n           (logs a browser in once, within ten minutes; then: rouse dashboard%s)\n", link.URL, held.FlagHint())
	} else if why := d.DashboardProblem(); why != "" {
		fmt.Fprintf(out, "  note     no pages: %s\n", why)
	}

	fmt.Fprintf(out, "  history  rouse runs%s\n", held.FlagHint())
	// Scripts wait for this line, so it comes last.
	_, err = fmt.Fprintf(out, "ready %s\n", api.At(now).UTC().Format(time.RFC3339))
	return errors.Join(err, ctx.Err())
}
