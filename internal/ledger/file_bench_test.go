package ledger_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/storage/sqlite"
)

// BenchmarkOpen opens and closes a ledger of about 300 MiB. It measures a closed ledger without and
// with a write, a ledger of a killed process, and a full check by SQLite.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "ledger.db")
	l, err := ledger.Open(b.Context(), ledger.Options{Path: path})
	if err == nil {
		err = errors.Join(l.Exec(b.Context(), `insert into events (run, seq, job, at, kind, data)
			with recursive c(n) as (select 1 union all select n + 1 from c where n < 600000) select 0, 0, 'j' || n % 10, n, 'note', hex(randomblob(200)) from c`), l.Close())
	}
	if err != nil {
		b.Fatal(err)
	}

	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%d MiB", info.Size()>>20)

	open := func(b *testing.B, write bool) {
		l, err := ledger.Open(b.Context(), ledger.Options{Path: path})
		if err == nil && write {
			_, err = l.Enqueue(b.Context(), ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI})
		}
		if err = errors.Join(err, l.Close()); err != nil {
			b.Fatal(err)
		}
	}

	b.Run("closed", func(b *testing.B) {
		for b.Loop() {
			open(b, false)
		}
	})
	b.Run("closed, written", func(b *testing.B) {
		for b.Loop() {
			open(b, true)
		}
	})
	b.Run("killed", func(b *testing.B) {
		for b.Loop() {
			if err := ledger.MarkOpen(path); err != nil {
				b.Fatal(err)
			}
			open(b, false)
		}
	})
	b.Run("checked by SQLite", func(b *testing.B) {
		for b.Loop() {
			db, err := sqlite.Open(b.Context(), sqlite.Options{Path: path, ApplicationID: 0x726f7573})
			if err := errors.Join(err, db.Close()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
