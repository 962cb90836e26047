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

// place says where a command works: which configuration, which home.
type place struct {
	config string
	home   string
	beside bool      // the substitute for a missing home must be on the same disk
	stderr io.Writer // for what concerns every command
	broken error     // error of the configuration, for a command that only needs the home
}

// load reads the configuration, wherever it is found. The error lists every problem; a secret that is missing is none.
func (at *place) load() (*config.Config, error) { return at.read(plan.Load) }

// check is load for which a missing secret is a problem, too.
func (at *place) check() (*config.Config, error) { return at.read(plan.Check) }

func (at *place) read(load func(path, home string) (*config.Config, error)) (*config.Config, error) {
	path, err := yaml.Find(at.config, os.Getenv)
	if err != nil {
		return nil, err
	}
	return load(path, at.home)
}

// homeDir is the home alone, for commands that need no more of the configuration: a
// mistake in a job does not keep its owner from the history.
func (at *place) homeDir() (string, error) {
	if at.home != "" {
		return filepath.Abs(at.home)
	}

	path, err := yaml.Find(at.config, os.Getenv)
	if err != nil {
		if at.config != "" || !errors.Is(err, yaml.ErrNoFile) {
			return "", err
		}
		return config.DefaultHome(os.Getenv)
	}

	return yaml.Home(path, os.Getenv)
}

// inHome returns a RunE that calls f with the home.
func (at *place) inHome(f func(cmd *cobra.Command, args []string, home string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		home, err := at.homeDir()
		if err != nil {
			return err
		}
		return f(cmd, args, home)
	}
}

// session is a command's connection: to the process that answers on the home's socket or, where none
// does, to the same API in this process, which then holds the home.
type session struct {
	*api.Client
	cmd    *cobra.Command
	out    io.Writer // standard output
	home   string
	zone   *time.Location // configured zone of times in input and output
	daemon bool           // a daemon answers, which works the queue
	local  *daemon.Daemon // this process holds the home; nil: another one does
	nodes  bool           // other nodes do runs of its ledger
	opened string         // path of the open home, or of an empty substitute if a read-only command found none
	close  func()
}

// executes says whether the process that holds the home executes a run: a daemon does so with all, a
// command with the one that is on.
func (s *session) executes(r api.Run) bool {
	return s.daemon || s.nodes || s.local == nil && r.State == domain.StateRunning
}

// missing reports whether the home does not exist yet.
func (s *session) missing() bool { return s.opened != s.home }

// now returns the current time in the configured zone.
func (s *session) now() time.Time { return time.Now().In(s.zone) }

// since returns the time of a flag, which lies in the past, as the API takes it, or "" for "".
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

// mark is outcomeMark, but that a run which nobody executes is not said to run: its process was killed.
func (s *session) mark(r api.Run) string {
	if r.State == domain.StateRunning && !s.executes(r) {
		return "⚡ cut off"
	}
	return outcomeMark(r)
}

// sayNoDaemon says below some runs that those which are open do not go on by themselves, if no daemon serves the home.
func (s *session) sayNoDaemon(runs ...api.Run) error {
	if !slices.ContainsFunc(runs, func(r api.Run) bool { return r.State != domain.StateFinished && !s.executes(r) }) {
		return nil
	}
	return sayf(s.out, "no daemon serves %s, so nothing goes on by itself: rouse serve\n", s.home)
}

// purpose is that for which a command opens a home.
type purpose int

const (
	toChange purpose = iota // and create it, if it is missing
	toRead                  // or to change existing data: a missing home is not created
	toRun                   // a run: wait for a command that executes another one, because it executes only its own
)

// open connects to the daemon, or to a command that executes a run, or opens the home if there is none.
func (at *place) open(cmd *cobra.Command, purpose purpose) (*session, error) {
	s, err := at.connect(cmd.Context(), purpose)
	if err != nil {
		return nil, err
	}
	s.cmd, s.out = cmd, cmd.OutOrStdout()
	return s, nil
}

// with returns a RunE that opens a session for f and closes it afterwards.
func (at *place) with(purpose purpose, f func(s *session, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := at.open(cmd, purpose)
		if err != nil {
			return err
		}
		defer s.close()
		return f(s, args)
	}
}

func (at *place) connect(ctx context.Context, purpose purpose) (s *session, err error) {
	dir, err := at.homeDir()
	if err != nil {
		return nil, err
	}

	err = homedir.Wait(ctx, at.sayWaiting, func() (err error) {
		s, err = at.try(ctx, dir, purpose)
		if err == nil && purpose == toRun && !s.daemon && s.local == nil {
			s.Close() // or each try would leave a connection open
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
func (at *place) warn(line string) {
	if at.stderr != nil { // as in a test
		fmt.Fprintln(at.stderr, "rouse:", line)
	}
}

// sayWaiting prints for whom a command waits.
func (at *place) sayWaiting(held *homedir.HeldError) { at.warn(held.Waiting()) }

// warnBroken prints the first mistake of the configuration if the command ran without it.
func (at *place) warnBroken() {
	var wrong *config.Errors
	switch {
	case at.broken == nil:
	case errors.As(at.broken, &wrong) && len(wrong.Problems) > 0:
		at.warn("the configuration has a mistake and was not used: " + text.OneLine(wrong.Problems[0].String()))
	default:
		at.warn("the configuration cannot be read and was not used: " + text.OneLine(at.broken.Error()))
	}
}

func (at *place) try(ctx context.Context, dir string, purpose purpose) (*session, error) {
	client, st, err := homedir.Connect(ctx, dir)
	if err == nil {
		client.OnConfigProblem(at.warn)
		// Nothing to close: connections to another process end with this one.
		return &session{Client: client, home: dir, opened: dir, zone: loadZone(st.Zone), daemon: !st.Foreground, close: func() {}}, nil
	}
	if !errors.Is(err, api.ErrNoDaemon) {
		return nil, err
	}

	cfg, problem := at.load()
	// Without a configuration there is history to read at most, and nothing to make a home for.
	if errors.Is(problem, yaml.ErrNoFile) {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("there is no history at %s, and %w", dir, problem)
		}
		if at.home == "" { // its user did not name it
			at.warn("no configuration was found here; this is what is in " + dir)
		}
	}

	var wanted []config.SecretRef
	if problem != nil {
		if !errors.Is(problem, yaml.ErrNoFile) {
			at.broken = problem
		}
		if cfg != nil {
			wanted = cfg.Secrets.Refs
		}
		// The secrets that it names go along all the same: doctor reports those that are not set.
		cfg = &config.Config{} // history can be read all the same
	}

	opened, forget := dir, func() {}
	if _, missing := os.Stat(dir); purpose == toRead && errors.Is(missing, fs.ErrNotExist) && !cfg.Engine.Shared() {
		if opened, err = os.MkdirTemp(at.tempOf(dir), ".rouse-"); err != nil {
			return nil, err
		}
		forget = func() { _ = os.RemoveAll(opened) } // an empty home
	}
	d, err := daemon.Open(ctx, daemon.Options{Home: opened, Config: cfg, Problem: problem, Wanted: wanted, Logger: logging.Quiet()})
	if err != nil {
		forget()
		return nil, err
	}

	if why := d.ReadOnly(); why != nil {
		at.warn("read-only: " + text.OneLine(why.Error()))
	}
	return &session{Client: api.InProcess(d.Handler), home: dir, opened: opened, zone: d.Current().Config.Zone(), local: d, nodes: d.Nodes.WorkedOn(ctx), close: func() { d.Close(); forget() }}, nil //nolint:contextcheck // close also after Ctrl-C
}

// tempOf returns the parent of the substitute for a missing home: "" for the default, else the nearest existing folder above the home.
func (at *place) tempOf(home string) string {
	if !at.beside {
		return ""
	}
	above := filepath.Dir(home)
	for _, err := os.Stat(above); errors.Is(err, fs.ErrNotExist) && above != filepath.Dir(above); _, err = os.Stat(above) {
		above = filepath.Dir(above)
	}
	return above
}

// get reads the answer of the API to a path into v.
func (s *session) get(path string, query url.Values, v any) error {
	return s.Get(s.cmd.Context(), path, query, v)
}

// post sends body, and reads the answer into v.
func (s *session) post(path string, body, v any) error { return s.Post(s.cmd.Context(), path, body, v) }

// show gets v, and prints it as JSON with --json, else with print.
func (s *session) show(path string, query url.Values, v any, print func() error) error {
	if err := s.get(path, query, v); err != nil {
		return err
	}
	return jsonOr(s.cmd, v, print)
}

// send posts body and reads the answer into v, which it prints as JSON with --json, else with print.
func (s *session) send(path string, body, v any, print func() error) error {
	if err := s.post(path, body, v); err != nil {
		return err
	}
	return jsonOr(s.cmd, v, print)
}

// showing returns a RunE that gets a T and prints it. Each %s in path is an argument of the command.
func showing[T any](at *place, path string, print func(s *session, v T) error) func(*cobra.Command, []string) error {
	return at.with(toRead, func(s *session, args []string) error {
		var v T
		return s.show(filled(path, args), nil, &v, func() error { return print(s, v) })
	})
}

// sending returns a RunE that posts nothing to a path and prints the T in the answer. Each %s in path is an argument of the command.
func sending[T any](at *place, path string, print func(s *session, v T) error) func(*cobra.Command, []string) error {
	return at.with(toRead, func(s *session, args []string) error {
		var v T
		return s.send(filled(path, args), struct{}{}, &v, func() error { return print(s, v) })
	})
}

// queryOf returns the query of pairs of keys and values, without the empty ones.
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
