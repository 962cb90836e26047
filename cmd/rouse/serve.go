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
configured drain time, and parks the rest, which go on at the next start. A change of the
configuration takes effect without a restart; a mistake in it changes nothing and is told.`,
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
	level := &slog.LevelVar{}
	d, err := takeHome(cmd.Context(), daemonOptions{
		home: string(cfg.Home), flagHome: at.home, config: cfg, adopt: adopt, daemon: true, logger: newLogger(cfg.Log, level, cmd.ErrOrStderr()), level: level,
	})
	if err != nil {
		return err
	}
	defer d.close()
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	defer onHangup(d.reloads.poke, cancel)()
	out := cmd.OutOrStdout()
	for _, w := range cfg.Warnings {
		fmt.Fprintf(out, "warning: %s\n", w)
	}
	if err := d.serve(ctx, func(ctx context.Context) error { return printReady(ctx, d, out) }); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "stopped")
	return err
}

// takeHome opens a daemon. A command that works without one has the home for a moment, and
// so has one that was killed until the system has cleared it away: both are waited for. A
// daemon that answers is not.
func takeHome(ctx context.Context, o daemonOptions) (*daemon, error) {
	for deadline := time.Now().Add(homeWait); ; {
		d, err := openDaemon(ctx, o)
		var held *heldError
		if !errors.As(err, &held) || time.Now().After(deadline) {
			return d, err
		}
		if answers(ctx, socketPath(o.home)) {
			return nil, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// answers says whether a daemon is at work behind a socket. Of one that was killed the
// socket can still be reached for a moment.
func answers(ctx context.Context, socket string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client, err := web.Dial(ctx, socket)
	if err != nil {
		return false
	}
	err = client.Get(ctx, "/v1/status", nil, &web.Status{})
	return err == nil
}

// printReady is the daemon's first screen: what is armed, what is next, where to look.
func printReady(ctx context.Context, d *daemon, out io.Writer) error {
	jobs, err := d.Jobs(ctx)
	if err != nil {
		return err
	}
	now, held := time.Now(), d.current()
	fmt.Fprintf(out, "rouse %s, process %d\n  home     %s\n  config   %s\n", version(), os.Getpid(), d.home.dir, strings.Join(held.config.Files, ", "))
	for i, j := range jobs {
		if i == maxShown {
			fmt.Fprintf(out, "  …        %d more: rouse jobs%s\n", len(jobs)-i, held.flagHint())
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
		fmt.Fprintf(out, "  job      %-16s %s\n", j.Name, oneLine(line))
	}
	for _, hint := range held.hints() {
		fmt.Fprintf(out, "  note     %s\n", hint)
	}
	fmt.Fprintf(out, "  history  rouse runs%s\n", held.flagHint())
	_, err = fmt.Fprintf(out, "ready %s\n", web.Time{Time: now}.UTC().Format(time.RFC3339))
	return errors.Join(err, ctx.Err())
}
