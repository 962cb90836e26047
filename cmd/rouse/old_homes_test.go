package main

import (
	"archive/tar"
	"compress/gzip"
	"database/sql"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// moveRecord has the record of a home name the folder that it was unpacked to, as the one that it was made in.
func moveRecord(t *testing.T, home, dir string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(home, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), "update file_ops set root = replace(root, '/tmp/rouse-old-home', ?1), path = replace(path, '/tmp/rouse-old-home', ?1)", dir)
	if err := errors.Join(err, db.Close(), os.RemoveAll(filepath.Join(home, "ledger.db-seal"))); err != nil {
		t.Fatal(err)
	}
}
