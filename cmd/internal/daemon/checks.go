package daemon

import (
	"context"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/doctor"
)

// newChecker gives the checks of rouse doctor the parts of this process.
func (d *Daemon) newChecker() *doctor.Checker {
	c := &doctor.Checker{
		Setup: d.Current, Home: d.home.Dir, Ledger: d.ledger, Runner: d.runner, Pool: d.databases, Notifier: d.notifier, Explainer: d.Explainer, Logger: d.log,
		Supervised: d.Supervised(), LedgerAddress: d.nodes.address,
		OpenToOthers: func() ([]string, error) { return OpenToOthers(d.home.Dir) }, OpenFiles: checkOpenFiles, Services: d.checkServices,
		BackupProblem: func() error {
			if problem := d.backupProblem.Load(); problem != nil {
				return *problem
			}
			return nil
		},
	}
	if d.shared() {
		c.Nodes = func(ctx context.Context) []api.Check { return []api.Check{d.checkNodes(ctx), d.checkValues(ctx)} }
	}
	return c
}

// checkServices checks the services that only a daemon has.
func (d *Daemon) checkServices() (out []api.Check) {
	if d.reloads != nil {
		out = append(out, d.checkDashboard())
		if beats := d.heartbeatState(); beats != nil {
			out = append(out, checkHeartbeat(beats, d.Zone()))
		}
		if is := d.replicaState(); is != nil {
			out = append(out, checkReplica(is, d.Zone()))
		}
	}
	if d.traces != nil {
		out = append(out, d.checkTraces())
	}
	return out
}
