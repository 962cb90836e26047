// Package service runs the daemon of a home under the service manager of the user's session:
// systemd on Linux, launchd on macOS, the Task Scheduler on Windows. The daemon starts when the
// user logs in and is restarted if it fails.
//
// The daemon runs as a user service because it needs the user's files, keyring and desktop. Each
// home has its own service. This package generates the service descriptions itself, for every
// system on every system. They can therefore be shown before they are written and compared with the
// installed ones. kardianos/service passes them to systemd and launchd.
//
// A description that was changed is replaced only with the owner's consent. Files that rouse did
// not write are never replaced.
package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
	"time"
	"unicode"

	"rouse/internal/fspath"
)

// Spec describes a service. Paths are absolute.
type Spec struct {
	Name    string
	Program string
	Config  string
	Home    string
	Path    string        // value of PATH
	Stop    time.Duration // time the daemon may take to stop
	User    string        // user of the session, as the system writes the name
}

// LogFile returns the daemon's log file, for managers without a log.
func (s Spec) LogFile() string { return filepath.Join(s.Home, "service.log") }

// arguments returns the arguments of the program.
func (s Spec) arguments(logs bool) []string {
	out := []string{"serve", "--config", s.Config, "--home", s.Home}
	if logs {
		out = append(out, "--log-file", s.LogFile())
	}
	return out
}

// marker returns a text that identifies files written for this home. It contains a hash because a
// path could end a comment.
func (s Spec) marker() string { return writtenBy + " for home " + hash(s.Home) }

// writtenBy is the start of the marker in every file written by this package.
const writtenBy = "Written by rouse service install"

func hash(home string) string {
	sum := sha256.Sum256([]byte(home))
	return hex.EncodeToString(sum[:6])
}

// nameForm matches names that every manager accepts.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// CheckName returns an error if a name is not valid for every manager.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%q cannot be the name of a service; write up to 64 letters, digits, dots, - and _, of which the first is a letter or a digit", name)
	}
	return nil
}

// DefaultName returns the service name for a home: "rouse" for the user's default home, a unique
// name for others.
func DefaultName(home, usual string) string {
	if home == usual {
		return "rouse"
	}

	// If the home has a common name, use the name of its parent directory.
	base := filepath.Base(home)
	if plain := strings.TrimLeft(base, "."); plain == "rouse" || plain == "home" {
		base = filepath.Base(filepath.Dir(home))
	}
	base = strings.Trim(strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return unicode.ToLower(r)
		}
		return '-'
	}, base), "-")
	if len(base) > 24 {
		base = base[:24]
	}
	if base != "" {
		base += "-"
	}
	return "rouse-" + base + hash(home)[:6]
}

// check returns an error if the spec contains values that no manager can store.
func (s Spec) check() error {
	if err := CheckName(s.Name); err != nil {
		return err
	}
	for what, path := range map[string]string{"the program": s.Program, "the configuration": s.Config, "the home": s.Home} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%s needs a full path, not %q", what, path)
		}
		if strings.ContainsFunc(path, unicode.IsControl) {
			return fmt.Errorf("%s has a control character in its path (%q), which no service manager reads; rename it", what, path)
		}
	}
	return nil
}

// render returns the description of a service for its manager.
func render(s Spec, text string, data any) (string, error) {
	if err := s.check(); err != nil {
		return "", err
	}
	functions := template.FuncMap{"xml": escapeXML, "quote": quoteUnit, "seconds": func(d time.Duration) int { return int(d.Seconds()) }}
	t, err := template.New("service").Funcs(functions).Parse(text)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = t.Execute(&out, data)
	return out.String(), err
}

// Temporary reports whether a program is in a temporary place, like the programs built by go run.
func Temporary(program string) bool {
	for _, dir := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if real, err := filepath.EvalSymlinks(dir); err == nil && (fspath.Within(program, real) || fspath.Within(program, dir)) {
			return true
		}
	}
	return strings.Contains(program, string(filepath.Separator)+"go-build")
}

// Manager is the interface of a service manager of the user's session.
type Manager interface {
	// Title returns the manager's name for messages, such as "systemd".
	Title() string
	// File returns the path of a service's description.
	File(s Spec) (string, error)
	// Render returns the description of a service.
	Render(s Spec) (string, error)
	// Install writes a new description and enables the service at login. It does not start the
	// service.
	Install(s Spec, text string) error
	// Uninstall removes the description. It does not stop the service.
	Uninstall(s Spec) error
	Start(s Spec) error
	Stop(s Spec) error
	Restart(s Spec) error
	// State returns the state of a service. It returns an error if the manager cannot be queried.
	State(ctx context.Context, s Spec) (State, error)
	// Logs prints the daemon's log.
	Logs(ctx context.Context, s Spec, o LogOptions) error
	// Environment returns the variables services get. It returns nil if they get the user's
	// variables.
	Environment(ctx context.Context) (map[string]string, error)
	// Hints returns advice about services of this manager.
	Hints(s Spec) []string
}

// State is the state of a service as reported by its manager.
type State struct {
	Known    bool   // the manager knows the service
	Enabled  bool   // the service starts at login
	Running  bool   // a process exists or is about to be started
	Text     string // the manager's wording, such as "active (running)"
	PID      int
	Since    time.Time // time of the last state change; zero if unknown
	Restarts int       // automatic restarts since the last manual start
	Says     string    // status text the daemon reported to its manager
}

// LogOptions selects the part of a log to print.
type LogOptions struct {
	Lines    int // number of lines from the end
	Follow   bool
	Out, Err io.Writer
}

// For returns the manager of a system, named as in GOOS.
func For(system string) (Manager, error) {
	switch system {
	case "linux":
		return systemdManager{byLibrary{"linux-systemd"}}, nil
	case "darwin":
		return launchd{byLibrary{"darwin-launchd"}}, nil
	case "windows":
		return taskScheduler{}, nil
	}
	return nil, fmt.Errorf("services are for systemd, launchd and the Task Scheduler of Windows; on %s have your system run: rouse serve", system)
}
