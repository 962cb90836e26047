package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/daemon"
	"rouse/cmd/internal/service"
	"rouse/internal/text"
)

// stopSlack is how much longer than limits.drain the daemon of a service may take to end, before it is ended by force.
const stopSlack = time.Minute

func newService(at *place) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "service",
		Short: "A service of yours that starts the daemon when you log in, and again when it fails",
		Long: `Has the daemon of this home run by the service manager of your session: systemd on Linux, launchd
on macOS, the Task Scheduler on Windows. It starts when you log in, and again when it fails. Each
home is a service of its own. Nothing of this needs root.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	cmd.AddCommand(newServiceInstall(at), newServiceStart(at), newServiceStop(at), newServiceRestart(at), newServiceStatus(at), newServiceLogs(at), newServiceUninstall(at))
	return cmd
}

// target is the service of a home, and the manager it is for.
type target struct {
	service.Manager
	spec     service.Spec
	recorded service.Record // its name is "" where the home knows of none
}

// service finds the service of the home. A name of the command line comes before the one that the home has noted.
func (at *place) service(name string) (t target, err error) {
	if os.Geteuid() == 0 && os.Getenv("SUDO_USER") != "" {
		return t, errors.New("the service is one of a user, and not of the machine: it acts with your files, your keyring and your desktop; run this as yourself, without sudo (loginctl enable-linger keeps it on while nobody is logged in)")
	}
	if t.Manager, err = service.For(runtime.GOOS); err != nil {
		return t, err
	}
	if t.spec.Home, err = at.homeDir(); err != nil {
		return t, err
	}
	if t.recorded, err = service.Recorded(t.spec.Home); err != nil {
		return t, err
	}

	switch {
	case name != "":
		t.spec.Name = name
	case t.recorded.Name != "":
		t.spec.Name = t.recorded.Name
	default:
		usual, err := config.DefaultHome(func(key string) string {
			if key == "ROUSE_HOME" {
				return "" // the shell's, which the next one may not have
			}
			return os.Getenv(key)
		})
		if err != nil {
			return t, err
		}
		t.spec.Name = service.DefaultName(t.spec.Home, usual)
	}

	me, err := user.Current()
	if err == nil {
		t.spec.User = me.Username
	}
	return t, errors.Join(err, service.CheckName(t.spec.Name))
}

// installed is the service of the home, which has to be there.
func (at *place) installed() (target, error) {
	t, err := at.service("")
	if err == nil && t.recorded.Name == "" {
		err = fmt.Errorf("no service is installed for the home %s; install one with: rouse service install", t.spec.Home)
	}
	return t, err
}

func newServiceStart(at *place) *cobra.Command {
	return startingCommand(at, "start", "Starts the service, and waits until every trigger is armed", target.Start)
}

func newServiceRestart(at *place) *cobra.Command {
	return startingCommand(at, "restart", "Stops the service and starts it again, as after an upgrade", target.Restart)
}

// startingCommand returns a command that has the manager start the service and waits until it is ready.
func startingCommand(at *place, name, short string, start func(target, service.Spec) error) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			t, err := at.installed()
			if err != nil {
				return err
			}
			if err := t.refuseOther(cmd.Context()); err != nil {
				return err
			}
			if err := start(t, t.spec); err != nil {
				return fmt.Errorf("%s did not %s %s: %w; see: rouse service logs", t.Title(), name, t.spec.Name, err)
			}
			return t.untilReady(cmd, at, wait)
		}),
	}
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "wait this long for it to be ready")
	return cmd
}

// refuseOther is for a daemon that serves the home and is not the service's: the two would wait for each other.
func (t target) refuseOther(ctx context.Context) error {
	client, st, err := daemon.Connect(ctx, t.spec.Home)
	if err != nil {
		return nil //nolint:nilerr // nobody serves it, or cannot be asked: the start will say
	}
	client.Close()
	if is, err := t.State(ctx, t.spec); err == nil && is.Running && (is.PID == 0 || is.PID == st.PID) {
		return nil
	}
	return fmt.Errorf("process %d serves the home %s already, and is not the service; end it first, with Ctrl-C in its terminal or: kill %d", st.PID, t.spec.Home, st.PID)
}

// untilReady waits for the daemon and says that it is there.
func (t target) untilReady(cmd *cobra.Command, at *place, wait time.Duration) error {
	st, _, err := daemonStatus(cmd.Context(), at, wait)
	if err != nil || !st.Ready {
		return fmt.Errorf("the service %s was started, and is not ready after %s; see what it says: rouse service logs", t.spec.Name, wait)
	}
	return sayf(cmd.OutOrStdout(), "ready: the service %s serves %s (process %d)\n", t.spec.Name, st.Home, st.PID)
}

func newServiceStop(at *place) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stops the service until the next login; running jobs finish within limits.drain",
		Args:  cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			t, err := at.installed()
			if err != nil {
				return err
			}
			if is, err := t.State(cmd.Context(), t.spec); err == nil && is.Known && !is.Running && t.tells() {
				return sayf(cmd.OutOrStdout(), "the service %s does not run\n", t.spec.Name)
			}
			if err := t.Stop(t.spec); err != nil {
				return fmt.Errorf("%s did not stop %s: %w", t.Title(), t.spec.Name, err)
			}
			return sayf(cmd.OutOrStdout(), "stopped the service %s; it starts again when you log in, or with: rouse service start\n", t.spec.Name)
		}),
	}
}

// tells says whether the manager knows which process is the service's.
func (t target) tells() bool { return runtime.GOOS != "windows" }

// serviceStatus is what rouse service status --json prints.
type serviceStatus struct {
	Installed bool        `json:"installed"`
	Name      string      `json:"name"`
	Manager   string      `json:"manager"`
	File      string      `json:"file"`
	Enabled   bool        `json:"enabled"`  // it starts when its user logs in
	Running   bool        `json:"running"`  // as the manager sees it
	State     string      `json:"state"`    // in its words
	PID       int         `json:"pid"`      // 0: there is no process, or the manager does not tell
	Since     api.Time    `json:"since"`    // of the state; null: not known
	Restarts  int         `json:"restarts"` // after failures
	Says      string      `json:"says"`     // what the daemon has told its manager
	Problem   string      `json:"problem"`  // "": none
	Daemon    *api.Status `json:"daemon"`   // of this home, however it was started; null: none answers
}

func newServiceStatus(at *place) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Says how the service is, as its manager and the daemon itself see it; exits 1 unless it is ready",
		Args:  cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			t, err := at.service("")
			if err != nil {
				return err
			}
			st := t.status(cmd.Context())

			if asJSON {
				err = printJSON(cmd.OutOrStdout(), st)
			} else {
				err = st.print(cmd.OutOrStdout(), t, time.Now())
			}
			if err == nil && (!st.Installed || st.Problem != "" || st.Daemon == nil || !st.Daemon.Ready) {
				err = errSilent
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// status asks the manager and the daemon.
func (t target) status(ctx context.Context) serviceStatus {
	st := serviceStatus{Installed: t.recorded.Name != "", Name: t.spec.Name, Manager: t.Title()}
	if client, d, err := daemon.Connect(ctx, t.spec.Home); err == nil {
		client.Close()
		st.Daemon = &d
	}
	if !st.Installed {
		return st
	}

	st.File = t.recorded.File
	is, err := t.State(ctx, t.spec)
	if err != nil {
		st.Problem = err.Error()
		return st
	}
	st.Enabled, st.Running, st.State, st.PID, st.Since, st.Restarts, st.Says = is.Enabled, is.Running, is.Text, is.PID, api.At(is.Since), is.Restarts, ""
	if is.Running {
		st.Says = is.Says // systemd keeps the last word of one that is gone
	}

	_, gone := os.Stat(t.recorded.Program)
	switch {
	case !is.Known:
		st.Problem = fmt.Sprintf("%s knows no service %s, though it was installed; install it again: rouse service install", t.Title(), st.Name)
	case gone != nil:
		st.Problem = fmt.Sprintf("the program %s is gone, so that it starts no more; install the service again with the program that is there now: rouse service install --force", t.recorded.Program)
	case !is.Enabled:
		st.Problem = "it does not start when you log in; install it again: rouse service install"
	case st.Daemon != nil && is.PID != 0 && st.Daemon.PID != is.PID:
		st.Problem = fmt.Sprintf("process %d serves the home, and is not the service: that one waits, or fails, until it ends", st.Daemon.PID)
	}
	return st
}

func (st serviceStatus) print(w io.Writer, t target, now time.Time) error {
	if !st.Installed {
		fmt.Fprintf(w, "no service is installed for %s; install one with: rouse service install\n", t.spec.Home)
	} else {
		line := fmt.Sprintf("service %s (%s): %s", st.Name, st.Manager, st.State)
		if !st.Since.IsZero() {
			line += " since " + local(st.Since, now)
		}
		if st.PID != 0 {
			line += fmt.Sprintf(", process %d", st.PID)
		}
		if st.Restarts > 0 {
			line += ", started again " + text.Plural(st.Restarts, "time") + " after it failed"
		}
		fmt.Fprintf(w, "%s\n  %s\n", line, st.File)
		if st.Says != "" {
			fmt.Fprintf(w, "  it says: %s\n", text.OneLine(st.Says))
		}
	}

	if st.Daemon != nil {
		now = now.In(loadZone(st.Daemon.Zone))
	}
	switch st.Daemon {
	case nil:
		fmt.Fprintf(w, "no daemon answers for %s\n", t.spec.Home)
	default:
		ready := "ready"
		if !st.Daemon.Ready {
			ready = "starting"
		}
		fmt.Fprintf(w, "%s: process %d (rouse %s) since %s, %d queued, %d running, %d waiting: rouse status\n",
			ready, st.Daemon.PID, st.Daemon.Version, local(st.Daemon.StartedAt, now), st.Daemon.Queued, st.Daemon.Running, st.Daemon.Waiting)
	}
	if st.Problem != "" {
		return sayf(w, "▲ %s\n", text.OneLine(st.Problem))
	}
	return nil
}

func newServiceLogs(at *place) *cobra.Command {
	var o service.LogOptions
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Shows what the service's daemon has said: from the journal, or from service.log in the home",
		Args:  cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			t, err := at.installed()
			if err != nil {
				return err
			}
			if o.Lines < 0 {
				return usagef("-n must not be negative")
			}
			o.Out, o.Err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return t.Logs(cmd.Context(), t.spec, o)
		}),
	}
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "go on with what comes")
	cmd.Flags().IntVarP(&o.Lines, "lines", "n", 100, "begin with the last so many lines")
	return cmd
}

func newServiceUninstall(at *place) *cobra.Command {
	return &cobra.Command{
		Use:   "uninstall",
		Short: "Stops the service and takes it away; the home with its history stays",
		Args:  cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			t, err := at.service("")
			if err != nil {
				return err
			}
			if t.recorded.Name == "" {
				return sayf(cmd.OutOrStdout(), "no service is installed for %s\n", t.spec.Home)
			}
			if err := service.Uninstall(cmd.Context(), t, t.spec); err != nil {
				return err
			}
			return sayf(cmd.OutOrStdout(), "uninstalled the service %s; the home %s stays as it is\n", t.spec.Name, t.spec.Home)
		}),
	}
}
