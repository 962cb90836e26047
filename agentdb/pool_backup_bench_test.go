package agentdb_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/transfer"
	"rouse/internal/storage/sqlite"
)

// benchFull returns an open database of about 150 MiB.
func benchFull(b *testing.B) (db *agentdb.DB, path string) {
	b.Helper()
	path = filepath.Join(b.TempDir(), "db.sqlite")
	db = open(b, path)
	for i := range 4 {
		var csv bytes.Buffer
		csv.WriteString("n,name,note\n")
		for row := range 250_000 {
			fmt.Fprintf(&csv, "%d,name %d,%s\n", row, row, strings.Repeat("x", 40))
		}

		if _, err := db.Import(b.Context(), changelog.By{Run: int64(i)}, transfer.ImportSpec{Table: "t", Name: "f.csv", Source: &csv}); err != nil {
			b.Fatal(err)
		}
	}

	agentdb.Flush(b, db)
	return db, path
}

// BenchmarkBackup measures a verified backup, and the two checks of a database that is opened:
// its checksum, and SQLite's quick check.
func BenchmarkBackup(b *testing.B) {
	db, path := benchFull(b)
	size := agentdb.FileSize(path)
	to := filepath.Join(b.TempDir(), "copy.sqlite")
	b.Run("backup", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			backup(b, db, agentdb.BackupSpec{File: to, Overwrite: true})
		}
	})

	b.Run("checksum", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			if err := agentdb.Measure(to); err != nil {
				b.Fatal(err)
			}
		}
	})

	for name, thorough := range map[string]bool{"quick_check": false, "integrity_check": true} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				if err := sqlite.Verify(b.Context(), to, agentdb.ApplicationID, thorough); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
