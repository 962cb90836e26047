package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/internal/atomicfile"
	"rouse/internal/text"
)

// checkHome writes in the home as the ledger does: permissions, quotas, full and failing disks show in
// no other way.
func (d *Daemon) checkHome() api.Check {
	c := api.Check{Name: "home", OK: true, Detail: d.home.Dir + " can be written, and what is written reaches the disk"}
	if err := tryDisk(d.home.Dir); err != nil {
		c.OK, c.Detail, c.Remedy = false, err.Error(), "free some space, or check the permissions of "+d.home.Dir+" and the health of its disk (the system's log has its errors)"
	}
	return c
}

// tryDisk writes a file into a folder and forces it to the disk.
func tryDisk(dir string) (err error) {
	f, err := os.CreateTemp(dir, "doctor-*.tmp")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()

	if _, err := f.Write(make([]byte, 1<<16)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("what is written does not reach the disk: %w", err)
	}
	if err := atomicfile.SyncFolder(dir); err != nil {
		return fmt.Errorf("the names of new files do not reach the disk: %w", err)
	}

	return nil
}

// ledgerProblem says what keeps the ledger from being written, "" when nothing does.
func (d *Daemon) ledgerProblem() string {
	if err := d.ledger.ReadOnly(); err != nil {
		return err.Error()
	}
	if since, err := d.ledger.WritesFail(); err != nil {
		return fmt.Sprintf("nothing could be written to the ledger since %s: %v", api.LocalTime(since, d.Zone()), err)
	}
	return d.ledger.NoRoom()
}

// checkLedger says whether the ledger takes what is written, and whether it could be brought back.
func (d *Daemon) checkLedger(ctx context.Context) api.Check {
	c := api.Check{Name: "ledger", OK: true}
	if problem := d.ledgerProblem(); problem != "" {
		c.OK, c.Detail, c.Remedy = false, problem, "see the message; nothing runs that cannot be recorded"
		return c
	}

	if d.shared() {
		c.Detail = "PostgreSQL, " + d.nodes.address + ", takes what is written; back it up with pg_dump"
		if err := d.ledger.Touch(ctx); err != nil {
			c.OK, c.Detail, c.Remedy = false, err.Error(), "see the message; nothing runs that cannot be recorded"
		}
		return c
	}

	state, err := d.ledger.FileState(ctx)
	if err != nil {
		c.OK, c.Detail, c.Remedy = false, err.Error(), "see the message; rouse ledger shows the same"
		return c
	}
	c.Detail = fmt.Sprintf("%s, %s", filepath.Base(state.Path), text.Size(state.Bytes))

	all, err := d.ledger.Backups()
	if err != nil {
		c.OK, c.Detail, c.Remedy = false, c.Detail+"; "+err.Error(), "see the message"
		return c
	}
	c.Detail += "; " + lastBackup(all, d.Zone())

	if failed := d.backupProblem.Load(); failed != nil && *failed != nil {
		c.OK, c.Detail, c.Remedy = false, fmt.Sprintf("%s; the daily backup failed: %v", c.Detail, *failed), "see the message; it is tried again every six hours, and with: rouse ledger backup"
	}

	return c
}

func lastBackup(all []ledger.Backup, zone *time.Location) string {
	for _, b := range all {
		if !strings.HasSuffix(b.Name, "-replaced") {
			return "last backup " + api.LocalTime(b.At, zone)
		}
	}
	return "no backup yet; a daemon makes one each day"
}
