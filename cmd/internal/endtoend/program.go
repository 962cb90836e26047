// Package endtoend runs rouse as a user would, for the tests in its subfolders.
package endtoend

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rouse/cmd/internal/cmdtest"
)

// Main runs the tests of a package that runs rouse as a user would. It builds rouse and puts it
// first on the PATH. It keeps the desktop and the models of the tests' user out of reach.
func Main(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "rouse")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()

	args := []string{"build", "-ldflags=-s", "-o", filepath.Join(dir, "rouse")}
	if Raced() {
		args = append(args, "-race")
	}
	if out, err := exec.CommandContext(context.Background(), "go", append(args, "rouse/cmd/rouse")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	if err := errors.Join(os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH")), cmdtest.Isolate(), cmdtest.Widen()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Program is a rouse process that a test started.
type Program struct {
	*exec.Cmd
	Out bytes.Buffer
	Err cmdtest.Log // can be read while a daemon runs
}

// Rouse prepares a command line of the program under test: this binary, under its second name.
func Rouse(t testing.TB, args ...string) *Program {
	t.Helper()
	return RouseAs(t, "rouse", args...)
}

// RouseAs prepares this binary under another of the names that TestMain gives it.
func RouseAs(t testing.TB, name string, args ...string) *Program {
	t.Helper()
	path, err := exec.LookPath(name) // testscript has put it there
	if err != nil {
		t.Fatal(err)
	}

	p := &Program{Cmd: exec.CommandContext(t.Context(), path, args...)}
	p.Stdout, p.Stderr = &p.Out, &p.Err
	p.Env = append(os.Environ(), "DBUS_SESSION_BUS_ADDRESS=", "XDG_RUNTIME_DIR=", "OPENAI_API_KEY=")
	return p
}

// RunJSON executes a command line and decodes its JSON output.
func RunJSON(t testing.TB, into any, args ...string) {
	t.Helper()
	p := Rouse(t, args...)
	if err := p.Run(); err != nil {
		t.Fatalf("rouse %s: %v\n%s%s", strings.Join(args, " "), err, p.Out.String(), p.Err.String())
	}

	if into != nil {
		if err := json.Unmarshal(p.Out.Bytes(), into); err != nil {
			t.Fatalf("rouse %s: %v in\n%s", strings.Join(args, " "), err, p.Out.String())
		}
	}
}

// Serve starts a daemon and returns when the daemon has printed its ready line.
func Serve(t testing.TB, config string) *Program {
	t.Helper()
	p := Rouse(t, "serve", "--config", config)
	p.UntilReady(t)
	return p
}

// UntilReady starts a daemon and returns when the daemon has printed its ready line.
func (p *Program) UntilReady(t testing.TB) {
	t.Helper()
	p.Stdout = nil
	p.ExplainFailures(t)
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}

	lines := bufio.NewScanner(out)
	for lines.Scan() {
		fmt.Fprintln(&p.Out, lines.Text())
		if strings.HasPrefix(lines.Text(), "ready ") {
			go func() { // read on, so that the pipe never fills
				for lines.Scan() {
				}
			}()
			return
		}
	}

	_ = p.Wait()
	t.Fatalf("the daemon did not get ready: %s", p.Err.String())
}

// Stop ends a daemon as Ctrl-C does.
func (p *Program) Stop(t testing.TB) {
	t.Helper()
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Fatalf("the daemon did not end well: %v\n%s", err, p.Err.String())
	}
}

// Kill ends a daemon with SIGKILL.
func (p *Program) Kill(t testing.TB) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait() // the error is that it was killed
}

// Quietly executes a command and returns its output.
func (p *Program) Quietly() (string, error) {
	err := p.Run()
	return p.Out.String() + p.Err.String(), err
}

// CountRows returns the result of an SQL count on an agent's database.
func CountRows(t testing.TB, config, sql string) int {
	t.Helper()
	var out struct {
		Rows []map[string]any `json:"rows"`
	}
	RunJSON(t, &out, "db", "bookkeeper", "query", sql, "--json", "--config", config)
	n, ok := out.Rows[0]["n"].(float64)
	if !ok {
		t.Fatalf("%s gave %v", sql, out.Rows)
	}

	return int(n)
}

// CSV returns the text of a CSV file. Each row contains the number of the file and that of the row.
func CSV(file, rows int) string {
	var b strings.Builder
	b.WriteString("file,line\n")
	for i := range rows {
		fmt.Fprintf(&b, "%d,%d\n", file, i)
	}
	return b.String()
}

const (
	toldLog   = 60  // maximum number of log lines
	toldStack = 400 // maximum number of lines of goroutine stacks
)

// toldHomes holds the homes of which a failed test has already logged the runs and the inbox. A
// home may have had several daemons.
var toldHomes sync.Map

// ExplainFailures makes a failed test log the end of the daemon's log, its goroutines if it still
// runs, and the ledger's record of unfinished runs. Call it before the start of the daemon.
func (p *Program) ExplainFailures(t testing.TB) {
	t.Helper()
	p.WaitDelay = 10 * time.Second
	p.Cancel = func() error { // if the test ends before the daemon
		if t.Failed() && p.Process.Signal(syscall.SIGQUIT) == nil {
			return nil // makes a Go program print its goroutines and exit
		}
		return p.Process.Kill()
	}

	t.Cleanup(func() {
		if !t.Failed() {
			return
		}

		_ = p.Wait() // usually already waited for
		logged, stacks, _ := strings.Cut(p.Err.String(), "SIGQUIT: quit")
		lines, dump := strings.Split(logged, "\n"), strings.Split(stacks, "\n")
		t.Logf("the daemon %v logged:\n%s", p.Args, strings.Join(lines[max(0, len(lines)-toldLog):], "\n"))
		if stacks != "" {
			t.Logf("its goroutines:\n%s", strings.Join(dump[:min(len(dump), toldStack)], "\n"))
		}
		if _, told := toldHomes.LoadOrStore(p.Dir+strings.Join(p.Args, "\x00"), true); !told {
			p.tellRuns(t)
		}
	})
}

// tellRuns logs the runs, the inbox, and the records of unfinished runs.
func (p *Program) tellRuns(t testing.TB) {
	t.Helper()
	at := slices.Index(p.Args, "serve")
	if at < 0 {
		return
	}

	ask := func(args ...string) []byte {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute) // the test's context is cancelled
		defer cancel()
		cmd := exec.CommandContext(ctx, p.Path, slices.Concat(args, p.Args[at+1:])...)
		cmd.Dir, cmd.Env = p.Dir, p.Env
		out, err := cmd.Output()
		t.Logf("rouse %s (%v):\n%s", strings.Join(args, " "), err, out)
		return out
	}

	ask("inbox", "--json")
	var runs []struct {
		ID      string `json:"id"`
		Outcome string `json:"outcome"`
	}
	if err := json.Unmarshal(ask("runs", "--json"), &runs); err != nil {
		t.Log(err)
	}
	for _, r := range runs {
		if r.Outcome == "" {
			ask("logs", r.ID)
		}
	}
}

// MustRun executes a command line that must succeed, and returns its output.
func MustRun(t testing.TB, args ...string) string {
	t.Helper()
	p := Rouse(t, args...)
	if err := p.Run(); err != nil {
		t.Fatalf("rouse %s: %v\n%s%s", strings.Join(args, " "), err, p.Out.String(), p.Err.String())
	}
	return p.Out.String() + p.Err.String()
}

// Refused executes a command line that must fail, and returns its output.
func Refused(t testing.TB, args ...string) string {
	t.Helper()
	p := Rouse(t, args...)
	if err := p.Run(); err == nil {
		t.Fatalf("rouse %s: nothing was refused\n%s", strings.Join(args, " "), p.Out.String())
	}
	return p.Err.String()
}

// AuditClean runs all audit checks on the home of a configuration. A daemon may serve the home.
func AuditClean(t testing.TB, config string, more ...string) {
	t.Helper()
	p := Rouse(t, append([]string{"audit", "--config", config}, more...)...)
	if err := p.Run(); err != nil {
		t.Errorf("the audit: %v\n%s%s", err, p.Out.String(), p.Err.String())
	}
}

// Unraced skips a test without concurrency under the race detector, which would only slow the test
// down.
func Unraced(t *testing.T) {
	t.Helper()
	if Raced() {
		t.Skip("there is nothing in it for the race detector")
	}
}

// Raced reports whether the race detector is on.
func Raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
