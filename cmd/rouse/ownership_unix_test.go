//go:build unix

package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// openly starts rouse with umask 000.
func openly(t *testing.T, args ...string) *endtoend.Program {
	t.Helper()
	p := endtoend.Rouse(t, args...)
	p.Args = append([]string{"sh", "-c", `umask 000; exec "$0" "$@"`, p.Path}, args...)
	var err error
	if p.Path, err = exec.LookPath("sh"); err != nil {
		t.Fatal(err)
	}
	return p
}

// modes returns the modes of all files in a folder, by path.
func modes(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()
	out := map[string]fs.FileMode{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil {
			out[path] = info.Mode().Perm()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestOwnFiles checks that all files that rouse keeps are private to their user, with any umask.
// Files that agents and commands create for others have the usual modes.
func TestOwnFiles(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
agents: [{name: ann, workdir: ./work, grants: {commands: [{argv: [touch, "*"]}]}}, {name: bob}]
jobs: [{name: j, agent: bob, playbook: [{call: file_write, with: {path: notes/a.md, content: x}}]}]
`})
	config := filepath.Join(dir, "rouse.yaml")
	for _, args := range [][]string{
		{"call", "ann", "db_create_table", `{"name":"t","purpose":"p","columns":[{"name":"a","type":"TEXT"}]}`},
		{"call", "ann", "file_write", `{"path":"notes/a.md","content":"x"}`},
		{"call", "ann", "db_export", `{"sql":"select 1 a","path":"out/a.csv"}`},
		{"run", "j"}, {"db", "ann", "backup"},
		{"db", "ann", "export", "select 1 a", "--to", filepath.Join(dir, "exported.csv")},
		{"init", filepath.Join(dir, "new")},
	} {
		if args[0] != "init" {
			args = append(args, "--config", config)
		}
		if p := openly(t, args...); p.Run() != nil {
			t.Fatalf("%q: %s%s", args, p.Out.String(), p.Err.String())
		}
	}
	if runtime.GOOS == "linux" {
		if p := openly(t, "call", "ann", "shell_run", `{"command":"touch touched"}`, "--config", config); p.Run() != nil {
			t.Errorf("%s%s", p.Out.String(), p.Err.String())
		}
	}

	for path, mode := range modes(t, filepath.Join(dir, "home")) {
		if mode&0o077 != 0 && !strings.Contains(path, "agents/bob/work") {
			t.Errorf("%s: %#o", path, mode)
		}
	}
	all := modes(t, dir)
	for name, want := range map[string]fs.FileMode{"work": 0o755, "work/notes": 0o755, "work/notes/a.md": 0o644, "work/out/a.csv": 0o644, "exported.csv": 0o644, "home/agents/bob/work/notes/a.md": 0o644,
		"new/inbox": 0o755, "new/rouse.yaml": 0o644, "new/rouse.schema.json": 0o644} {
		if got := all[filepath.Join(dir, name)]; got != want {
			t.Errorf("%s: %#o, want %#o", name, got, want)
		}
	}
	if got := all[filepath.Join(dir, "work", "touched")]; runtime.GOOS == "linux" && got != 0o666 {
		t.Errorf("a program's file: %#o", got)
	}
}

// TestHomeOfOthers checks a home with open modes. If other users can read the home, the start makes
// it private and reports that once; doctor --fix does so for its files. If other users can write to
// the home, rouse refuses it until the modes are fixed.
func TestHomeOfOthers(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\nagents: [{name: ann}]\n"})
	config, home := filepath.Join(dir, "rouse.yaml"), filepath.Join(dir, "home")
	says := func(part string, args ...string) {
		t.Helper()
		p := endtoend.Rouse(t, append(args, "--config", config)...)
		_ = p.Run() // some of them fail, as expected
		if got := p.Out.String() + p.Err.String(); !strings.Contains(got, part) {
			t.Errorf("%q: %q is not in %s", args, part, got)
		}
	}
	says(`"ok": true`, "call", "ann", "db_create_table", `{"name":"t","purpose":"p","columns":[{"name":"a","type":"TEXT"}]}`)

	ledger := filepath.Join(home, "ledger.db")
	if err := errors.Join(os.Chmod(home, 0o755), os.Chmod(ledger, 0o644)); err != nil {
		t.Fatal(err)
	}
	p := endtoend.Serve(t, config)
	p.Stop(t)
	if got := p.Err.String(); !strings.Contains(got, "the home could be read by others") || !strings.Contains(got, "0755") {
		t.Errorf("%s", got)
	}
	says("FAIL  modes          open to other users by their modes: "+ledger, "doctor")
	says("fixed          open to nobody else any more: "+ledger, "doctor", "--fix")
	says("ok    modes", "doctor")
	for path, mode := range modes(t, home) {
		if mode&0o077 != 0 && !strings.Contains(path, "ann/work") {
			t.Errorf("%s: %#o", path, mode)
		}
	}

	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	says("could be read by others (mode 0755), and is its user's alone from now on", "runs")
	if err := os.Chmod(home, 0o555); err != nil {
		t.Fatal(err)
	}
	says("could be read by others (mode 0555)", "runs")
	if got := modes(t, home)[home]; got != 0o500 {
		t.Errorf("the home has %#o", got)
	}

	if err := os.Chmod(home, 0o777); err != nil {
		t.Fatal(err)
	}
	says("may be written by everybody (mode 0777), so that somebody else could decide what rouse does", "runs")
	says("▲ the home folder "+home+" may be written by everybody (mode 0777)", "status")
	says("may be written by everybody (mode 0777)", "secrets", "list")
	says("open to nobody else any more: "+home, "doctor", "--fix")
	says("ok    modes", "doctor")

	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(home, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"runs"}, {"serve"}, {"secrets", "list"}} {
		says("belongs to another user (number 65534); choose one of yours with --home", args...)
	}
}

// TestForeignSocket checks that rouse sends no request to a socket that another user may have
// created.
func TestForeignSocket(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./h\nagents: [{name: ann}]\n", "h/.keep": ""})
	home := filepath.Join(dir, "h")
	if err := os.Chmod(home, 0o777); err != nil {
		t.Fatal(err)
	}

	l, err := net.Listen("unix", filepath.Join(home, "rouse.sock"))
	if err != nil {
		t.Skip(err) // the path of the test folder is too long for a socket
	}
	defer l.Close()
	asked := make(chan struct{}, 1)
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			asked <- struct{}{}
			c.Close()
		}
	}()

	p := endtoend.Rouse(t, "approve", "1", "--always", "--config", filepath.Join(dir, "rouse.yaml"))
	if err := p.Run(); err == nil || !strings.Contains(p.Err.String(), "is not to be trusted, and nothing was said to whoever listens there") {
		t.Errorf("%v %s", err, p.Err.String())
	}
	select {
	case <-asked:
		t.Error("it was connected to")
	default:
	}
}

// TestSocketFolder checks a socket folder outside the home. No daemon starts unless the folder is
// private.
func TestSocketFolder(t *testing.T) {
	t.Parallel()
	runtimes, err := os.MkdirTemp("", "rt-") //nolint:usetesting // a socket needs a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(runtimes) })

	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./" + strings.Repeat("long/", 25) + "h\nagents: [{name: ann}]\n"})
	serve := func() string {
		t.Helper()
		p := endtoend.Rouse(t, "serve", "--config", filepath.Join(dir, "rouse.yaml"))
		p.Env = append(p.Env, "XDG_RUNTIME_DIR="+runtimes)
		if err := p.Run(); err == nil {
			t.Fatal("it served")
		}
		return p.Err.String()
	}

	folder := filepath.Join(runtimes, "rouse")
	if err := os.Symlink(t.TempDir(), folder); err != nil {
		t.Fatal(err)
	}
	if got := serve(); !strings.Contains(got, "is no folder but a link, which somebody else may have put there") {
		t.Errorf("%s", got)
	}

	if err := errors.Join(os.Remove(folder), os.Mkdir(folder, 0o755)); err != nil {
		t.Fatal(err)
	}
	if got := serve(); !strings.Contains(got, "is open to others (mode 0755); mend its mode with rouse doctor --fix") {
		t.Errorf("%s", got)
	}
}
