package agentdb_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/pool"
	"rouse/agentdb/transfer"
)

// TestFullAndReadOnlyDisks runs itself again in a separate mount namespace, with a small disk in
// memory that it can fill and make read-only.
func TestFullAndReadOnlyDisks(t *testing.T) {
	if dir := os.Getenv("ROUSE_TEST_DISK"); dir != "" {
		t.Run("full", func(t *testing.T) { fullDisk(t, dir) })
		return
	}

	dir := t.TempDir()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullAndReadOnlyDisks$", "-test.v")
	child.Env = append(os.Environ(), "ROUSE_TEST_DISK="+dir)
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}

	out, err := child.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || strings.Contains(string(out), "no disk of its own") {
		t.Skipf("this machine does not let a test mount anything: %v %s", err, out)
	}

	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// fill uses up the free space of a disk.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}

	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}

	f.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}

	return func() { os.Remove(path) }
}

func fullDisk(t *testing.T, dir string) {
	if err := errors.Join(syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""), syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=6m")); err != nil {
		t.Skipf("no disk of its own: %v", err)
	}

	p := newPool(t, pool.Options{Dir: dir, Backups: agentdb.KeepBackups})
	db, release, err := p.Get(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}

	expenses(t, db)
	var csv strings.Builder
	csv.WriteString("category,amount,note\n")
	for i := range 5000 {
		fmt.Fprintf(&csv, "c,%d.5,%s\n", i, strings.Repeat("n", 50))
	}

	if _, err := db.Import(t.Context(), changelog.By{Run: 2}, transfer.ImportSpec{Table: "expenses", Name: "f.csv", Source: strings.NewReader(csv.String())}); err != nil {
		t.Fatal(err)
	}

	release() // and closed, so that no background work frees space
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}

	p = newPool(t, pool.Options{Dir: dir, Backups: agentdb.KeepBackups})
	if db, release, err = p.Get(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}

	want := ask(t, db, "select count(*), sum(amount) from expenses")
	same := func(what string) {
		t.Helper()
		if got := ask(t, db, "select count(*), sum(amount) from expenses"); got != want {
			t.Errorf("after %s: %s, want %s", what, got, want)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "ann", "*", "*.partial")); err != nil || len(left) > 0 {
			t.Errorf("%s left %v %v", what, left, err)
		}
	}

	says := func(what string, err error, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want %q", what, err, part)
			}
		}
		same(what)
	}

	kept := backup(t, db, agentdb.BackupSpec{})
	empty := fill(t, dir)
	_, err = db.Backups.Make(t.Context(), agentdb.BackupSpec{})
	says("a backup on a full disk", err, "free some space there")
	_, err = db.Undo(t.Context(), changelog.By{}, changelog.UndoSpec{Run: 2})
	says("an undo on a full disk", err, "the disk is full, so nothing was written")
	_, err = db.Migrate(t.Context(), changelog.By{Run: 3}, agentdb.MigrateSpec{Up: "alter table expenses add column x", Down: "select 1", Description: "d"})
	says("a migration on a full disk", err, "the schema was left as it is", "free some space there")
	release()
	if _, err := p.Recovery.Restore(t.Context(), "ann", pool.RestoreSpec{From: kept.Name}); err == nil || !strings.Contains(err.Error(), "free some space there") {
		t.Errorf("a restore on a full disk: %v", err)
	}
	if db, release, err = p.Get(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}

	same("a restore on a full disk")
	empty()
	backup(t, db, agentdb.BackupSpec{})
	if out := undo(t, db, changelog.UndoSpec{Run: 2}); !out.Done {
		t.Errorf("%+v", out)
	}

	want = "[[0,null]]"
	same("an undo with room")
	for range 3 { // more than fits
		csv.WriteString(strings.TrimPrefix(csv.String(), "category,amount,note\n"))
	}

	tooMuch := func(agent string, db *agentdb.DB) {
		t.Helper()
		_, err := db.Import(t.Context(), changelog.By{Run: 4}, transfer.ImportSpec{Table: "expenses", Name: "f.csv", Source: strings.NewReader(csv.String())})
		says("an import that does not fit", err, "the disk is full, so nothing was written")
		if info, err := os.Stat(filepath.Join(dir, agent, "db.sqlite-wal")); err == nil && info.Size() > 0 {
			t.Errorf("what was not written into the database of %s keeps %d bytes", agent, info.Size())
		}
	}

	tooMuch("ann", db)
	young, releaseYoung, err := p.Get(t.Context(), "bob") // all its data is in the WAL
	if err != nil {
		t.Fatal(err)
	}

	expenses(t, young)
	tooMuch("bob", young)
	releaseYoung()

	release()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}

	// Opening on a read-only disk returns an error, and the database is intact afterwards.
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}

	p = newPool(t, pool.Options{Dir: dir})
	if _, _, err := p.Get(t.Context(), "ann"); err == nil || !strings.Contains(err.Error(), "read only") {
		t.Errorf("a disk that is read only: %v", err)
	}
	if _, err := p.Recovery.Restore(t.Context(), "ann", pool.RestoreSpec{From: kept.Name}); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a restore on a disk that is read only: %v", err)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size=6m"); err != nil {
		t.Fatal(err)
	}

	db = lent(t, p, "ann")
	same("a disk that was read only")
}
