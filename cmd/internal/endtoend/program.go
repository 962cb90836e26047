// Package endtoend runs rouse as a person would, for the tests in the folders below it.
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

// Main runs the tests of a package that uses the program as a person would. It builds rouse and puts
// it first on the PATH. Nothing of the desktop or the models of whoever runs the tests reaches them.
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

// Program is a rouse that a test started.
type Program struct {
	*exec.Cmd
	Out bytes.Buffer
	Err cmdtest.Log // which is read while a daemon runs
}

// Rouse prepares the program under test: this binary, called by its other name.
func Rouse(t testing.TB, args ...string) *Program {
	t.Helper()
	return RouseAs(t, "rouse", args...)
}

// RouseAs prepares this binary by another of the names that TestMain gives it.
func RouseAs(t testing.TB, name string, args ...string) *Program {
	t.Helper()
	path, err := exec.LookPath(name) // testscript put it there
	if err != nil {
		t.Fatal(err)
	}

	p := &Program{Cmd: exec.CommandContext(t.Context(), path, args...)}
	p.Stdout, p.Stderr = &p.Out, &p.Err
	p.Env = append(os.Environ(), "DBUS_SESSION_BUS_ADDRESS=", "XDG_RUNTIME_DIR=", "OPENAI_API_KEY=")
	return p
}

// RunJSON executes a command line and decodes what it prints as JSON.
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

// Serve starts a daemon and returns once it printed its ready line.
func Serve(t testing.TB, config string) *Program {
	t.Helper()
	p := Rouse(t, "serve", "--config", config)
	p.UntilReady(t)
	return p
}

// UntilReady starts a daemon and returns once it printed its ready line.
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
			go func() { // so that the pipe never fills
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

// Kill ends it as a power cut does.
func (p *Program) Kill(t testing.TB) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait() // it was killed, which is no news
}

// Quietly executes a command, and returns all that it prints.
func (p *Program) Quietly() (string, error) {
	err := p.Run()
	return p.Out.String() + p.Err.String(), err
}

// CountRows counts by SQL on an agent's database.
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

// CSV is a file of rows, each with the number of the file and its own.
func CSV(file, rows int) string {
	var b strings.Builder
	b.WriteString("file,line\n")
	for i := range rows {
		fmt.Fprintf(&b, "%d,%d\n", file, i)
	}
	return b.String()
}

const (
	toldLog   = 60  // lines of what a daemon logged last
	toldStack = 400 // lines of where its goroutines were
)

// toldHomes are those of which a failed test has told the runs and the inbox: one home may have had several daemons.
var toldHomes sync.Map

// ExplainFailures has a test that fails tell what its daemon logged, where its goroutines were if it was still there, and
// what the ledger says of runs that are not over. It is called before the daemon is started.
func (p *Program) ExplainFailures(t testing.TB) {
	t.Helper()
	p.WaitDelay = 10 * time.Second
	p.Cancel = func() error { // when the test is over and the daemon is not
		if t.Failed() && p.Process.Signal(syscall.SIGQUIT) == nil {
			return nil // on which a Go program prints its goroutines, and ends
		}
		return p.Process.Kill()
	}

	t.Cleanup(func() {
		if !t.Failed() {
			return
		}

		_ = p.Wait() // mostly it was waited for
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

// tellRuns logs the runs, what waits in the inbox, and the records of the runs that are not over.
func (p *Program) tellRuns(t testing.TB) {
	t.Helper()
	at := slices.Index(p.Args, "serve")
	if at < 0 {
		return
	}

	ask := func(args ...string) []byte {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute) // that of the test is over
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

// MustRun executes a command line, and returns what it prints.
func MustRun(t testing.TB, args ...string) string {
	t.Helper()
	p := Rouse(t, args...)
	if err := p.Run(); err != nil {
		t.Fatalf("rouse %s: %v\n%s%s", strings.Join(args, " "), err, p.Out.String(), p.Err.String())
	}
	return p.Out.String() + p.Err.String()
}

// Refused executes a command line that has to fail, and returns what it says.
func Refused(t testing.TB, args ...string) string {
	t.Helper()
	p := Rouse(t, args...)
	if err := p.Run(); err == nil {
		t.Fatalf("rouse %s: nothing was refused\n%s", strings.Join(args, " "), p.Out.String())
	}
	return p.Err.String()
}

// AuditClean proves all that can be proved of the home of a configuration, which may be served.
func AuditClean(t testing.TB, config string, more ...string) {
	t.Helper()
	p := Rouse(t, append([]string{"audit", "--config", config}, more...)...)
	if err := p.Run(); err != nil {
		t.Errorf("the audit: %v\n%s%s", err, p.Out.String(), p.Err.String())
	}
}

// Unraced skips a test in which nothing goes on beside anything else: the race detector would see nothing, and take long.
func Unraced(t *testing.T) {
	t.Helper()
	if Raced() {
		t.Skip("there is nothing in it for the race detector")
	}
}

// Raced says whether the race detector is on.
func Raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
