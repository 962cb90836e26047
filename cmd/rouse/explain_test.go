package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
)

const (
	toldLog   = 60  // lines of what a daemon logged last
	toldStack = 400 // lines of where its goroutines were
)

// toldHomes are those of which a failed test has told the runs and the inbox: one home may have had several daemons.
var toldHomes sync.Map

// explainFailures has a test that fails tell what its daemon logged, where its goroutines were if it was still there, and
// what the ledger says of runs that are not over. It is called before the daemon is started.
func (p *program) explainFailures(t testing.TB) {
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
		logged, stacks, _ := strings.Cut(p.stderr.String(), "SIGQUIT: quit")
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
func (p *program) tellRuns(t testing.TB) {
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
	var runs []api.Run
	if err := json.Unmarshal(ask("runs", "--json"), &runs); err != nil {
		t.Log(err)
	}
	for _, r := range runs {
		if r.Outcome == "" {
			ask("logs", r.ID)
		}
	}
}

// TestFailuresExplainThemselves: what a failed test tells of its daemon has what is needed to understand it.
func TestFailuresExplainThemselves(t *testing.T) {
	if os.Getenv("ROUSE_TEST_FAIL") == "" {
		t.Parallel()
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		again.Env = append(os.Environ(), "ROUSE_TEST_FAIL=yes")
		out, err := again.CombinedOutput()
		for _, want := range []string{"a run waits for an answer", "goroutine ", "rouse inbox --json (<nil>)", "Which account?", "rouse logs 1 (<nil>)"} {
			if err == nil || !strings.Contains(string(out), want) {
				t.Fatalf("%q is not told (%v):\n%s", want, err, out)
			}
		}
		return
	}

	s := modeltest.New(t, modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "clarify", Args: json.RawMessage(`{"question":"Which account?"}`)}}})
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
models: [{name: scripted, provider: openai, model: scripted, base_url: "` + s.URL + `/v1", api_key: none}]
agents: [{name: clerk}]
jobs: [{name: books, agent: clerk, prompt: Do the books.}]
`}), "rouse.yaml")
	serveUntilReady(t, config)
	_ = rouse(t, "run", "books", "--wait", "--config", config).Run() // it asks
	t.Fail()
}
