package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/daemon"
	"rouse/cmd/internal/homedir"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/plan"
	"rouse/internal/domain"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

// cli holds the locations of a command: its configuration and its home.
type cli struct {
	config string
	home   string
	beside bool      // the substitute for a missing home must be on the same disk
	stderr io.Writer // for warnings that any command can print
	broken error     // error of the configuration, if the command only needs the home
}

// load reads the configuration. The error lists every problem, except missing secrets.
func (env *cli) load() (*config.Config, error) { return env.read(plan.Load) }

// check reads the configuration as load does, but also reports missing secrets.
func (env *cli) check() (*config.Config, error) { return env.read(plan.Check) }

func (env *cli) read(load func(path, home string) (*config.Config, error)) (*config.Config, error) {
	path, err := yaml.Find(env.config, os.Getenv)
	if err != nil {
		return nil, err
	}
	return load(path, env.home)
}

// homeDir returns the home. Mistakes elsewhere in the configuration must not hide the history.
func (env *cli) homeDir() (string, error) {
	if env.home != "" {
		return filepath.Abs(env.home)
	}

	path, err := yaml.Find(env.config, os.Getenv)
	if err != nil {
		if env.config != "" || !errors.Is(err, yaml.ErrNoFile) {
			return "", err
		}
		return config.DefaultHome(os.Getenv)
	}

	return yaml.Home(path, os.Getenv)
}

// inHome returns a RunE that calls f with the path of the home.
func (env *cli) inHome(f func(cmd *cobra.Command, args []string, home string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		home, err := env.homeDir()
		if err != nil {
			return err
		}
		return f(cmd, args, home)
	}
}

// session is the API connection of a command. It connects to the process that holds the home. If
// there is no such process, it opens the home and serves the API in this process.
type session struct {
	*api.Client
	cmd    *cobra.Command
	out    io.Writer // standard output
	home   string
	zone   *time.Location // configured zone of times in input and output
	daemon bool           // a daemon answers and executes the queue
	local  *daemon.Daemon // set if this process holds the home; nil if another process does
	nodes  bool           // other nodes execute runs of this ledger
	opened string         // path of the open home, or of its empty substitute
	close  func()
}

// executes reports whether a process executes a run. A daemon executes all, a command only its own.
func (s *session) executes(r api.Run) bool {
	return s.daemon || s.nodes || s.local == nil && r.State == domain.StateRunning
}

// missing reports whether the home does not exist yet.
func (s *session) missing() bool { return s.opened != s.home }

// now returns the current time in the configured zone.
func (s *session) now() time.Time { return time.Now().In(s.zone) }

// since converts a time flag to a timestamp in the past for the API. It returns "" for "".
func (s *session) since(flag, written string) (string, error) {
	if written == "" {
		return "", nil
	}
	w, err := schedule.ParseTime(written, time.Now(), s.zone, false)
	if err != nil {
		return "", usagef("%s: %w", flag, err)
	}
	return w.At.Format(time.RFC3339Nano), nil
}

// mark returns outcomeMark, but "cut off" for a running run if its process was killed.
func (s *session) mark(r api.Run) string {
	if r.State == domain.StateRunning && !s.executes(r) {
		return "⚡ cut off"
	}
	return outcomeMark(r)
}

// sayNoDaemon prints a note if some of the runs are open and no process executes them.
func (s *session) sayNoDaemon(runs ...api.Run) error {
	if !slices.ContainsFunc(runs, func(r api.Run) bool { return r.State != domain.StateFinished && !s.executes(r) }) {
		return nil
	}
	return sayf(s.out, "no daemon serves %s, so nothing goes on by itself: rouse serve\n", s.home)
}

// purpose is the reason for which a command opens a home.
type purpose int

const (
	toChange purpose = iota // create the home if it is missing
	toRead                  // read, or change existing data: do not create a missing home
	toRun                   // execute a run: wait for another command, which executes only its own run
)

// open connects to the daemon or a command that executes a run. Otherwise it opens the home.
func (env *cli) open(cmd *cobra.Command, purpose purpose) (*session, error) {
	s, err := env.connect(cmd.Context(), purpose)
	if err != nil {
		return nil, err
	}
	s.cmd, s.out = cmd, cmd.OutOrStdout()
	return s, nil
}

// with returns a RunE that opens a session for f and closes it afterwards.
func (env *cli) with(purpose purpose, f func(s *session, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := env.open(cmd, purpose)
		if err != nil {
			return err
		}
		defer s.close()
		return f(s, args)
	}
}

func (env *cli) connect(ctx context.Context, purpose purpose) (s *session, err error) {
	dir, err := env.homeDir()
	if err != nil {
		return nil, err
	}

	err = homedir.Wait(ctx, env.printWaiting, func() (err error) {
		s, err = env.try(ctx, dir, purpose)
		if err == nil && purpose == toRun && !s.daemon && s.local == nil {
			s.Close() // otherwise each retry would leave an open connection
			return homedir.Held(dir)
		}
		return err
	})
	if held, ok := errors.AsType[*homedir.HeldError](err); ok {
		if unanswered, ok := held.Unanswered(); ok {
			return nil, unanswered
		}
	}
	return s, err
}

// warn prints a line to standard error.
func (env *cli) warn(line string) {
	if env.stderr != nil { // tests leave it nil
		fmt.Fprintln(env.stderr, "rouse:", line)
	}
}

// printWaiting prints which process the command waits for.
func (env *cli) printWaiting(held *homedir.HeldError) { env.warn(held.Waiting()) }

// warnBroken prints the first mistake of the configuration if the command ignored it.
func (env *cli) warnBroken() {
	var wrong *config.Errors
	switch {
	case env.broken == nil:
	case errors.As(env.broken, &wrong) && len(wrong.Problems) > 0:
		env.warn("the configuration has a mistake and was not used: " + text.OneLine(wrong.Problems[0].String()))
	default:
		env.warn("the configuration cannot be read and was not used: " + text.OneLine(env.broken.Error()))
	}
}

func (env *cli) try(ctx context.Context, dir string, purpose purpose) (*session, error) {
	client, st, err := homedir.Connect(ctx, dir)
	if err == nil {
		client.OnConfigProblem(env.warn)
		// Nothing to close: connections to another process end with this process.
		return &session{Client: client, home: dir, opened: dir, zone: loadZone(st.Zone), daemon: !st.Foreground, close: func() {}}, nil
	}
	if !errors.Is(err, api.ErrNoDaemon) {
		return nil, err
	}

	cfg, problem := env.load()
	// Without a configuration a command can only read history. It must not create a home.
	if errors.Is(problem, yaml.ErrNoFile) {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("there is no history at %s, and %w", dir, problem)
		}
		if env.home == "" { // the home was not given with --home
			env.warn("no configuration was found here; this is what is in " + dir)
		}
	}

	var wanted []config.SecretRef
	if problem != nil {
		if !errors.Is(problem, yaml.ErrNoFile) {
			env.broken = problem
		}
		if cfg != nil {
			wanted = cfg.Secrets.Refs
		}
		// Keep the names of secrets, so that doctor reports unset ones.
		cfg = &config.Config{} // history is readable without the configuration
	}

	opened, forget := dir, func() {}
	if _, missing := os.Stat(dir); purpose == toRead && errors.Is(missing, fs.ErrNotExist) && !cfg.Engine.Shared() {
		if opened, err = os.MkdirTemp(env.tempOf(dir), ".rouse-"); err != nil {
			return nil, err
		}
		forget = func() { _ = os.RemoveAll(opened) } // remove the empty substitute
	}
	d, err := daemon.Open(ctx, daemon.Options{Home: opened, Config: cfg, Problem: problem, Wanted: wanted, Logger: logging.Quiet()})
	if err != nil {
		forget()
		return nil, err
	}

	if why := d.ReadOnly(); why != nil {
		env.warn("read-only: " + text.OneLine(why.Error()))
	}
	return &session{Client: api.InProcess(d.Handler), home: dir, opened: opened, zone: d.Current().Config.Zone(), local: d, nodes: d.Nodes.WorkedOn(ctx), close: func() { d.Close(); forget() }}, nil //nolint:contextcheck // close must also work after Ctrl-C
}

// tempOf returns the parent folder for the substitute of a missing home. That is "" for the default
// or, if beside is set, the nearest existing folder above the home.
func (env *cli) tempOf(home string) string {
	if !env.beside {
		return ""
	}
	above := filepath.Dir(home)
	for _, err := os.Stat(above); errors.Is(err, fs.ErrNotExist) && above != filepath.Dir(above); _, err = os.Stat(above) {
		above = filepath.Dir(above)
	}
	return above
}

// get requests a path and decodes the response into v.
func (s *session) get(path string, query url.Values, v any) error {
	return s.Get(s.cmd.Context(), path, query, v)
}

// post sends body and decodes the response into v.
func (s *session) post(path string, body, v any) error { return s.Post(s.cmd.Context(), path, body, v) }

// show requests v and prints it, as JSON with --json.
func (s *session) show(path string, query url.Values, v any, print func() error) error {
	if err := s.get(path, query, v); err != nil {
		return err
	}
	return jsonOr(s.cmd, v, print)
}

// send posts body, decodes the response into v, and prints v, as JSON with --json.
func (s *session) send(path string, body, v any, print func() error) error {
	if err := s.post(path, body, v); err != nil {
		return err
	}
	return jsonOr(s.cmd, v, print)
}

// showing returns a RunE that requests a T and prints it. Arguments replace each %s in path.
func showing[T any](env *cli, path string, print func(s *session, v T) error) func(*cobra.Command, []string) error {
	return env.with(toRead, func(s *session, args []string) error {
		var v T
		return s.show(filled(path, args), nil, &v, func() error { return print(s, v) })
	})
}

// sending is like showing, but posts an empty object and prints the T in the response.
func sending[T any](env *cli, path string, print func(s *session, v T) error) func(*cobra.Command, []string) error {
	return env.with(toRead, func(s *session, args []string) error {
		var v T
		return s.send(filled(path, args), struct{}{}, &v, func() error { return print(s, v) })
	})
}

// queryOf returns a query of key and value pairs. It skips empty values.
func queryOf(pairs ...string) url.Values {
	q := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			q.Set(pair[0], pair[1])
		}
	}
	return q
}

func filled(path string, args []string) string {
	for _, arg := range args {
		path = strings.Replace(path, "%s", url.PathEscape(arg), 1)
	}
	return path
}
