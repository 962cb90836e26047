package daemon

import (
	"context"
	"fmt"
	"os"

	"rouse/cmd/internal/api"
)

// Status implements web.Host.
func (d *Daemon) Status(ctx context.Context) (api.Status, error) {
	c, err := d.ledger.Counts(ctx)
	st := api.Status{PID: os.Getpid(), Version: Version(), Home: d.home.Dir, StartedAt: api.At(d.startedAt), Ready: d.ready.Load(),
		Queued: c.Queued, Running: c.Running, Waiting: c.Waiting}
	now := d.Current()
	if files := now.Config.Files; len(files) > 0 {
		st.Config = files[0]
	}

	st.ConfigAt, st.ConfigProblems, st.ConfigRestart = api.At(now.at), []api.Problem{}, list(now.restart)
	// A command reads the configuration afresh, so it has no older one in force to report on.
	if d.reloads != nil {
		st.ConfigProblems = append(st.ConfigProblems, d.reloads.problemsOnDisk()...)
	}

	return st, err
}

// Notify implements web.Host.
func (d *Daemon) Notify(ctx context.Context, channel, text string) error {
	if err := d.notifier.Send(ctx, channel, "rouse", text); err != nil {
		return &api.Error{Status: 502, Message: fmt.Sprintf("channel %s: %v", channel, err)}
	}
	return nil
}
