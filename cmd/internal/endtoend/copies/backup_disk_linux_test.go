package copies

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestBackupToAFullDisk checks a disk that is too small, which must be reported before any file is
// written. A disk that fills up during a backup must keep the earlier backup and no part of the new
// one.
func TestBackupToAFullDisk(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\nagents: [{name: a}]\njobs: [{name: j, agent: a, playbook: [{call: file_write, with: {path: x.md, content: y}}]}]\n", "small/.keep": ""})
	config, small := filepath.Join(dir, "rouse.yaml"), filepath.Join(dir, "small")
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=4m,mode=700"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(small, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})

	endtoend.MustRun(t, "run", "j", "--wait", "--config", config)
	endtoend.MustRun(t, "backup", small, "--config", config)
	before := leftIn(t, small)

	if err := os.WriteFile(filepath.Join(dir, "home", "agents", "a", "work", "large"), make([]byte, 16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dest := range []string{small, filepath.Join(small, "x.tar.gz")} {
		if said := endtoend.Refused(t, "backup", dest, "--config", config); !strings.Contains(said, "and "+small+" has ") || !strings.Contains(said, "free some space") {
			t.Error(said)
		}
		if now := leftIn(t, small); now != before {
			t.Errorf("%s\nis left of\n%s", now, before)
		}
	}

	// The limit on the file size makes the backup fail in the middle.
	if err := os.Truncate(filepath.Join(dir, "home", "agents", "a", "work", "large"), 1<<20); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(small, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	p := endtoend.Rouse(t, "backup", small, "--config", config)
	p.Env = append(p.Env, "GOGC=off")
	limit := rouseLimited(t, p, 300)
	if err := limit.Run(); err == nil {
		t.Fatalf("a backup was made of files that are larger than any may be: %s", limit.Out.String())
	}
	if said := limit.Err.String(); !strings.Contains(said, "the backup does not fit") || !strings.Contains(said, "the backups before are as they were") {
		t.Error(said)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if now := leftIn(t, small); now != before {
		t.Errorf("%s\nis left of\n%s", now, before)
	}
	endtoend.MustRun(t, "backup", "--verify", small)
}

// rouseLimited limits the size of files to a number of 1 KiB blocks. Exceeding the limit fails like
// a full disk.
func rouseLimited(t *testing.T, p *endtoend.Program, blocks int) *endtoend.Program {
	t.Helper()
	args := append([]string{p.Path}, p.Args[1:]...)
	p.Path, p.Args = "/bin/bash", append([]string{"bash", "-c", `trap '' XFSZ; ulimit -f ` + strconv.Itoa(blocks) + `; exec "$@"`, "bash"}, args...)
	return p
}

func leftIn(t *testing.T, dir string) string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		names = append(names, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, "\n")
}
