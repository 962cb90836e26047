package daemon

import (
	"context"
	"errors"
	"time"

	"rouse/cmd/internal/api"
)

// OpenWaiting opens a daemon. A command that works without one has the home for a moment, and
// so has one that was killed until the system has cleared it away: both are waited for. A
// daemon that answers is not.
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

// answers says whether a daemon is at work behind a socket. Of one that was killed the
// socket can still be reached for a moment.
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

// HomeWait is how long a command waits for another command to leave the home.
const HomeWait = 10 * time.Second
