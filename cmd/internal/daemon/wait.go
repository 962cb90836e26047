package daemon

import (
	"context"
	"errors"
	"time"

	"rouse/cmd/internal/api"
)

// OpenWaiting opens a daemon, and waits while the home is held by a command, which is short, or by
// a process that was killed and that the system has not cleared away yet. It does not wait for a
// daemon that answers.
func OpenWaiting(ctx context.Context, o Options) (*Daemon, error) {
	for deadline := time.Now().Add(HomeWait); ; {
		d, err := Open(ctx, o)
		var held *HeldError
		if !errors.As(err, &held) || time.Now().After(deadline) {
			return d, err
		}
		if answers(ctx, SocketPath(o.Home)) {
			return nil, err
		}

		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// answers says whether a daemon answers on a socket. It asks for the status, because the socket of
// a killed daemon can still be reached for a moment.
func answers(ctx context.Context, socket string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()

	client, err := api.Dial(ctx, socket)
	if err != nil {
		return false
	}

	err = client.Get(ctx, "/v1/status", nil, &api.Status{})
	return err == nil
}

// HomeWait is how long a command waits for another command to release the home.
const HomeWait = 10 * time.Second
