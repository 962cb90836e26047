package daemon

import (
	"context"
	"strings"
	"time"

	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/secret"
)

// askSecretsEvery is how often the keyring is asked for secrets that are missing: nothing tells that it was opened.
const askSecretsEvery = 30 * time.Second

// restoreObstacles takes up what was known when the last process ended.
func (d *Daemon) restoreObstacles(ctx context.Context) error {
	known, err := d.ledger.OpenObstacles(ctx, "model")
	if err != nil {
		return err
	}

	why := map[string]string{}
	for _, o := range known {
		why[strings.TrimPrefix(o.Source, "model/")] = o.Text
	}
	d.runner.RestoreRefusals(why)
	return nil
}

// watchObstacles checks obstacles again and again, so that runs start when they are gone.
func (d *Daemon) watchObstacles(ctx context.Context, reconsider func()) error {
	var asked time.Time
	var looked *plan.Setup
	for {
		if now := d.Current(); now != looked {
			looked = now
			d.lookAhead(ctx, now)
		}
		cleared, rest := d.runner.LookAgain(ctx)
		if cleared {
			reconsider()
		}
		if time.Since(asked) >= askSecretsEvery {
			asked = time.Now()
			d.reloadForSecrets()
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
	}
}

// lookAhead finds out what takes a program, so that requests that start none can tell of it.
func (d *Daemon) lookAhead(ctx context.Context, s *plan.Setup) {
	d.TryConfinement(ctx)
	for i := range s.Config.Jobs {
		if ctx.Err() != nil {
			return
		}
		d.Obstacles(ctx, s, i)
	}
}

// reloadForSecrets has the configuration read again when a secret that it lacks can be had.
func (d *Daemon) reloadForSecrets() {
	held := d.Current().Config.Secrets.Held
	if len(held) == 0 {
		return
	}

	// A new store, because one remembers a keyring that did not answer.
	store, err := secret.New(secret.Options{Home: d.home.Dir})
	if err != nil {
		return // said where the configuration is read
	}
	for _, h := range held {
		if _, _, err := store.Get(h.Name); err == nil {
			d.Reloader.ReloadSoon()
			return
		}
	}
}
