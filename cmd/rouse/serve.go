package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/buildinfo"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/daemon"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/service"
	"rouse/internal/text"
)

// maxShown is the maximum number of jobs on the first screen.
const maxShown = 20

// serveOptions holds the flags of serve.
type serveOptions struct {
	adopt bool
	node  string // "" means the node of the configuration

	triggers, work bool
	logFile        string // log file of a service; "" means the terminal
}

func newServe(env *cli) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Runs the daemon in the foreground",
		Long: `Runs the daemon in the foreground until it is interrupted. Prints what it watches, what
is next and where history is, and a line starting with "ready" once every trigger is
armed. On SIGTERM or Ctrl-C it stops accepting, lets running jobs finish within the
configured drain time, and parks the rest, which go on at the next start. A change of the
configuration takes effect without a restart; a mistake in it changes nothing and is reported.

With engine.postgres in the configuration several of them share one ledger, each with a home and a
name of its own (docs/operate/several-machines.md).`,
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd, env, o) },
	}

	cmd.Flags().StringVar(&o.logFile, "log-file", "", "write what is said to this `file` instead; at 10 MiB it becomes FILE.1, and another is begun")
	cmd.Flags().StringVar(&o.node, "node", "", "`name` among the nodes that share a ledger (default node in the configuration, then the machine's)")
	cmd.Flags().BoolVar(&o.triggers, "triggers", true, "with engine.postgres: look for reasons to start runs (schedules, watches, webhooks)")
	cmd.Flags().BoolVar(&o.work, "work", true, "with engine.postgres: do runs")
	cmd.Flags().BoolVar(&o.adopt, "adopt", false, "accept a home that was used with another configuration file, and a place of large values that another copy of the database has")
	return cmd
}

func serve(cmd *cobra.Command, env *cli, o serveOptions) (err error) {
	if o.logFile != "" {
		log, err := service.OpenLog(o.logFile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, log.Close()) }()
		service.LeaveConsole()
		cmd.SetOut(log)
		cmd.SetErr(log)
	}

	// The reader of the output may stop reading. That must not block the runs.
	said := logging.NewWriter(cmd.ErrOrStderr())
	defer said.Close()
	shown := said
	if cmd.OutOrStdout() != cmd.ErrOrStderr() {
		shown = logging.NewWriter(cmd.OutOrStdout())
		defer shown.Close()
	}
	cmd.SetOut(shown)
	cmd.SetErr(said)

	d, cfg, err := openDaemon(cmd, env, o, said)
	if err != nil {
		if o.logFile != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), "rouse:", err) // the caller prints err to the original stderr, not to the log file
		}
		return err
	}
	defer d.Close()

	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()

	defer exitWhenLost(ctx, d, said)()

	// Before Serve, so that a SIGHUP during the start does not kill the process.
	defer onHangup(d.Reloader.ReloadSoon, cancel)()

	out := cmd.OutOrStdout()
	for _, w := range cfg.Warnings {
		fmt.Fprintln(out, w.String())
	}

	unattended := d.Supervised() || o.logFile != ""
	if err := d.Serve(ctx, func(ctx context.Context) error { return printReady(ctx, d, out, unattended) }); err != nil {
		return err
	}

	return sayf(out, "stopped\n")
}

// lostFor is the time a daemon has to end after it lost its lease.
const lostFor = 10 * time.Second

// exitWhenLost ends the process when it hangs after its lease was lost: others do its work.
func exitWhenLost(ctx context.Context, d *daemon.Daemon, said *logging.Writer) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		select {
		case <-d.Nodes.Lost(): // nil if the ledger is a file
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(lostFor):
			fmt.Fprintln(said, "rouse: the lease of this node is lost, and the daemon does not end by itself")
			said.Close()
			os.Exit(exitFailed)
		case <-ctx.Done():
		}
	}()
	return cancel
}

// openDaemon reads the configuration and opens the home.
func openDaemon(cmd *cobra.Command, env *cli, o serveOptions, said *logging.Writer) (*daemon.Daemon, *config.Config, error) {
	cfg, err := env.load()
	if err != nil {
		return nil, nil, err
	}
	if !cfg.Engine.Shared() && (o.node != "" || !o.triggers || !o.work) {
		return nil, nil, usagef("--node, --triggers and --work are for nodes that share a ledger: engine.postgres in the configuration")
	}

	v := &logging.Var{} // lets a reload change the logger's settings
	d, err := daemon.OpenWaiting(cmd.Context(), daemon.Options{
		Home: string(cfg.Home), FlagHome: env.home, Config: cfg, Adopt: o.adopt, Serves: true, Node: o.node, NoTriggers: !o.triggers, NoWork: !o.work, Logger: logging.New(cfg, v, said), LogVar: v,
	}, env.printWaiting)
	return d, cfg, err
}

// printReady prints the first screen of the daemon: armed jobs, upcoming runs, and the dashboard.
// Unattended output goes to a log that other users may read, so it has no login link.
func printReady(ctx context.Context, d *daemon.Daemon, out io.Writer, unattended bool) error {
	jobs, all, err := d.FirstJobs(ctx, maxShown)
	if err != nil {
		return err
	}

	held := d.Current()
	now := time.Now().In(held.Config.Zone())
	fmt.Fprintf(out, "rouse %s, process %d\n  home     %s\n  config   %s\n", buildinfo.Version(), os.Getpid(), d.Dir(), strings.Join(held.Config.Files, ", "))
	if e, err := d.Nodes.Engine(ctx); err == nil && e.Node != "" {
		leads := "leads"
		if !e.Leads {
			leads = "follows " + cmp.Or(e.Leader, "nobody")
		}
		fmt.Fprintf(out, "  node     %s, which %s; ledger at %s\n", e.Node, leads, e.Address)
		for _, why := range e.Problems {
			fmt.Fprintf(out, "  note     %s\n", text.OneLine(why))
		}
	}

	for _, j := range jobs {
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
	if more := all - len(jobs); more > 0 {
		fmt.Fprintf(out, "  …        %d more: rouse jobs%s\n", more, held.FlagHint())
	}

	if note := d.RestoredNote(); note != "" {
		fmt.Fprintf(out, "  note     %s\n", text.OneLine(note))
	}
	for _, hint := range held.Hints() {
		fmt.Fprintf(out, "  note     %s\n", hint)
	}

	if pages := d.Door.URL("/"); unattended && pages != "" {
		fmt.Fprintf(out, "  pages    %s (rouse dashboard%s opens them, logged in)\n", pages, held.FlagHint())
	} else if link, err := d.Door.Login(ctx, "/"); err == nil {
		fmt.Fprintf(out, "  pages    %s\n           (logs a browser in once, within ten minutes; then: rouse dashboard%s)\n", link.URL, held.FlagHint())
	} else if why := d.Door.Problem(); why != "" {
		fmt.Fprintf(out, "  note     no pages: %s\n", why)
	}

	fmt.Fprintf(out, "  history  rouse runs%s\n", held.FlagHint())
	// Scripts wait for this line, so it comes last.
	return errors.Join(sayf(out, "ready %s\n", api.At(now).UTC().Format(time.RFC3339)), ctx.Err())
}
