package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rouse/agentdb/pool"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/backup"
	"rouse/cmd/internal/plan"
	"rouse/internal/atomicfile"
	"rouse/internal/ledger/store"
	"rouse/internal/text"
)

// checkClones reports the disk space of the private clones of runs. It returns nil if there are no
// clones.
func (d *Checker) checkClones() []api.Check {
	used, err := d.Runner.Clones().Usage()
	waiting, listed := d.Runner.Clones().Waiting()
	if err := errors.Join(err, listed); err != nil {
		return []api.Check{Failed("checkouts", err.Error(), "look at the folder checkouts of the home")}
	}
	if len(used.Runs) == 0 && used.Mirrors == 0 {
		return nil
	}
	return []api.Check{Passed("checkouts", fmt.Sprintf("%s of %s, and %s of mirrors; waiting to be applied or discarded: %d",
		text.Size(used.Clones()), text.Plural(len(used.Runs), "clone"), text.Size(used.Mirrors), len(waiting)))}
}

// checkDatabases reports damaged databases of agents. It does not open them.
func (d *Checker) checkDatabases(s *plan.Setup) api.Check {
	var bad, remedies []string
	for _, agent := range s.AgentNames() {
		err := d.Pool.Quarantined(agent)
		var damaged *pool.QuarantinedError
		switch {
		case errors.As(err, &damaged):
			bad = append(bad, fmt.Sprintf("that of %s cannot be used: %s", agent, damaged.Reason))
			remedies = append(remedies, damaged.Remedy())
		case err != nil:
			bad = append(bad, err.Error())
		}
	}
	if len(bad) > 0 {
		return Failed("databases", strings.Join(bad, "; "), strings.Join(remedies, "; "))
	}
	return Passed("databases", "nothing is known against any")
}

// checkHome checks that files in the home can be written and synced, like the ledger. This finds
// wrong permissions, exceeded quotas, and full or failing disks.
func (d *Checker) checkHome() api.Check {
	if err := tryDisk(d.Home); err != nil {
		return Failed("home", err.Error(), "free some space, or check the permissions of "+d.Home+" and the health of its disk (the system's log has its errors)")
	}
	return Passed("home", d.Home+" can be written, and what is written reaches the disk")
}

// tryDisk writes a file into dir and syncs it to disk.
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

// LedgerProblem returns why the ledger cannot be written, or an empty string.
func (d *Checker) LedgerProblem() string {
	if err := d.Ledger.ReadOnly(); err != nil {
		return err.Error()
	}
	if since, err := d.Ledger.WritesFail(); err != nil {
		return fmt.Sprintf("nothing could be written to the ledger since %s: %v", api.LocalTime(since, d.zone()), err)
	}
	return d.Ledger.DiskFull()
}

// checkLedger checks that the ledger can be written, and reports its last backup.
func (d *Checker) checkLedger(ctx context.Context) api.Check {
	const blocks = "see the message; nothing runs that cannot be recorded"
	if problem := d.LedgerProblem(); problem != "" {
		return Failed("ledger", problem, blocks)
	}
	if d.Nodes != nil {
		if err := d.Ledger.Touch(ctx); err != nil {
			return Failed("ledger", err.Error(), blocks)
		}
		return Passed("ledger", "PostgreSQL, "+d.LedgerAddress+", takes what is written; back it up with pg_dump")
	}

	state, err := d.Ledger.FileState(ctx)
	if err != nil {
		return Failed("ledger", err.Error(), "see the message; rouse ledger shows the same")
	}
	said := fmt.Sprintf("%s, %s", filepath.Base(state.Path), text.Size(state.Bytes))
	all, err := d.Ledger.Backups()
	if err != nil {
		return Failed("ledger", said+"; "+err.Error(), seeMessage)
	}
	said += "; " + lastBackup(all, d.zone())
	if problem := d.BackupProblem(); problem != nil {
		return Failed("ledger", fmt.Sprintf("%s; the daily backup failed: %v", said, problem), "see the message; it is tried again every six hours, and with: rouse ledger backup")
	}
	return Passed("ledger", said)
}

func lastBackup(all []store.Backup, zone *time.Location) string {
	for _, b := range all {
		if !strings.HasSuffix(b.Name, "-replaced") {
			return "last backup " + api.LocalTime(b.At, zone)
		}
	}
	return "no backup yet; a daemon makes one each day"
}

// checkBackup reports the last backup of the home, and the backup that the home was restored from.
func (d *Checker) checkBackup() api.Check {
	c := Passed("backup", "the whole home was not backed up yet; to a folder on another disk: rouse backup DIR")
	n, ok := backup.ReadNote(d.Home, backup.LastFile)
	if ok && n.Path != "" {
		c.Detail = fmt.Sprintf("the whole home was backed up at %s to %s (%s)", api.LocalTime(n.At, d.zone()), n.Path, text.Size(n.Bytes))
	}
	if n.Error != "" {
		c = Failed(c.Name, fmt.Sprintf("the backup of the whole home at %s failed: %s; %s", api.LocalTime(n.FailedAt, d.zone()), n.Error, c.Detail), "see the message, and say it again: rouse backup DIR")
	}
	if n, ok := backup.ReadNote(d.Home, backup.RestoredFile); ok {
		c.Detail += "; " + restoredNote(n, d.zone())
	}
	return c
}

// RestoredNote describes the backup that the home was restored from. It returns "" after a week.
func (d *Checker) RestoredNote() string {
	n, ok := backup.ReadNote(d.Home, backup.RestoredFile)
	if !ok || time.Since(n.At) > 7*24*time.Hour {
		return ""
	}
	return restoredNote(n, d.zone())
}

// restoredNote describes the backup that a home was restored from.
func restoredNote(n backup.Note, zone *time.Location) string {
	return fmt.Sprintf("restored at %s from %s, as the home %s was at %s", api.LocalTime(n.At, zone), n.Path, n.From, api.LocalTime(n.Of, zone))
}

// checkModes returns a failed check if other users can read files of the home.
func (d *Checker) checkModes() api.Check {
	paths, err := d.OpenToOthers()
	switch {
	case err != nil:
		return undone("modes", err)
	case len(paths) > 0:
		return Failed("modes", "open to other users by their modes: "+text.List(paths, maxListed), "rouse doctor --fix")
	}
	return Passed("modes", "nobody else can read or change what is kept in the home")
}
