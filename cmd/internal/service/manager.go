package service

import (
	"context"
	"fmt"
	"io"
	"time"
)

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
