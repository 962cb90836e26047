package homedir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/service"
)

const (
	// homeWait is how long a process waits for a command that holds the home. Commands are short.
	homeWait = 10 * time.Second
	// connectWait is the timeout for the first response of a daemon, which may be starting.
	connectWait = 10 * time.Second
	// retryWait is how long a command tries to reach a daemon that left its socket file. A service
	// manager may be restarting the daemon.
	retryWait = 2 * time.Second
	// sayWaitAfter is how long a process waits before it reports that it is waiting.
	sayWaitAfter = time.Second
)

// Wait calls try until it does not return a *HeldError, for at most homeWait. It calls say once if
// the wait is long.
func Wait(ctx context.Context, say func(*HeldError), try func() error) error {
	began, said := time.Now(), false
	for {
		err := try()
		var held *HeldError
		waited := time.Since(began)
		if !errors.As(err, &held) || waited > homeWait {
			return err
		}
		if waited > sayWaitAfter && !said {
			said = true
			say(held)
		}

		// Another command holds the home, a daemon is starting, or a killed process is still
		// exiting.
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ServedError is returned if a daemon serves the home, so that waiting makes no sense.
type ServedError struct{ Held error }

func (e *ServedError) Error() string { return e.Held.Error() }

// Answers reports whether a daemon answers on the socket of a home.
func Answers(ctx context.Context, home string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client, err := ConnectDaemon(ctx, home)
	if err != nil {
		return false
	}
	client.Close()
	return true
}

// Connect returns a client of the process that serves a home, and the status of the process. The
// process is a daemon, or a command that executes a run (Foreground). If no process serves the
// home, Connect returns api.ErrNoDaemon.
//
// If the home has a service, a socket file without a process means that the daemon was killed or is
// restarting. Connect then retries for retryWait. If the daemon does not return, it removes the
// file.
func Connect(ctx context.Context, home string) (*api.Client, api.Status, error) {
	for began := time.Now(); ; {
		client, st, err := connect(ctx, home)
		if !errors.Is(err, api.ErrNoDaemon) || errors.Is(err, fs.ErrNotExist) {
			return client, st, err
		}
		if installed, _ := service.Recorded(home); installed.Name == "" {
			return client, st, err
		}
		if time.Since(began) > retryWait {
			removeStaleSocket(home)
			return nil, st, err
		}

		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, st, context.Cause(ctx)
		}
	}
}

// removeStaleSocket removes the socket file of a home that no process holds. It ignores errors.
func removeStaleSocket(home string) {
	lock := flock.New(filepath.Join(home, "lock"), flock.SetPermissions(0o600))
	if locked, err := lock.TryLock(); locked && err == nil {
		_ = os.Remove(SocketPath(home))
		_ = lock.Close()
	}
}

// connect tries once to connect.
func connect(ctx context.Context, home string) (*api.Client, api.Status, error) {
	var st api.Status
	client, err := api.Dial(ctx, SocketPath(home))
	if err != nil {
		return nil, st, err
	}

	// Ask immediately, because the socket of a killed or exiting process may still accept
	// connections for a moment.
	asking, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	err = client.Get(asking, "/v1/status", nil, &st)
	var answer *api.Error
	if err != nil && !errors.As(err, &answer) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", api.ErrNoDaemon, err)
	}
	return client, st, err
}

// ConnectDaemon works like Connect, but returns api.ErrNoDaemon if the process is not a daemon.
func ConnectDaemon(ctx context.Context, home string) (*api.Client, error) {
	client, st, err := Connect(ctx, home)
	if err == nil && st.Foreground {
		client.Close()
		return nil, api.ErrNoDaemon
	}
	return client, err
}
