package upkeep

import (
	"context"
	"strings"
	"time"

	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/secret"
)

// askSecretsEvery is the interval between reads of the keyring for missing secrets. The keyring
// does not signal when it is unlocked.
const askSecretsEvery = 30 * time.Second

// RestoreObstacles restores the obstacles that were recorded when the last process ended.
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

// WatchObstacles checks obstacles regularly, so that runs start when the obstacles are gone.
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

// lookAhead runs the checks that start a program. Requests then use the results without starting
// one.
func (k *Keeper) lookAhead(ctx context.Context, s *plan.Setup) {
	k.Checker.TryConfinement(ctx)
	for i := range s.Config.Jobs {
		if ctx.Err() != nil {
			return
		}
		k.Explainer.Obstacles(ctx, s, i)
	}
}

// reloadForSecrets requests a reload if a missing secret has become available.
func (k *Keeper) reloadForSecrets() {
	held := k.Setup().Config.Secrets.Held
	if len(held) == 0 {
		return
	}

	// Use a new store, because a store remembers a keyring that did not respond.
	store, err := secret.New(secret.Options{Home: k.Home})
	if err != nil {
		return // reported when the configuration is read
	}
	for _, h := range held {
		if _, _, err := store.Get(h.Name); err == nil {
			k.Reloader.ReloadSoon()
			return
		}
	}
}
