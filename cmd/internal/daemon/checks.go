package daemon

import (
	"context"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/doctor"
	"rouse/cmd/internal/homedir"
)

// newChecker gives the checks of rouse doctor the parts of this process.
func (d *Daemon) newChecker() *doctor.Checker {
	c := &doctor.Checker{
		Setup: d.Current, Home: d.home.Dir, Ledger: d.ledger, Runner: d.runner, Pool: d.databases, Notifier: d.notifier, Explainer: d.Explainer, Logger: d.log,
		Supervised: d.Supervised(), LedgerAddress: d.Nodes.Address,
		OpenToOthers: func() ([]string, error) { return homedir.OpenToOthers(d.home.Dir) }, OpenFiles: checkOpenFiles, Services: d.checkServices,
		BackupProblem: func() error {
			if problem := d.backupProblem.Load(); problem != nil {
				return *problem
			}
			return nil
		},
	}
	if d.Nodes.Shared() {
		c.Nodes = func(ctx context.Context) []api.Check {
			return []api.Check{d.Nodes.Check(ctx), d.Nodes.CheckValues(ctx)}
		}
	}
	return c
}

// checkServices checks the services that only a daemon has.
func (d *Daemon) checkServices() (out []api.Check) {
	if d.Reloader != nil {
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
