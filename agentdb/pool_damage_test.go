package agentdb_test

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

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/pool"
	"rouse/internal/storage/sqlite"
)

// full creates a database with rows in many pages, overflow chains, indexes and free pages. It
// returns the path of the closed file and its content.
func full(t testing.TB) (path, holds string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "db.sqlite")
	db := open(t, path)
	expenses(t, db)
	var rows []map[string]any
	for i := range 600 {
		rows = append(rows, map[string]any{"category": fmt.Sprint("c", i%7), "amount": float64(i) / 4, "note": strings.Repeat("é", i%50*(1+i%97/96*300))})
	}

	insert(t, db, "expenses", rows...)
	raw(t, db, "create table gone(a)", "insert into gone select note from expenses", "drop table gone")
	holds = contents(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	return path, holds
}

// copyFiles copies a database and the files beside it.
func copyFiles(t testing.TB, from, to string) {
	t.Helper()
	for _, part := range []string{"", "-seal", "-wal"} {
		data, err := os.ReadFile(from + part)
		if os.IsNotExist(err) {
			continue
		}

		if err == nil {
			err = os.WriteFile(to+part, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

const page = 4096

// damages lists typical faults of files: disk errors, incomplete copies and mistakes.
var damages = []struct {
	name string
	do   func(r *rand.Rand, b []byte) []byte
}{
	{"a bit", func(r *rand.Rand, b []byte) []byte { b[r.IntN(len(b))] ^= 1 << r.IntN(8); return b }},
	{"a byte of the header", func(r *rand.Rand, b []byte) []byte { b[r.IntN(100)] = byte(r.IntN(256)); return b }},
	{"bytes", func(r *rand.Rand, b []byte) []byte {
		for range 1 + r.IntN(50) {
			b[r.IntN(len(b))] = byte(r.IntN(256))
		}
		return b
	}},
	{"cut", func(r *rand.Rand, b []byte) []byte { return b[:r.IntN(len(b))] }},
	{"cut at a page", func(r *rand.Rand, b []byte) []byte { return b[:page*r.IntN(len(b)/page)] }},
	{"longer", func(r *rand.Rand, b []byte) []byte { return append(b, make([]byte, 1+r.IntN(3*page))...) }},
	{"a page of zeros", func(r *rand.Rand, b []byte) []byte { clear(pageOf(r, b)); return b }},
	{"a page of noise", func(r *rand.Rand, b []byte) []byte {
		p := pageOf(r, b)
		for i := range p {
			p[i] = byte(r.IntN(256))
		}
		return b
	}},
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

// use opens a database, reads it completely and returns its content.
func use(t testing.TB, path string) (holds string, err error) {
	db, err := agentdb.Open(t.Context(), agentdb.Options{Path: path})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	if _, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: "select * from expenses", IncludeDeleted: true}); err != nil {
		return "", err
	}
	if _, err := db.Changes(t.Context(), changelog.Filter{}); err != nil {
		return "", err
	}
	if err := agentdb.ReadAll(t.Context(), db); err != nil {
		return "", err
	}

	if _, err := db.Schema(t.Context()); err != nil {
		return "", err
	}

	return contents(t, db), nil
}

// A file that is damaged after it was closed is rejected or has its original content.
// ROUSE_TEST_MUTATIONS is the number of damages tried; .ci/run sets 300.
func TestDamageIsDetected(t *testing.T) {
	t.Parallel()
	mutations, err := strconv.Atoi(os.Getenv("ROUSE_TEST_MUTATIONS"))
	if err != nil {
		mutations = 3 * len(damages)
	}

	path, holds := full(t)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	seen := 0
	for i := range mutations {
		r := rand.New(rand.NewPCG(7, uint64(i)))
		d := damages[i%len(damages)]
		dir := t.TempDir()
		bad := filepath.Join(dir, "db.sqlite")
		copyFiles(t, path, bad)
		data := d.do(r, bytes.Clone(sound))
		if err := os.WriteFile(bad, data, 0o600); err != nil {
			t.Fatal(err)
		}

		got, err := use(t, bad)
		var corrupt *sqlite.CorruptError
		switch {
		case errors.As(err, &corrupt):
			seen++
			if after, err := os.ReadFile(bad); err != nil || !bytes.Equal(after, data) {
				t.Fatalf("mutation %d (%s): the damaged file was changed: %v", i, d.name, err)
			}
		case err != nil:
			t.Fatalf("mutation %d (%s): %v", i, d.name, err)
		case got != holds:
			t.Fatalf("mutation %d (%s) was not seen", i, d.name)
		case !bytes.Equal(data, sound):
			t.Fatalf("mutation %d (%s) was not refused", i, d.name)
		}

		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}

	t.Logf("%d of %d damages refused; the others left the file as it was", seen, mutations)
}

// A file that was not closed has no checksum, so only its structure is checked. Reading never
// crashes, and a file that is not rejected can be read completely.
func TestDamageAfterAKill(t *testing.T) {
	t.Parallel()
	mutations, err := strconv.Atoi(os.Getenv("ROUSE_TEST_MUTATIONS"))
	if err != nil {
		mutations = 2 * len(damages)
	}

	path, holds := full(t)
	if err := agentdb.MarkOpen(path); err != nil {
		t.Fatal(err)
	}

	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	counts := map[string]int{}
	for i := range mutations {
		r := rand.New(rand.NewPCG(8, uint64(i)))
		d := damages[i%len(damages)]
		dir := t.TempDir()
		bad := filepath.Join(dir, "db.sqlite")
		copyFiles(t, path, bad)
		if err := os.WriteFile(bad, d.do(r, bytes.Clone(sound)), 0o600); err != nil {
			t.Fatal(err)
		}

		got, err := use(t, bad)
		var corrupt *sqlite.CorruptError
		switch {
		case errors.As(err, &corrupt):
			counts["refused"]++
		case err != nil: // the schema itself: the file is not read
			counts["unreadable"]++
		case got == holds:
			counts["harmless"]++
		default: // only values: SQLite has no checksums
			counts["values"]++
			if d.name == "empty" || d.name == "another file" || d.name == "cut" || d.name == "cut at a page" {
				t.Errorf("mutation %d (%s) was not seen", i, d.name)
			}
		}

		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}

	t.Log(counts)
}

// A lost database is not created again, and one that another program changed is rejected, until
// the owner decides.
func TestLostAndChanged(t *testing.T) {
	dir := t.TempDir()
	p := newPool(t, pool.Options{Dir: dir})
	path := filepath.Join(dir, "ann", "db.sqlite")
	get := func() (*agentdb.DB, func(), error) { return p.Get(t.Context(), "ann") }
	lend := func(do func(*agentdb.DB)) {
		t.Helper()
		db, release, err := get()
		if err != nil {
			t.Fatal(err)
		}

		do(db)
		release()
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}

		p = newPool(t, pool.Options{Dir: dir})
	}

	refused := func(part string) {
		t.Helper()
		var bad *pool.QuarantinedError
		if _, _, err := get(); !errors.As(err, &bad) || !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), "rouse db ann reset") {
			t.Fatalf("error %v, want %s", err, part)
		}
		if err := p.Quarantined("ann"); err == nil || !strings.Contains(err.Error(), part) {
			t.Fatalf("quarantined: %v, want %s", err, part)
		}
	}

	lend(func(db *agentdb.DB) { expenses(t, db); insert(t, db, "expenses", map[string]any{"amount": 1}) })
	if err := p.Quarantined("ann"); err != nil {
		t.Fatal(err)
	}

	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	refused("the file is gone")
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("it was made again: %v", err)
	}
	if !p.Has("ann") {
		t.Error("it is as if there never was one")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	refused("the file is gone, or empty")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}

	lend(func(db *agentdb.DB) {
		if got := ask(t, db, "select count(*) from expenses"); got != "[[1]]" {
			t.Error(got)
		}
	})
	if err := p.Quarantined("ann"); err != nil {
		t.Errorf("it is back, and quarantined: %v", err)
	}

	// After the original file is put back, there is no reason to accept it.
	if data, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(data[:len(data)-1:len(data)-1], data[len(data)-1]^1), 0o600); err != nil {
		t.Fatal(err)
	}

	refused("it is not as rouse left it")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}

	p = newPool(t, pool.Options{Dir: dir})
	lend(func(*agentdb.DB) {})
	if err := p.Quarantined("ann"); err != nil {
		t.Errorf("it is as it was, and quarantined: %v", err)
	}

	agentdb.ChangeOutside(t, path, "insert into expenses(amount) values (2)")
	refused("If a program of yours changed it: rouse db ann accept")
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}

	p = newPool(t, pool.Options{Dir: dir})
	if err := p.Quarantined("ann"); err == nil || !strings.Contains(err.Error(), "rouse db ann accept") {
		t.Errorf("another process that only glances at it knows %v", err)
	}
	if err := p.Recovery.Accept(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}

	lend(func(db *agentdb.DB) {
		if got := ask(t, db, "select count(*) from expenses"); got != "[[2]]" {
			t.Error(got)
		}
		if got := system(t, db, "select group_concat(actor || ': ' || sql) from _changelog where sql like '--%'"); !strings.HasPrefix(got, "user: -- the owner accepted") {
			t.Error(got)
		}
	})
	if err := p.Recovery.Accept(t.Context(), "ann"); err == nil {
		t.Error("a sound one was accepted")
	}

	copy(data[page:], make([]byte, 3*page))
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Recovery.Accept(t.Context(), "ann"); err == nil || !strings.Contains(err.Error(), "cannot be accepted") {
		t.Errorf("a damaged one: %v", err)
	}
	if _, _, err := get(); err == nil {
		t.Error("a damaged one was opened")
	}
}

// Damage that is found while the database is open blocks it for all users, also after a restart,
// and leaves the file unchanged.
func TestDamageWhileOpen(t *testing.T) {
	dir := t.TempDir()
	p := newPool(t, pool.Options{Dir: dir})
	path := filepath.Join(dir, "ann", "db.sqlite")
	db, release, err := p.Get(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}

	expenses(t, db)
	for range 20 {
		insert(t, db, "expenses", map[string]any{"note": strings.Repeat("x", 2000)}, map[string]any{"note": strings.Repeat("y", 3000)})
	}

	agentdb.Flush(t, db)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	for i := 2 * page; i < len(data); i++ {
		data[i] = 0x5a
	}

	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(data[2*page:], 2*page)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}

	var corrupt *sqlite.CorruptError
	if _, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: "select max(note) from expenses"}); !errors.As(err, &corrupt) {
		t.Fatalf("error %v", err)
	}
	if _, err := db.Insert(t.Context(), changelog.By{}, "expenses", []map[string]any{{"amount": 1}}); !errors.As(err, &corrupt) {
		t.Errorf("it was written to: %v", err)
	}
	if _, err := db.Backups.Make(t.Context(), agentdb.BackupSpec{}); !errors.As(err, &corrupt) {
		t.Errorf("a backup of what is damaged: %v", err)
	}

	release()
	for range 2 {
		var bad *pool.QuarantinedError
		if err := p.Quarantined("ann"); !errors.As(err, &bad) {
			t.Fatalf("quarantined: %v", err)
		}
		if _, _, err := p.Get(t.Context(), "ann"); !errors.As(err, &bad) {
			t.Fatalf("lent: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}

		p = newPool(t, pool.Options{Dir: dir})
	}
}
