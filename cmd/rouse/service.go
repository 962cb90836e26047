package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/homedir"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/service"
	"rouse/internal/owner"
	"rouse/internal/text"
)

// stopSlack is added to limits.drain. A service manager kills the daemon if it takes longer to end.
const stopSlack = time.Minute

func newService(env *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "service",
		Short: "A service of yours that starts the daemon when you log in, and again when it fails",
		Long: `Has the daemon of this home run by the service manager of your session: systemd on Linux, launchd
on macOS, the Task Scheduler on Windows. It starts when you log in, and again when it fails. Each
home is a service of its own. Nothing of this needs root.`,
	}

	cmd.AddCommand(newServiceInstall(env),
		startingCommand(env, "start", "Starts the service, and waits until every trigger is armed", target.Start),
		newServiceStop(env),
		startingCommand(env, "restart", "Stops the service and starts it again, as after an upgrade", target.Restart),
		newServiceStatus(env), newServiceLogs(env), newServiceUninstall(env))
	return cmd
}

// target is the service of a home and its service manager.
type target struct {
	service.Manager
	spec     service.Spec
	recorded service.Record // its name is "" if no service is installed
}

// service finds the service of the home. A name on the command line overrides the recorded one.
func (env *cli) service(name string) (t target, err error) {
	if os.Geteuid() == 0 && os.Getenv("SUDO_USER") != "" {
		return t, errors.New("the service is one of a user, and not of the machine: it acts with your files, your keyring and your desktop; run this as yourself, without sudo (loginctl enable-linger keeps it on while nobody is logged in)")
	}
	if t.Manager, err = service.For(runtime.GOOS); err != nil {
		return t, err
	}
	if t.spec.Home, err = env.homeDir(); err != nil {
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
				return "" // ignore it, because other shells may not have it
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

// installed returns a RunE that calls f with the service of the home, which must be installed.
func (env *cli) installed(f func(cmd *cobra.Command, t target) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		t, err := env.service("")
		if err == nil && t.recorded.Name == "" {
			err = fmt.Errorf("no service is installed for the home %s; install one with: rouse service install", t.spec.Home)
		}
		if err != nil {
			return err
		}
		return f(cmd, t)
	}
}

// startingCommand returns a command that starts the service and waits until it is ready.
func startingCommand(env *cli, name, short string, start func(target, service.Spec) error) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		RunE: env.installed(func(cmd *cobra.Command, t target) error {
			if err := t.refuseOther(cmd.Context()); err != nil {
				return err
			}
			if err := start(t, t.spec); err != nil {
				return fmt.Errorf("%s did not %s %s: %w; see: rouse service logs", t.Title(), name, t.spec.Name, err)
			}
			return t.untilReady(cmd, env, wait)
		}),
	}
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "wait this long for it to be ready")
	return cmd
}

// refuseOther returns an error if another daemon serves the home, because the service would wait.
func (t target) refuseOther(ctx context.Context) error {
	client, st, err := homedir.Connect(ctx, t.spec.Home)
	if err != nil {
		return nil //nolint:nilerr // no daemon answers; if there is a problem, the start reports it
	}
	client.Close()
	if is, err := t.State(ctx, t.spec); err == nil && is.Running && (is.PID == 0 || is.PID == st.PID) {
		return nil
	}
	return fmt.Errorf("process %d serves the home %s already, and is not the service; end it first, with Ctrl-C in its terminal or: kill %d", st.PID, t.spec.Home, st.PID)
}

// untilReady waits until the daemon is ready and prints that.
func (t target) untilReady(cmd *cobra.Command, env *cli, wait time.Duration) error {
	st, _, err := daemonStatus(cmd.Context(), env, wait)
	if err != nil || !st.Ready {
		return fmt.Errorf("the service %s was started, and is not ready after %s; see what it says: rouse service logs", t.spec.Name, wait)
	}
	return sayf(cmd.OutOrStdout(), "ready: the service %s serves %s (process %d)\n", t.spec.Name, st.Home, st.PID)
}

func newServiceStop(env *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stops the service until the next login; running jobs finish within limits.drain",
		RunE: env.installed(func(cmd *cobra.Command, t target) error {
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

// tells reports whether the service manager knows the process ID of the service.
func (t target) tells() bool { return runtime.GOOS != "windows" }

// serviceStatus is the output of rouse service status --json.
type serviceStatus struct {
	Installed bool        `json:"installed"`
	Name      string      `json:"name"`
	Manager   string      `json:"manager"`
	File      string      `json:"file"`
	Enabled   bool        `json:"enabled"`  // starts when its user logs in
	Running   bool        `json:"running"`  // according to the service manager
	State     string      `json:"state"`    // as the service manager words it
	PID       int         `json:"pid"`      // 0 if there is none or it is unknown
	Since     api.Time    `json:"since"`    // start of the state; null if unknown
	Restarts  int         `json:"restarts"` // number of restarts after failures
	Says      string      `json:"says"`     // last status text that the daemon sent to the service manager
	Problem   string      `json:"problem"`  // "" if there is no problem
	Daemon    *api.Status `json:"daemon"`   // even one outside the service; null if none answers
}

func newServiceStatus(env *cli) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "status",
		Short: "Says how the service is, as its manager and the daemon itself see it; exits 1 unless it is ready",
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := env.service("")
			if err != nil {
				return err
			}
			st := t.status(cmd.Context())
			bad := !st.Installed || st.Problem != "" || st.Daemon == nil || !st.Daemon.Ready
			return failIf(bad, jsonOr(cmd, st, func() error { return st.print(cmd.OutOrStdout(), t, time.Now()) }))
		},
	})
}

// status asks the service manager and the daemon.
func (t target) status(ctx context.Context) serviceStatus {
	st := serviceStatus{Installed: t.recorded.Name != "", Name: t.spec.Name, Manager: t.Title()}
	if client, d, err := homedir.Connect(ctx, t.spec.Home); err == nil {
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
		st.Says = is.Says // systemd keeps the last text of an ended service
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

	if d := st.Daemon; d == nil {
		fmt.Fprintf(w, "no daemon answers for %s\n", t.spec.Home)
	} else {
		fmt.Fprintf(w, "%s: process %d (rouse %s) since %s, %d queued, %d running, %d waiting: rouse status\n",
			readyText(*d), d.PID, d.Version, local(d.StartedAt, now.In(loadZone(d.Zone))), d.Queued, d.Running, d.Waiting)
	}
	warn(w, st.Problem)
	return nil
}

func newServiceLogs(env *cli) *cobra.Command {
	var o service.LogOptions
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Shows what the service's daemon has said: from the journal, or from service.log in the home",
		RunE: env.installed(func(cmd *cobra.Command, t target) error {
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

func newServiceUninstall(env *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "uninstall",
		Short: "Stops the service and takes it away; the home with its history stays",
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := env.service("")
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
		},
	}
}

// serviceInstallOptions holds the flags of service install.
type serviceInstallOptions struct {
	name          string
	force, dryRun bool
}

func newServiceInstall(env *cli) *cobra.Command {
	var o serviceInstallOptions
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Installs the daemon of this home as a service of yours",
		Long: `Installs the daemon of this home as a service that starts when you log in, and shows what it
writes and where. It does not start it now: rouse service start. A service that is there already and
says the same is left alone; one that says otherwise is shown with the differences, and written
again with --force.

Its program is the one that this command is, its configuration and home are those that this
command finds. Programs of agents are looked up in the $PATH of this shell. Other variables
of this shell are not there: what the configuration takes from them is said.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return installService(cmd, env, o) },
	}

	cmd.Flags().StringVar(&o.name, "name", "", "of the service (default rouse, and for another home than ~/.rouse one made of its path)")
	cmd.Flags().BoolVar(&o.force, "force", false, "write it again where it is installed and says otherwise")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only show what would be written")
	return cmd
}

func installService(cmd *cobra.Command, env *cli, o serviceInstallOptions) error {
	if o.name != "" {
		if err := service.CheckName(o.name); err != nil {
			return usageError{err}
		}
	}
	t, err := env.service(o.name)
	if err != nil {
		return err
	}
	cfg, err := env.load()
	if err != nil {
		return fmt.Errorf("no service is installed with a configuration that no daemon could start with:\n%w", err)
	}
	if t.spec, err = serviceSpec(t.spec, cfg); err != nil {
		return err
	}
	if err := owner.CheckHome(t.spec.Home); err != nil {
		return err
	}

	plan, err := service.NewPlan(cmd.Context(), t, t.spec, cfg.Files)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	warn(out, t.doubts(cmd.Context(), env, cfg)...)
	if plan.Installed && t.recorded.Name != "" {
		return sayf(out, "the service %s is installed already, just so (%s)\n", t.spec.Name, plan.File)
	}
	if o.dryRun {
		if plan.Unasked != nil {
			warn(out, plan.Unasked.Error())
		}
		return showPlan(out, plan, "would be written")
	}

	// Create the home, as the daemon would: it holds the record of the service.
	if err := os.MkdirAll(t.spec.Home, 0o700); err != nil {
		return fmt.Errorf("cannot create the home folder %s: %w", t.spec.Home, err)
	}
	if err := plan.Install(t, o.force); err != nil {
		return err
	}
	return t.sayInstalled(cmd.Context(), out, plan)
}

func showPlan(w io.Writer, p service.Plan, what string) error {
	fmt.Fprintf(w, "%s %s:\n\n", p.File, what)
	for line := range strings.Lines(p.Text) {
		fmt.Fprint(w, "    ", line)
	}
	if p.Old == "" || p.Old == p.Text {
		return nil
	}
	return sayf(w, "\nwhat is installed differs:\n%s\n", p.Diff())
}

// sayInstalled prints the written files and the next steps.
func (t target) sayInstalled(ctx context.Context, w io.Writer, p service.Plan) error {
	if err := showPlan(w, p, "was written"); err != nil {
		return err
	}

	fmt.Fprintf(w, "\ninstalled the service %s: %s starts it when you log in\n", t.spec.Name, t.Title())
	for _, hint := range t.Hints(t.spec) {
		fmt.Fprintf(w, "  note     %s\n", hint)
	}
	next := "rouse service start"
	if is, err := t.State(ctx, t.spec); err == nil && is.Running {
		next = "rouse service restart (it runs as it was)"
	}
	return sayf(w, "  next     %s\n", next)
}

// serviceSpec sets the program, its configuration, PATH and stop timeout in a spec.
func serviceSpec(s service.Spec, cfg *config.Config) (service.Spec, error) {
	program, err := ownProgram()
	if err != nil {
		return s, err
	}
	s.Program, s.Home = program, string(cfg.Home)
	if s.Config, err = filepath.Abs(cfg.Files[0]); err != nil {
		return s, err
	}
	if info, err := os.Stat(s.Config); err == nil && !info.Mode().IsRegular() {
		return s, fmt.Errorf("%s is no plain file, and would not be there at the next login", s.Config)
	}

	// Leave out folders that other users can write to: their programs would run at each login.
	var folders []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) && owner.WritableByOthers(dir) == "" && !strings.ContainsAny(dir, "\n\r") {
			folders = append(folders, dir)
		}
	}
	s.Path = strings.Join(folders, string(filepath.ListSeparator))
	s.Stop = time.Duration(cfg.Limits.Drain) + stopSlack
	return s, nil
}

// ownProgram returns the path of this program. If it was started through a symbolic link,
// ownProgram returns the link, because an upgrade changes the link.
func ownProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("where this program lies is not known: %w", err)
	}
	is, err := os.Stat(self)
	if err != nil {
		return "", fmt.Errorf("this program is not where it was when it was started (%w); call it again", err)
	}

	called, err := exec.LookPath(os.Args[0])
	if err != nil {
		return self, nil //nolint:nilerr // Args[0] is not a path
	}
	called, err = filepath.Abs(called)
	if info, statErr := os.Stat(called); err == nil && statErr == nil && os.SameFile(info, is) {
		return called, nil
	}
	return self, nil
}

// doubts returns warnings about problems that the service would meet later.
func (t target) doubts(ctx context.Context, env *cli, cfg *config.Config) (out []string) {
	if service.Temporary(t.spec.Program) {
		out = append(out, fmt.Sprintf("the program lies in a temporary folder (%s): the service ends when it is cleared away; install rouse elsewhere first, and run service install of that one", t.spec.Program))
	}

	session, err := t.Environment(ctx)
	if err != nil || session == nil {
		return out // the installation reports that the manager cannot be asked
	}
	lacking, err := plan.CheckWith(t.spec.Config, t.spec.Home, func(name string) string { return session[name] }) //nolint:contextcheck // the search for an Ollama server has its own time limit
	var all *config.Errors
	switch {
	case errors.As(err, &all):
		for _, p := range all.Problems {
			if !p.Warning {
				out = append(out, fmt.Sprintf("the service will not start, for it has not the variables of this shell: %s", p))
			}
		}
	case err != nil:
		out = append(out, fmt.Sprintf("the service will not start: %v", err))
	case len(cfg.Models) > len(lacking.Models):
		out = append(out, "the model comes from a key in the environment of this shell, which the service has not: name it under models:, with api_key: secret:NAME")
	}
	if len(out) > 0 && session != nil && all != nil {
		out = append(out, "keep what is secret with: rouse secrets set NAME, and write secret:NAME; other values belong in the configuration, or in ~/.config/environment.d for all services")
	}
	return out
}
