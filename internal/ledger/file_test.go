package ledger_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/maint"
	"rouse/internal/ledger/runs"
	"rouse/internal/ledger/store"
	"rouse/internal/storage/dbfile"
	"rouse/internal/storage/sqlite"
)

// filled creates a ledger with runs and events in many pages, large values and free pages, and
// closes it.
func filled(t testing.TB, runs int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "ledger.db")
	l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}

	for i := range runs {
		if _, err := l.Enqueue(t.Context(), ledger.Request{Job: fmt.Sprint("j", i%7), Agent: "a", Trigger: domain.TriggerAPI, Key: fmt.Sprint("k", i)}); err != nil {
			t.Fatal(err)
		}
	}

	big := "insert into events (run, seq, job, at, kind, data) select 0, 0, 'j', value, 'note', hex(zeroblob(value * 40)) from generate_series(1, 200)"
	big = strings.Replace(big, "from generate_series(1, 200)", "from (with recursive c(value) as (select 1 union all select value + 1 from c where value < 200) select value from c)", 1)
	if err := errors.Join(l.Exec(t.Context(), big, "delete from events where at between 50 and 80"), l.Close()); err != nil {
		t.Fatal(err)
	}

	return path
}

const page = 1024 // page size of a new ledger

// damages are changes to a file as caused by a disk, an interrupted copy, or a mistake.
var damages = []struct {
	name string
	do   func(r *rand.Rand, b []byte) []byte
}{
	{"a bit", func(r *rand.Rand, b []byte) []byte { b[r.IntN(len(b))] ^= 1 << r.IntN(8); return b }},
	{"a byte of the header", func(r *rand.Rand, b []byte) []byte { b[r.IntN(100)] ^= byte(1 + r.IntN(255)); return b }},
	{"bytes", func(r *rand.Rand, b []byte) []byte {
		for range 1 + r.IntN(50) {
			b[r.IntN(len(b))] ^= byte(1 + r.IntN(255))
		}
		return b
	}},
	{"cut", func(r *rand.Rand, b []byte) []byte { return b[:r.IntN(len(b))] }},
	{"cut at a page", func(r *rand.Rand, b []byte) []byte { return b[:page*r.IntN(len(b)/page)] }},
	{"longer", func(r *rand.Rand, b []byte) []byte { return append(b, make([]byte, 1+r.IntN(3*page))...) }},
	{"a page of zeros", func(r *rand.Rand, b []byte) []byte { clear(pageOf(r, b)); return b }},
	{"two pages swapped", func(r *rand.Rand, b []byte) []byte {
		one, other := pageOf(r, b), pageOf(r, b)
		was := bytes.Clone(one)
		copy(one, other)
		copy(other, was)
		return b
	}},
	{"a page twice", func(r *rand.Rand, b []byte) []byte { copy(pageOf(r, b), pageOf(r, b)); return b }},
	{"empty", func(*rand.Rand, []byte) []byte { return nil }},
	{"another file", func(r *rand.Rand, _ []byte) []byte { return []byte(strings.Repeat("a,b,c\n", 1+r.IntN(2000))) }},
}

func pageOf(r *rand.Rand, b []byte) []byte {
	at := page * r.IntN(len(b)/page)
	return b[at : at+page]
}

// TestDamageIsDetected checks that any changed byte of a closed ledger is detected before it is
// overwritten. The ledger is checked at once, or in the background while it is written.
// ROUSE_TEST_MUTATIONS sets the number of damages.
func TestDamageIsDetected(t *testing.T) {
	t.Parallel()
	mutations, err := strconv.Atoi(os.Getenv("ROUSE_TEST_MUTATIONS"))
	if err != nil {
		mutations = 2 * len(damages)
	}

	path := filled(t, 300)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	marker, err := os.ReadFile(path + "-seal")
	if err != nil {
		t.Fatal(err)
	}

	seen := 0
	for i := range 2 * mutations {
		r := rand.New(rand.NewPCG(7, uint64(i)))
		d, late := damages[i/2%len(damages)], i%2 == 1
		bad := filepath.Join(t.TempDir(), "ledger.db")
		data := d.do(r, bytes.Clone(sound))
		if err := errors.Join(os.WriteFile(bad, data, 0o600), os.WriteFile(bad+"-seal", marker, 0o600)); err != nil {
			t.Fatal(err)
		}

		err := useLedger(t, bad, late)
		changed := !bytes.Equal(data, sound)
		if !changed {
			if err != nil {
				t.Fatalf("mutation %d (%s) changed nothing: %v", i, d.name, err)
			}
			continue
		}

		seen++
		if !errors.As(err, new(*sqlite.CorruptError)) || !errors.As(err, new(*ledger.ReadOnlyError)) {
			t.Fatalf("mutation %d (%s, late %v) was not seen: %v", i, d.name, late, err)
		}
		if after, err := os.ReadFile(bad); err != nil || !bytes.Equal(after, data) {
			t.Fatalf("mutation %d (%s, late %v): the damaged file was changed: %v", i, d.name, late, err)
		}
		if _, err := ledger.Open(t.Context(), ledger.Options{Path: bad}); !errors.As(err, new(*ledger.ReadOnlyError)) {
			t.Fatalf("mutation %d (%s, late %v): it was opened again: %v", i, d.name, late, err)
		}
	}

	t.Logf("%d damages seen", seen)
}

// TestDamageThatAWriteFinds checks a write that meets damage before the check does, or damage that
// happened after the check. That write and all later ones return the remedy.
func TestDamageThatAWriteFinds(t *testing.T) {
	t.Parallel()
	path := filled(t, 300)
	l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	if err := l.ReadOnly(); err != nil {
		t.Errorf("while it is whole: %v", err)
	}
	overwriteAllButTheFirstPage(t, path)
	for i := range 3 {
		_, err := l.Enqueue(t.Context(), ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI})
		var readOnly *ledger.ReadOnlyError
		if !errors.As(err, &readOnly) || !errors.As(err, new(*sqlite.CorruptError)) || !strings.Contains(readOnly.Remedy, "rouse ledger") {
			t.Errorf("write %d: %v", i, err)
		}
	}
	select {
	case <-l.Damaged():
	default:
		t.Error("the ledger does not say that it is damaged")
	}
	if err := l.ReadOnly(); !errors.As(err, new(*ledger.ReadOnlyError)) || !errors.As(err, new(*sqlite.CorruptError)) {
		t.Errorf("it is only read, because: %v", err)
	}
}

// TestDamageThatAReadFinds checks that a read that meets damage returns the remedy and makes the
// ledger read-only. In a process that does not own the file, it leaves the marker unchanged.
func TestDamageThatAReadFinds(t *testing.T) {
	t.Parallel()
	reads := map[string]func(l *ledger.Ledger) error{
		"a cached row":      func(l *ledger.Ledger) error { _, err := l.Runs.Get(t.Context(), 200); return err },
		"cached rows":       func(l *ledger.Ledger) error { _, err := l.Runs.Unfinished(t.Context()); return err },
		"a loop of rows":    func(l *ledger.Ledger) error { _, err := l.Runs.Counts(t.Context()); return err },
		"a row, not cached": func(l *ledger.Ledger) error { _, err := l.Runs.DeliveryBody(t.Context(), 200); return err },
		"rows, not cached":  func(l *ledger.Ledger) error { _, err := l.Claims.OnPath(t.Context(), "j", "/a"); return err },
	}
	opened := map[string]func(ledger.Options) (*ledger.Ledger, error){
		"of its owner": func(o ledger.Options) (*ledger.Ledger, error) { return ledger.Open(t.Context(), o) },
		"shared":       func(o ledger.Options) (*ledger.Ledger, error) { return ledger.OpenShared(t.Context(), o) },
	}
	for what, read := range reads {
		for whose, open := range opened {
			t.Run(what+" "+whose, func(t *testing.T) {
				t.Parallel()
				path := filled(t, 300)
				l, err := open(ledger.Options{Path: path})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				overwriteAllButTheFirstPage(t, path)

				err = read(l)
				var readOnly *ledger.ReadOnlyError
				if !errors.As(err, &readOnly) || !strings.Contains(readOnly.Remedy, "rouse ledger") {
					t.Errorf("the read: %v", err)
				}
				marker, err := dbfile.ReadMarker(path)
				if whose == "shared" {
					if err != nil || marker.Reason != "" {
						t.Errorf("the marker of somebody else's file: %+v %v", marker, err)
					}
					return
				}

				select {
				case <-l.Damaged():
				default:
					t.Error("the ledger does not say that it is damaged")
				}
				if err != nil || marker.Reason == "" {
					t.Errorf("the next start is not told: %+v %v", marker, err)
				}
			})
		}
	}
}

// overwriteAllButTheFirstPage damages an open file. SQLite has already read its schema.
func overwriteAllButTheFirstPage(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{0xff}, int(info.Size())-page), page)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// useLedger opens a ledger, writes to it and closes it. It returns an error if the ledger is
// damaged.
func useLedger(t testing.TB, path string, late bool) (err error) {
	open := ledger.Open
	if late {
		open = ledger.OpenLate
	}

	l, err := open(t.Context(), ledger.Options{Path: path})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()

	// The write happens before or after the end of the check, so it is in the log or refused.
	if _, err := l.Enqueue(t.Context(), ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI}); err != nil && sqlite.Corrupt(err) {
		return err
	}

	return l.WaitChecked(t.Context())
}

// TestWritesWhileCompared checks that writes during the comparison of a large file are kept and are
// in the file after it is closed.
func TestWritesWhileCompared(t *testing.T) {
	t.Parallel()
	path := filled(t, 10)
	for i := range 3 {
		l, err := ledger.OpenLate(t.Context(), ledger.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Enqueue(t.Context(), ledger.Request{Job: "late", Agent: "a", Trigger: domain.TriggerAPI}); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}

		if _, err := os.Stat(path + "-wal"); !os.IsNotExist(err) {
			t.Fatalf("round %d: the log is still there: %v", i, err)
		}
		// Now, so that the checksum is compared.
		again := openIn(t, filepath.Dir(path))
		if runs, err := again.Runs.List(t.Context(), runs.Filter{Job: "late", Limit: 10}); err != nil || len(runs) != i+1 {
			t.Fatalf("round %d: %d runs, %v", i, len(runs), err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKilledWhileCompared checks that the comparison is repeated if the process is killed during
// it. Until it ends, no write reaches the file, so the checksum stays valid.
func TestKilledWhileCompared(t *testing.T) {
	t.Parallel()
	path := filled(t, 100)
	marker, err := os.ReadFile(path + "-seal")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	open := bytes.Replace(marker, []byte(`"closed"`), []byte(`"open"`), 1)
	damaged := bytes.Clone(data)
	damaged[len(data)/2] ^= 1
	for _, file := range [][]byte{damaged, data} {
		if err := errors.Join(os.WriteFile(path, file, 0o600), os.WriteFile(path+"-seal", open, 0o600)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := useLedger(t, path, true); errors.As(err, new(*ledger.ReadOnlyError)) != bytes.Equal(file, damaged) {
				t.Errorf("damaged %v: %v", bytes.Equal(file, damaged), err)
			}
		}
	}
}

// TestDamageAfterAKill checks a ledger that was not closed and so has no checksum. Its structure is
// checked at once or in the background, and damage permanently stops writes.
func TestDamageAfterAKill(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		path := filled(t, 300)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		// Pages of tables and indexes that are read neither on opening nor by a run.
		for at := len(data) - 8*page; at < len(data); at++ {
			data[at] = 0x5a
		}
		if err := errors.Join(os.WriteFile(path, data, 0o600), ledger.MarkOpen(path)); err != nil {
			t.Fatal(err)
		}

		if !late {
			l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
			if err == nil {
				err = l.Close()
				t.Errorf("a small one is used before it is checked (%v)", err)
			}
		}
		for i := range 2 {
			if err := useLedger(t, path, late); !errors.As(err, new(*ledger.ReadOnlyError)) || !strings.Contains(err.Error(), "rouse ledger reset") {
				t.Fatalf("late %v, opened %d times: %v", late, i, err)
			}
		}
	}
}

// TestReadOnlyAndRestore checks that the readable part of a damaged ledger can be read, but not
// written. A backup restores it and keeps the damaged file.
func TestReadOnlyAndRestore(t *testing.T) {
	t.Parallel()
	path := filled(t, 10)
	o := ledger.Options{Path: path}
	l := openIn(t, filepath.Dir(path))
	var copied, all int64
	made, err := l.Backup(t.Context(), store.BackupSpec{Progress: func(done, of int64) { copied, all = done, of }})
	if err != nil || made.Why != "manual" || all != made.Bytes || copied != all {
		t.Fatal(made, copied, all, err)
	}
	if _, err := l.Backup(t.Context(), store.BackupSpec{File: made.Path}); err == nil {
		t.Error("a backup was replaced")
	}
	if _, err := l.Enqueue(t.Context(), ledger.Request{Job: "later", Agent: "a", Trigger: domain.TriggerAPI}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}

	var why *ledger.ReadOnlyError
	if _, err := ledger.Open(t.Context(), o); !errors.As(err, &why) || !strings.Contains(why.Remedy, "rouse ledger accept") || !strings.Contains(why.Remedy, made.Name) {
		t.Fatal(err)
	}

	read, err := ledger.OpenReadOnly(t.Context(), o, why)
	if err != nil {
		t.Fatal(err)
	}
	if runs, err := read.Runs.List(t.Context(), runs.Filter{Limit: 100}); err != nil || len(runs) != 11 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
	if _, err := read.Enqueue(t.Context(), ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI}); !errors.As(err, &why) {
		t.Errorf("written: %v", err)
	}
	if _, err := read.Backup(t.Context(), store.BackupSpec{}); !errors.As(err, &why) {
		t.Errorf("backed up: %v", err)
	}
	if s, err := read.FileState(t.Context()); err != nil || s.Checked || s.ReadOnly != why.Error() {
		t.Errorf("%+v %v", s, err)
	}
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}

	if _, err := maint.Restore(t.Context(), o, "nothing"); err == nil {
		t.Error("restored from nothing")
	}
	done, err := maint.Restore(t.Context(), o, "last")
	if err != nil || done.From != made.Path {
		t.Fatal(done, err)
	}
	if kept, err := os.ReadFile(filepath.Join(done.Kept, "ledger.db")); err != nil || !bytes.Equal(kept, data) {
		t.Errorf("the damaged one is not kept: %v", err)
	}

	l = openIn(t, filepath.Dir(path))
	if runs, err := l.Runs.List(t.Context(), runs.Filter{Limit: 100}); err != nil || len(runs) != 10 {
		t.Errorf("restored: %d runs, %v", len(runs), err)
	}
	if events, err := l.Events.List(t.Context(), event.Filter{}); err != nil || events[len(events)-1].Kind != "ledger.restored" || !strings.Contains(string(events[len(events)-1].Data), "the one before is in") {
		t.Errorf("%+v %v", events, err)
	}
}

// TestAcceptAndReset checks that a change by another program is accepted only at the owner's
// request.
func TestAcceptAndReset(t *testing.T) {
	t.Parallel()
	path := filled(t, 10)
	o := ledger.Options{Path: path}
	if err := maint.Accept(t.Context(), o); err == nil {
		t.Error("a sound one was accepted")
	}

	other, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ApplicationID: 0x726f7573})
	if err != nil {
		t.Fatal(err)
	}
	err = other.Do(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec("update runs set agent = 'b'")
		return err
	})
	if err := errors.Join(err, other.Close()); err != nil {
		t.Fatal(err)
	}

	if _, err := ledger.Open(t.Context(), o); !errors.As(err, new(*ledger.ReadOnlyError)) {
		t.Fatal(err)
	}
	if err := maint.Accept(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	l := openIn(t, filepath.Dir(path))
	if events, err := l.Events.List(t.Context(), event.Filter{}); err != nil || events[len(events)-1].Kind != "ledger.accepted" {
		t.Errorf("that it was accepted is not recorded: %+v %v", events[len(events)-1], err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	done, err := maint.Reset(t.Context(), o)
	if err != nil || done.Kept == "" {
		t.Fatal(done, err)
	}
	l = openIn(t, filepath.Dir(path))
	if runs, err := l.Runs.List(t.Context(), runs.Filter{Limit: 100}); err != nil || len(runs) != 0 {
		t.Errorf("%d runs, %v", len(runs), err)
	}

	// A folder at the path of the ledger is not replaced. Without a ledger, an empty one is
	// created.
	folder := ledger.Options{Path: t.TempDir()}
	_, err = maint.Reset(t.Context(), folder)
	for what, err := range map[string]error{"reset": err, "accepted": maint.Accept(t.Context(), folder)} {
		if !errors.As(err, new(*store.TargetError)) {
			t.Errorf("a folder is %s: %v", what, err)
		}
	}
	if done, err := maint.Reset(t.Context(), ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")}); err != nil || done.Kept != "" {
		t.Errorf("%+v %v", done, err)
	}
}

// TestWritesFailSince checks that the time of failure is that of the first failed write, until a
// write succeeds.
func TestWritesFailSince(t *testing.T) {
	t.Parallel()
	l := openIn(t, t.TempDir())
	before := time.Now()
	full := errors.New("no space left on device")
	l.SetFailing(errors.New("an error before"))
	began, err := l.WritesFail()
	if began.Before(before) || err == nil {
		t.Errorf("since %s: %v", began, err)
	}
	l.SetFailing(full)
	if since, err := l.WritesFail(); !since.Equal(began) || !errors.Is(err, full) {
		t.Errorf("since %s, first %s: %v", since, began, err)
	}
	l.SetFailing(nil)
	if since, err := l.WritesFail(); since.Before(began) || err != nil {
		t.Errorf("since %s: %v", since, err)
	}
}

// TestDailyBackups checks that one backup a day is made, that those of a week are kept, and that
// backups of the owner stay.
func TestDailyBackups(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	now := time.Now()
	l, err := ledger.Open(t.Context(), ledger.Options{Path: path, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	if _, err := l.Backup(t.Context(), store.BackupSpec{}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		for _, want := range []bool{true, false} {
			if made, err := l.BackUpDaily(t.Context()); err != nil || made != want {
				t.Fatalf("made %v, want %v: %v", made, want, err)
			}
		}
		now = now.Add(24 * time.Hour)
	}

	all, err := store.Backups(path)
	if err != nil || len(all) != 8 {
		t.Errorf("%d backups, %v", len(all), err)
	}
}

// TestGivesSpaceBack checks that space freed by retention is given back in small steps between
// other writes.
func TestGivesSpaceBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := openIn(t, filepath.Dir(path))
	if err := l.Exec(t.Context(), "create table bulk as with recursive c(n) as (select 1 union all select n + 1 from c where n < 3000) select n, zeroblob(4000) from c", "delete from bulk"); err != nil {
		t.Fatal(err)
	}

	before, err := l.FileState(t.Context())
	if err != nil || before.FreeBytes < 10<<20 || before.Bytes != dbfile.Size(path)+dbfile.Size(path+"-wal") || !before.Checked {
		t.Fatalf("%+v %v", before, err)
	}

	freed, err := l.GiveSpaceBack(t.Context())
	after, err2 := l.FileState(t.Context())
	if err != nil || err2 != nil || freed < 9<<20 || after.FreeBytes > 1<<20 {
		t.Errorf("freed %d: %+v %v %v", freed, after, err, err2)
	}
	// The file shrinks now, not when the log is next full.
	if info, err := os.Stat(path); err != nil || info.Size() > 2<<20 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
