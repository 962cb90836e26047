package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/backup"
	"rouse/cmd/internal/replicate"
	"rouse/cmd/internal/replicate/target"
	"rouse/internal/owner"
	"rouse/internal/text"
)

// openReplicator follows the home's databases from here on, for the continuous copies of the configuration.
func (d *Daemon) openReplicator(ctx context.Context) error {
	wanted := d.Current().Config.Replicate
	t, err := target.Parse(wanted.To)
	if err != nil {
		return fmt.Errorf("replicate.to %w", err)
	}
	store, err := t.Open(target.Keys{Access: wanted.AccessKey, Secret: wanted.SecretKey})
	if err != nil {
		return err
	}
	o := replicate.Options{Home: d.home.Dir, Ledger: d.ledger, Databases: d.databases, Store: store, To: t.String(), Keep: time.Duration(wanted.Keep), Logger: d.log,
		Configs: func() ([]backup.Config, error) { return d.configsToCopy(false) },
		Info: func(ctx context.Context) (backup.Info, error) {
			newest, err := d.ledger.NewestRun(ctx)
			return d.backupInfo(time.Now(), newest), err
		}}
	if t.Folder != "" {
		o.Allowed = func() error { return d.checkReplicaFolder(t.Folder) }
	}
	d.replicator, err = replicate.New(ctx, o)
	return err
}

// checkReplicaFolder refuses a folder that is not there, or that somebody else could write: a restore would believe what is there.
func (d *Daemon) checkReplicaFolder(folder string) error {
	var bad *api.Error
	if err := d.checkDest(folder); errors.As(err, &bad) {
		return errors.New(bad.Message)
	}
	if why := owner.WritableByOthers(folder); why != "" {
		return fmt.Errorf("no copies are kept in %s, because it %s, and a restore would believe what is there; %s", folder, why, owner.Chmod(folder))
	}
	return nil
}

// replicaState is how far the continuous copies are; nil where there are none.
func (d *Daemon) replicaState() *api.Replica {
	if d.replicator == nil {
		return nil
	}
	is := d.replicator.State()
	return &api.Replica{To: is.To, LastSuccess: api.At(is.LastSuccess), BehindSeconds: is.Behind.Seconds(), Databases: is.Waiting, Bytes: is.Bytes, Problem: d.runner.Redact(is.Problem), Unusable: list(is.Unusable)}
}

// lateAfter is how far the copies may be behind before that is worth a word.
const lateAfter = time.Minute

// checkReplica says how far the continuous copies are.
func checkReplica(is *api.Replica, zone *time.Location) api.Check {
	behind := time.Duration(is.BehindSeconds * float64(time.Second))
	c := api.Check{Name: "replica", OK: is.Problem == "" && behind < lateAfter && len(is.Unusable) == 0, Detail: "the home is being copied to " + is.To + " for the first time since rouse was started"}
	if !is.LastSuccess.IsZero() {
		c.Detail = fmt.Sprintf("copied to %s last at %s", is.To, api.LocalTime(is.LastSuccess.Time, zone))
	}
	if is.Databases > 0 {
		c.Detail += fmt.Sprintf(", %s behind (%s with something that is not copied, logs of %s)", behind.Round(time.Second), text.Plural(is.Databases, "database"), text.Size(is.Bytes))
	} else {
		c.Detail += ", nothing is behind"
	}
	if len(is.Unusable) > 0 {
		c.Detail += "; not copied, because it is quarantined: the database of " + strings.Join(is.Unusable, ", ")
		c.Remedy = "see what is said of the databases"
	}
	if is.Problem != "" {
		c.Detail += "; " + is.Problem
		c.Remedy = "see the message; it is tried again by itself, at least each minute, and runs go on meanwhile"
	}
	return c
}
