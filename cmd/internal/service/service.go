// Package service has the daemon of a home run by the service manager of the user's session: systemd on Linux, launchd on
// macOS, the Task Scheduler on Windows. It begins when the user logs in and is started again when it fails.
//
// It is a service of the user and not of the machine, because the daemon acts as the user: with their files, their keyring and
// their desktop, where notices appear. Each home is a service of its own. What describes one to its manager is a text that is made here, for any system on any other, so
// that it can be shown before it is written and compared with what is there; kardianos/service brings it to systemd and launchd.
//
// Nothing is replaced that was changed since, unless its owner says so, and nothing that rouse has not written.
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

// Spec is a service: what is run, for which home, under which name. Paths are absolute.
type Spec struct {
	Name    string
	Program string
	Config  string
	Home    string
	Path    string        // the folders in which programs are looked up, as PATH
	Stop    time.Duration // how long the daemon may take to end
	User    string        // whose session it runs in, as the system writes it
}

// LogFile is where a daemon writes whose manager keeps no log.
func (s Spec) LogFile() string { return filepath.Join(s.Home, "service.log") }

// arguments are those of the program.
func (s Spec) arguments(logs bool) []string {
	out := []string{"serve", "--config", s.Config, "--home", s.Home}
	if logs {
		out = append(out, "--log-file", s.LogFile())
	}
	return out
}

// marker stands in what was written for a home. A hash, for a path may hold what would end a comment.
func (s Spec) marker() string { return writtenBy + " for home " + hash(s.Home) }

// writtenBy stands in all that was written.
const writtenBy = "Written by rouse service install"

func hash(home string) string {
	sum := sha256.Sum256([]byte(home))
	return hex.EncodeToString(sum[:6])
}

// nameForm is what every manager takes for a name.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// CheckName refuses what could not be the name of a service everywhere.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%q cannot be the name of a service; write up to 64 letters, digits, dots, - and _, of which the first is a letter or a digit", name)
	}
	return nil
}

// DefaultName is the name of the service of a home: rouse for the user's own, and one for each other.
func DefaultName(home, usual string) string {
	if home == usual {
		return "rouse"
	}

	// Named by the folder that it is in, where the home itself is named as most are.
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

// check refuses what could not be written down for a manager.
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

// Temporary says whether a program lies where it will not be found for long, as one that go run has built.
func Temporary(program string) bool {
	for _, dir := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if real, err := filepath.EvalSymlinks(dir); err == nil && (fspath.Within(program, real) || fspath.Within(program, dir)) {
			return true
		}
	}
	return strings.Contains(program, string(filepath.Separator)+"go-build")
}

// Manager runs services in the user's session.
type Manager interface {
	// Title names it in a sentence: "systemd".
	Title() string
	// File is where the description of a service lies.
	File(s Spec) (string, error)
	// Render is the description.
	Render(s Spec) (string, error)
	// Install writes a description where there is none, and has the service begin at each login. It does not start it now.
	Install(s Spec, text string) error
	// Uninstall takes the description away. It does not stop the service.
	Uninstall(s Spec) error
	Start(s Spec) error
	Stop(s Spec) error
	Restart(s Spec) error
	// State is how a service is doing. An error says that the manager cannot be asked.
	State(ctx context.Context, s Spec) (State, error)
	// Logs shows what the daemon has said.
	Logs(ctx context.Context, s Spec, o LogOptions) error
	// Environment are the variables that a service is given; nil where it has those of its user.
	Environment(ctx context.Context) (map[string]string, error)
	// Hints are what its owner should know of such services.
	Hints(s Spec) []string
}

// State is how a service is doing, as its manager sees it.
type State struct {
	Known    bool   // the manager knows it
	Enabled  bool   // it begins when its user logs in
	Running  bool   // there is a process, or one is about to be started
	Text     string // in the manager's words: "active (running)"
	PID      int
	Since    time.Time // of the state; zero: not known
	Restarts int       // how often it was started again after it failed, since it was last started
	Says     string    // what the daemon has told its manager of itself
}

// LogOptions say which part of a log is shown, and where.
type LogOptions struct {
	Lines    int // the last so many
	Follow   bool
	Out, Err io.Writer
}

// For is the manager of a system, by its name in Go.
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
