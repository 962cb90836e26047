package daemon

import (
	"context"
	"errors"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/doctor"
	"rouse/cmd/internal/homedir"
	"rouse/cmd/internal/notify"
)

// newChecker returns the checks of rouse doctor with the parts of this process.
func (d *Daemon) newChecker() *doctor.Checker {
	c := &doctor.Checker{
		Setup: d.Current, Home: d.home.Dir, Ledger: d.ledger, Runner: d.runner, Pool: d.databases, Notifier: d.notifier, Explainer: d.Explainer, Logger: d.log,
		Supervised: d.Supervised(), LedgerAddress: d.Nodes.Address,
		OpenToOthers: func() ([]string, error) { return homedir.OpenToOthers(d.home.Dir) }, OpenFiles: checkOpenFiles, Services: d.status.Checks,
		BackupProblem: d.upkeep.BackupProblem,
	}
	if d.Nodes.Shared() {
		c.Nodes = func(ctx context.Context) []api.Check {
			return []api.Check{d.Nodes.Check(ctx), d.Nodes.CheckValues(ctx)}
		}
	}
	return c
}

// canDeliver returns yes, no or unknown, depending on whether a channel can deliver now, and the
// reason.
func (d *Daemon) canDeliver(ctx context.Context, channel string) (can, why string) {
	switch err := d.notifier.CanDeliver(ctx, channel); {
	case err == nil:
		return "yes", ""
	case errors.Is(err, notify.ErrNotAsked):
		return "unknown", err.Error()
	default:
		return "no", err.Error()
	}
}
