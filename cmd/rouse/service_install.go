package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/daemon"
	"rouse/cmd/internal/service"
	"rouse/internal/owner"
	"rouse/internal/text"
)

// serviceInstallOptions are the flags of service install.
type serviceInstallOptions struct {
	name          string
	force, dryRun bool
}

func newServiceInstall(at *place) *cobra.Command {
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
		Args: cobra.NoArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return installService(cmd, at, o) }),
	}

	cmd.Flags().StringVar(&o.name, "name", "", "of the service (default rouse, and for another home than ~/.rouse one made of its path)")
	cmd.Flags().BoolVar(&o.force, "force", false, "write it again where it is installed and says otherwise")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only show what would be written")
	return cmd
}

func installService(cmd *cobra.Command, at *place, o serviceInstallOptions) error {
	if o.name != "" {
		if err := service.CheckName(o.name); err != nil {
			return usageError{err}
		}
	}
	t, err := at.service(o.name)
	if err != nil {
		return err
	}
	cfg, err := at.load()
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
	for _, what := range t.doubts(cmd.Context(), at, cfg) {
		fmt.Fprintf(out, "▲ %s\n", text.OneLine(what))
	}

	if plan.Installed && t.recorded.Name != "" {
		return sayf(out, "the service %s is installed already, just so (%s)\n", t.spec.Name, plan.File)
	}
	if o.dryRun {
		if plan.Unasked != nil {
			fmt.Fprintf(out, "▲ %s\n", text.OneLine(plan.Unasked.Error()))
		}
		return showPlan(out, plan, "would be written")
	}

	// It holds the note of the service, and the daemon would make it the same way.
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

// sayInstalled shows what was written and what comes next.
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

// serviceSpec fills in what is to run.
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

	// What others could write into is left out: whoever can put a program there would have it run at each login.
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

// ownProgram is the path of this program as its user has called it, where that is a link that an upgrade moves on.
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
		return self, nil //nolint:nilerr // called by a name that is no path
	}
	called, err = filepath.Abs(called)
	if info, statErr := os.Stat(called); err == nil && statErr == nil && os.SameFile(info, is) {
		return called, nil
	}
	return self, nil
}

// doubts are what would surprise the owner of the service later.
func (t target) doubts(ctx context.Context, at *place, cfg *config.Config) (out []string) {
	if service.Temporary(t.spec.Program) {
		out = append(out, fmt.Sprintf("the program lies in a temporary folder (%s): the service ends when it is cleared away; install rouse elsewhere first, and run service install of that one", t.spec.Program))
	}

	env, err := t.Environment(ctx)
	if err != nil || env == nil {
		return out // that it cannot be asked is said by the installation
	}
	lacking, err := daemon.CheckWith(t.spec.Config, t.spec.Home, func(name string) string { return env[name] }) //nolint:contextcheck // looking for an Ollama has a limit of its own
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
	if len(out) > 0 && env != nil && all != nil {
		out = append(out, "keep what is secret with: rouse secrets set NAME, and write secret:NAME; other values belong in the configuration, or in ~/.config/environment.d for all services")
	}
	return out
}
