package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
)

// TestOldHomes opens homes that were made by the rouse of earlier commits (.ci/old-home): what they had on record is there, the run that
// waited goes on with its answer, the alarm is still set, and what was changed can be undone.
func TestOldHomes(t *testing.T) {
	t.Parallel()
	unraced(t)
	homes, err := filepath.Glob("testdata/homes/*.tar.gz")
	if err != nil || len(homes) == 0 {
		t.Fatal(homes, err)
	}
	text, err := os.ReadFile("testdata/homes/rouse.yaml")
	if err != nil {
		t.Fatal(err)
	}

	for _, home := range homes {
		t.Run(strings.TrimSuffix(filepath.Base(home), ".tar.gz"), func(t *testing.T) {
			t.Parallel()
			s := modeltest.New(t, modeltest.Turn{Text: "It was paid from that account."})
			dir := cmdtest.Write(t, map[string]string{"rouse.yaml": strings.Replace(string(text), "MODEL", s.URL+"/v1", 1)})
			unpack(t, home, dir)
			moveRecord(t, filepath.Join(dir, "home"), dir)
			config := filepath.Join(dir, "rouse.yaml")

			var runs []api.Run
			runJSON(t, &runs, "runs", "--json", "--config", config)
			if len(runs) != 3 || runs[0].State != "waiting" || runs[1].Outcome != "success" || runs[2].Outcome != "success" {
				t.Fatalf("%+v", runs)
			}
			auditClean(t, config)
			if next := mustRun(t, "next", "--config", config); !strings.Contains(next, "clerk") {
				t.Errorf("the alarm is not set:\n%s", next)
			}

			p := serveUntilReady(t, config)
			mustRun(t, "answer", "1", "the savings", "--config", config)
			cmdtest.Until(t, "the end of the run that waited", func() bool {
				runJSON(t, &runs, "runs", "--json", "--config", config)
				return runs[0].State == "finished"
			})
			if runs[0].Outcome != "success" || runs[0].Summary != "It was paid from that account." {
				t.Errorf("%+v", runs[0])
			}
			p.stop(t)

			mustRun(t, "undo", runs[2].ID, "--config", config)
			if old, err := os.ReadFile(filepath.Join(dir, "work", "old.txt")); err != nil || string(old) != "as it was\n" {
				t.Errorf("old.txt is %q, %v", old, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "work", "new.txt")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("new.txt is still there: %v", err)
			}
			auditClean(t, config)
		})
	}
}

// unpack unpacks an archive of this repository.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}

	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}

		path := filepath.Join(dir, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o700)
		case tar.TypeReg:
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, data, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// moveRecord has the record of a home name the folder that it was unpacked to, as the one that it was made in, and a minute ago as the
// time: the alarm that is set would be due a day after it was made, and the question would be too old some time later.
func moveRecord(t *testing.T, home, dir string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(home, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), "update file_ops set root = replace(root, '/tmp/rouse-old-home', ?1), path = replace(path, '/tmp/rouse-old-home', ?1)", dir)
	if err := errors.Join(err, moveTimes(t.Context(), db), db.Close(), os.RemoveAll(filepath.Join(home, "ledger.db-seal"))); err != nil {
		t.Fatal(err)
	}
}

// moveTimes moves all instants of a ledger by as much as makes the last thing that happened a minute old.
func moveTimes(ctx context.Context, db *sql.DB) error {
	var last int64
	if err := db.QueryRowContext(ctx, "select max(at) from events").Scan(&last); err != nil {
		return err
	}
	by := time.Now().Add(-time.Minute).UnixMilli() - last

	rows, err := db.QueryContext(ctx, `select t.name, c.name from sqlite_schema t, pragma_table_info(t.name) c where t.type = 'table' and t.name not like 'sqlite%' and c.type = 'INTEGER' and c.pk = 0`)
	if err != nil {
		return err
	}
	defer rows.Close()

	var moves []string
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			return err
		}
		moves = append(moves, fmt.Sprintf(`update "%[1]s" set "%[2]s" = "%[2]s" + %[3]d where "%[2]s" between %[4]d and %[5]d`, table, column, by, last-year, last+year))
	}
	if err := rows.Err(); err != nil {
		return err
	}

	for _, move := range moves {
		if _, err := db.ExecContext(ctx, move); err != nil {
			return fmt.Errorf("%s: %w", move, err)
		}
	}
	return nil
}

// year is in milliseconds: what is that far from an instant, or less, is one as well, for nothing else in a ledger is as large.
const year = int64(365 * 24 * time.Hour / time.Millisecond)
