package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"rouse/cmd/internal/cluster"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/homedir"
	"rouse/internal/ledger"
	"rouse/internal/ledger/store"
	"rouse/scheduler/dispatch/river"
)

// openEngine connects to River, which distributes the runs of a shared ledger to processes.
func (d *Daemon) openEngine(ctx context.Context) (err error) {
	if !d.Nodes.Shared() {
		return nil
	}
	if d.jobs, err = cluster.ConnectRiver(ctx, d.Current().Config.Engine.Postgres, d.Nodes.Name); err != nil {
		return err
	}
	d.dispatcher.Engine = river.New(river.Options{Ledger: d.ledger, Pool: d.jobs, Logger: d.log})
	return nil
}

// openShared opens the ledger in PostgreSQL.
func (d *Daemon) openShared(ctx context.Context, o Options) error {
	if d.home.ReadOnly != nil {
		return store.CannotWrite(d.home.Dir, d.home.ReadOnly)
	}

	known := homedir.NodeOf(d.home.Dir) // commands use the name of the last daemon in this home
	node, err := cmp.Or(o.Node, o.Config.Node, known), error(nil)
	if node == "" {
		node, err = o.Config.NodeName()
	} else {
		err = config.CheckNodeName(node)
	}
	if err != nil {
		return err
	}

	if d.ledger, d.db, err = cluster.Open(ctx, o.Config.Engine, node, o.Serves, ledger.Options{Now: o.Now, Logger: d.log}); err != nil {
		return err
	}
	d.Nodes.Name, d.Nodes.Address = node, cluster.WithoutPassword(o.Config.Engine.Postgres)
	return homedir.RememberEngine(d.home.Dir, d.Nodes.Address, node, o.Serves)
}

// openLedger opens the ledger. Only a command can open one that is read-only or damaged.
func (d *Daemon) openLedger(ctx context.Context, opening Options) (err error) {
	if opening.Config.Engine.Shared() {
		return d.openShared(ctx, opening)
	}

	o := homedir.LedgerOptions(d.home.Dir)
	o.Logger, o.Now = d.log, opening.Now

	var why *ledger.ReadOnlyError
	if d.home.ReadOnly != nil {
		err = store.CannotWrite(d.home.Dir, d.home.ReadOnly)
	} else {
		d.ledger, err = ledger.Open(ctx, o)
	}
	if errors.As(err, &why) && !opening.Serves {
		d.ledger, err = ledger.OpenReadOnly(ctx, o, why)
	}
	if err != nil {
		return fmt.Errorf("the history cannot be opened: %w", err)
	}

	return nil
}
