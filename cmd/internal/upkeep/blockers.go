package upkeep

import (
	"context"
	"strings"
	"time"

	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/secret"
)

// askSecretsEvery is how often the keyring is asked for secrets that are missing: nothing tells that it was opened.
const askSecretsEvery = 30 * time.Second

// RestoreObstacles takes up what was known when the last process ended.
func (k *Keeper) RestoreObstacles(ctx context.Context) error {
	known, err := k.Ledger.OpenObstacles(ctx, "model")
	if err != nil {
		return err
	}

	why := map[string]string{}
	for _, o := range known {
		why[strings.TrimPrefix(o.Source, "model/")] = o.Text
	}
	k.Runner.Models.RestoreRefusals(why)
	return nil
}

// WatchObstacles checks obstacles again and again, so that runs start when they are gone.
func (k *Keeper) WatchObstacles(ctx context.Context, reconsider func()) error {
	var asked time.Time
	var looked *plan.Setup
	for {
		if now := k.Setup(); now != looked {
			looked = now
			k.lookAhead(ctx, now)
		}
		cleared, rest := k.Runner.Blockers.Recheck(ctx)
		if cleared {
			reconsider()
		}
		if time.Since(asked) >= askSecretsEvery {
			asked = time.Now()
			k.reloadForSecrets()
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
	}
}

// lookAhead finds out what takes a program, so that requests that start none can tell of it.
func (k *Keeper) lookAhead(ctx context.Context, s *plan.Setup) {
	k.Checker.TryConfinement(ctx)
	for i := range s.Config.Jobs {
		if ctx.Err() != nil {
			return
		}
		k.Explainer.Obstacles(ctx, s, i)
	}
}

// reloadForSecrets has the configuration read again when a secret that it lacks can be had.
func (k *Keeper) reloadForSecrets() {
	held := k.Setup().Config.Secrets.Held
	if len(held) == 0 {
		return
	}

	// A new store, because one remembers a keyring that did not answer.
	store, err := secret.New(secret.Options{Home: k.Home})
	if err != nil {
		return // said where the configuration is read
	}
	for _, h := range held {
		if _, _, err := store.Get(h.Name); err == nil {
			k.Reloader.ReloadSoon()
			return
		}
	}
}
