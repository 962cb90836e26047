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
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/daemon"
	"rouse/internal/domain"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

// place says where a command works: which configuration, which home.
type place struct {
	config string
	home   string
	reads  bool      // the command creates no home
	beside bool      // the substitute for a missing home must be on the same disk
	stderr io.Writer // for what concerns every command; nil: nobody hears it
	broken error     // error of the configuration, for a command that only needs the home
}

// load reads the configuration, wherever it is found. The error lists every problem; a secret that is missing is none.
func (at *place) load() (*config.Config, error) { return at.read(daemon.Load) }

// check is load for which a missing secret is a problem, too.
func (at *place) check() (*config.Config, error) { return at.read(daemon.Check) }

func (at *place) read(load func(path, home string) (*config.Config, error)) (*config.Config, error) {
	path, err := config.Find(at.config, os.Getenv)
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

	path, err := config.Find(at.config, os.Getenv)
	if err != nil {
		if at.config != "" || !errors.Is(err, config.ErrNoFile) {
			return "", err
		}
		return config.DefaultHome(os.Getenv)
	}

	return config.Home(path, os.Getenv)
}

// session is a command's connection: to the process that answers on the home's socket or, where none
// does, to the same API in this process, which then holds the home.
type session struct {
	*api.Client
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

// since parses a flag for a time in the past. It returns the zero time for "".
func (s *session) since(flag, written string) (time.Time, error) {
	if written == "" {
		return time.Time{}, nil
	}
	w, err := schedule.ParseTime(written, time.Now(), s.zone, false)
	if err != nil {
		return w.At, usagef("%s: %w", flag, err)
	}
	return w.At, nil
}

// mark is outcomeMark, but that a run which nobody executes is not said to run: its process was killed.
func (s *session) mark(r api.Run) string {
	if r.State == domain.StateRunning && !s.executes(r) {
		return "⚡ cut off"
	}
	return outcomeMark(r)
}

// sayNoDaemon says below some runs, where no daemon serves the home, that those which are open do not go on by
// themselves.
func (s *session) sayNoDaemon(w io.Writer, runs ...api.Run) error {
	if !slices.ContainsFunc(runs, func(r api.Run) bool { return r.State != domain.StateFinished && !s.executes(r) }) {
		return nil
	}
	return sayf(w, "no daemon serves %s, so nothing goes on by itself: rouse serve\n", s.home)
}

// open connects to the daemon, or to a command that executes a run, or opens the home when there is none.
func (at *place) open(ctx context.Context) (*session, error) { return at.connect(ctx, false) }

// openToRead is like open, but does not create a missing home. It is for commands that only read or only change existing data.
func (at *place) openToRead(ctx context.Context) (*session, error) {
	at.reads = true
	return at.connect(ctx, false)
}

// openToRun is open for a command that wants a run executed. A command that executes one of its own
// does not execute others, and is waited for.
func (at *place) openToRun(ctx context.Context) (*session, error) { return at.connect(ctx, true) }

func (at *place) connect(ctx context.Context, toRun bool) (s *session, err error) {
	dir, err := at.homeDir()
	if err != nil {
		return nil, err
	}

	err = daemon.WaitForHome(ctx, at.sayWaiting, func() (err error) {
		s, err = at.try(ctx, dir)
		if err == nil && toRun && !s.daemon && s.local == nil {
			s.Close() // or each try would leave a connection open
			return daemon.Held(dir)
		}
		return err
	})
	if held, ok := errors.AsType[*daemon.HeldError](err); ok {
		if unanswered, ok := held.Unanswered(); ok {
			return nil, unanswered
		}
	}
	return s, err
}

// sayWaiting says for whom a command waits.
func (at *place) sayWaiting(held *daemon.HeldError) {
	if at.stderr != nil {
		fmt.Fprintln(at.stderr, "rouse:", held.Waiting())
	}
}

// sayNoConfig says that a home was opened which no configuration names, unless its user did.
func (at *place) sayNoConfig(dir string) {
	if at.home == "" && at.stderr != nil {
		fmt.Fprintf(at.stderr, "rouse: no configuration was found here; this is what is in %s\n", dir)
	}
}

// warnConfig prints why the configuration on disk is not in use.
func (at *place) warnConfig(problem string) {
	if at.stderr != nil {
		fmt.Fprintln(at.stderr, "rouse:", problem)
	}
}

// warnBroken prints the first mistake of the configuration if the command ran without it.
func (at *place) warnBroken() {
	var wrong *config.Errors
	switch {
	case at.broken == nil:
	case errors.As(at.broken, &wrong) && len(wrong.Problems) > 0:
		at.warnConfig("the configuration has a mistake and was not used: " + text.OneLine(wrong.Problems[0].String()))
	default:
		at.warnConfig("the configuration cannot be read and was not used: " + text.OneLine(at.broken.Error()))
	}
}

// warnReadOnly says in a line why a command can only read.
func (at *place) warnReadOnly(why error) {
	if why != nil && at.stderr != nil {
		fmt.Fprintln(at.stderr, "rouse: read-only:", text.OneLine(why.Error()))
	}
}

func (at *place) try(ctx context.Context, dir string) (*session, error) {
	client, st, err := daemon.Connect(ctx, dir)
	if err == nil {
		client.OnConfigProblem(at.warnConfig)
		// Nothing to close: connections to another process end with this one.
		return &session{Client: client, home: dir, opened: dir, zone: loadZone(st.Zone), daemon: !st.Foreground, close: func() {}}, nil
	}
	if !errors.Is(err, api.ErrNoDaemon) {
		return nil, err
	}

	cfg, problem := at.load()
	// Without a configuration there is history to read at most, and nothing to make a home for.
	if errors.Is(problem, config.ErrNoFile) {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("there is no history at %s, and %w", dir, problem)
		}
		at.sayNoConfig(dir)
	}

	var wanted []config.SecretRef
	if problem != nil {
		if !errors.Is(problem, config.ErrNoFile) {
			at.broken = problem
		}
		if cfg != nil {
			wanted = cfg.SecretRefs()
		}
		// The secrets that it names go along all the same: doctor reports those that are not set.
		cfg = &config.Config{} // history can be read all the same
	}

	opened, forget := dir, func() {}
	if _, missing := os.Stat(dir); at.reads && errors.Is(missing, fs.ErrNotExist) && !cfg.Shared() {
		if opened, err = os.MkdirTemp(at.tempOf(dir), ".rouse-"); err != nil {
			return nil, err
		}
		forget = func() { _ = os.RemoveAll(opened) } // an empty home
	}
	d, err := daemon.Open(ctx, daemon.Options{Home: opened, Config: cfg, Problem: problem, Wanted: wanted, Logger: daemon.QuietLogger()})
	if err != nil {
		forget()
		return nil, err
	}

	at.warnReadOnly(d.ReadOnly())
	return &session{Client: api.InProcess(d.Handler), home: dir, opened: opened, zone: d.Current().Config.Zone(), local: d, nodes: d.WorkedOn(ctx), close: func() { d.Close(); forget() }}, nil //nolint:contextcheck // close also after Ctrl-C
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

// withSession returns a RunE that opens a session for f and closes it afterwards.
func withSession(open func(context.Context) (*session, error), f func(cmd *cobra.Command, args []string, s *session) error) func(*cobra.Command, []string) error {
	return verb(func(cmd *cobra.Command, args []string) error {
		s, err := open(cmd.Context())
		if err != nil {
			return err
		}
		defer s.close()
		return f(cmd, args, s)
	})
}

// fetch gets v. If asJSON is true, it also prints v and returns true.
func (s *session) fetch(cmd *cobra.Command, asJSON bool, path string, query url.Values, v any) (printed bool, err error) {
	if err := s.Get(cmd.Context(), path, query, v); err != nil || !asJSON {
		return false, err
	}
	return true, printJSON(cmd.OutOrStdout(), v)
}

// send posts body and reads the response into v. If asJSON is true, it also prints v and returns true.
func (s *session) send(cmd *cobra.Command, asJSON bool, path string, body, v any) (printed bool, err error) {
	if err := s.Post(cmd.Context(), path, body, v); err != nil || !asJSON {
		return false, err
	}
	return true, printJSON(cmd.OutOrStdout(), v)
}
