package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rouse/agent/preview"
	"rouse/agent/sandbox"
	"rouse/cmd/internal/cmdtest"
	"rouse/skills/module"
)

// TestMain makes the test binary act as rouse, in scripts and as a process of its own.
//
// Nothing of the desktop or the models of whoever runs the tests reaches them.
func TestMain(m *testing.M) {
	sandbox.Child()
	preview.Child()
	module.Child()
	if name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"); name != "rouse" { // which has the environment that a test gives it
		if err := errors.Join(cmdtest.Isolate(), cmdtest.Widen()); err != nil {
			log.Fatal(err)
		}
	}

	testscript.Main(m, map[string]func(){"rouse": main, "systemctl": fakeSystemctl, "journalctl": fakeJournalctl, "rouse-writer": writeInbox, "rouse-failing-disk": failingDisk})
}

// program is a rouse that a test started.
type program struct {
	*exec.Cmd
	stdout bytes.Buffer
	stderr cmdtest.Log // which is read while a daemon runs
}

// rouse prepares the program under test: this binary, called by its other name.
func rouse(t testing.TB, args ...string) *program {
	t.Helper()
	return rouseAs(t, "rouse", args...)
}

// rouseAs prepares this binary by another of the names that TestMain gives it.
func rouseAs(t testing.TB, name string, args ...string) *program {
	t.Helper()
	path, err := exec.LookPath(name) // testscript put it there
	if err != nil {
		t.Fatal(err)
	}

	p := &program{Cmd: exec.CommandContext(t.Context(), path, args...)}
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	p.Env = append(os.Environ(), "DBUS_SESSION_BUS_ADDRESS=", "XDG_RUNTIME_DIR=", "OPENAI_API_KEY=")
	return p
}

// runJSON executes a command line and decodes what it prints as JSON.
func runJSON(t testing.TB, into any, args ...string) {
	t.Helper()
	p := rouse(t, args...)
	if err := p.Run(); err != nil {
		t.Fatalf("rouse %s: %v\n%s%s", strings.Join(args, " "), err, p.stdout.String(), p.stderr.String())
	}

	if into != nil {
		if err := json.Unmarshal(p.stdout.Bytes(), into); err != nil {
			t.Fatalf("rouse %s: %v in\n%s", strings.Join(args, " "), err, p.stdout.String())
		}
	}
}

// serveUntilReady starts a daemon and returns once it printed its ready line.
func serveUntilReady(t testing.TB, config string) *program {
	t.Helper()
	p := rouse(t, "serve", "--config", config)
	p.untilReady(t)
	return p
}

// untilReady starts a daemon and returns once it printed its ready line.
func (p *program) untilReady(t testing.TB) {
	t.Helper()
	p.Stdout = nil
	p.explainFailures(t)
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}

	lines := bufio.NewScanner(out)
	for lines.Scan() {
		fmt.Fprintln(&p.stdout, lines.Text())
		if strings.HasPrefix(lines.Text(), "ready ") {
			go func() { // so that the pipe never fills
				for lines.Scan() {
				}
			}()
			return
		}
	}

	_ = p.Wait()
	t.Fatalf("the daemon did not get ready: %s", p.stderr.String())
}

// stop ends a daemon as Ctrl-C does.
func (p *program) stop(t testing.TB) {
	t.Helper()
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Fatalf("the daemon did not end well: %v\n%s", err, p.stderr.String())
	}
}

// kill ends it as a power cut does.
func (p *program) kill(t testing.TB) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait() // it was killed, which is no news
}

// countRows counts by SQL on an agent's database.
func countRows(t testing.TB, config, sql string) int {
	t.Helper()
	var out struct {
		Rows []map[string]any `json:"rows"`
	}
	runJSON(t, &out, "db", "bookkeeper", "query", sql, "--json", "--config", config)
	n, ok := out.Rows[0]["n"].(float64)
	if !ok {
		t.Fatalf("%s gave %v", sql, out.Rows)
	}

	return int(n)
}

func csv(file, rows int) string {
	var b strings.Builder
	b.WriteString("file,line\n")
	for i := range rows {
		fmt.Fprintf(&b, "%d,%d\n", file, i)
	}
	return b.String()
}
