package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

const recoveryConfig = `version: 1
home: ./home
agents: [{name: scribe, workdir: ./work}]
jobs:
  - name: write
    agent: scribe
    bounds: {calls: 1000}
    playbook:
      - {call: file_write, each: "= 1..60", with: {path: lines.txt, mode: append, content: "{{ .item }}\n"}}
`

var cutOffLine = regexp.MustCompile(`call 1 for item (\d+), .*file_write .*"content":"(\d+)\\n"`)

// TestRecoveryKills kills the daemon at random times while a playbook appends lines to a file. No
// journal protects the file from a repeated write. If a call is cut off, the run waits for its
// owner, who checks the file. At the end the file must contain every line once, in order (UNI-09).
// ROUSE_TEST_KILLS sets the number of questions if it is less than 20.
func TestRecoveryKills(t *testing.T) {
	t.Parallel()
	asked, err := strconv.Atoi(os.Getenv("ROUSE_TEST_KILLS"))
	if err != nil {
		asked = 3
	}

	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": recoveryConfig})
	config := filepath.Join(dir, "rouse.yaml")
	o := caretaker{t: t, config: config, file: filepath.Join(dir, "work", "lines.txt"), said: map[string]int{}}
	p := endtoend.Serve(t, config)
	endtoend.RunJSON(t, nil, "run", "write", "--json", "--config", config)
	kills := 0
	for ; o.answers < min(asked, 20) && o.look() != "success"; kills++ {
		before := len(o.lines())
		cmdtest.Until(t, "a line more, or the end", func() bool { return o.look() == "success" || len(o.lines()) > before })
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // kill at a random time
		p.Kill(t)
		p = endtoend.Serve(t, config)
	}

	cmdtest.Until(t, "the end of the run", func() bool { return o.look() == "success" })
	p.Stop(t)
	endtoend.AuditClean(t, config)
	if lines := o.lines(); len(lines) != 60 {
		t.Errorf("%d lines", len(lines))
	}

	for i, line := range o.lines() {
		if line != fmt.Sprint(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}

	t.Logf("%d kills, %d of them cut a call off: %v", kills, o.answers, o.said)
}

// caretaker acts as the owner of one run.
type caretaker struct {
	t            *testing.T
	config, file string
	answers      int
	said         map[string]int
}

// lines returns the lines that the run has written.
func (o *caretaker) lines() []string {
	text, err := os.ReadFile(o.file)
	if err != nil && !os.IsNotExist(err) {
		o.t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// look answers the run's questions, retries it if it was cut off too often, and returns its
// outcome.
func (o *caretaker) look() string {
	o.t.Helper()
	var runs []api.Run
	var items []api.Item
	endtoend.RunJSON(o.t, &runs, "runs", "--json", "--config", o.config)
	endtoend.RunJSON(o.t, &items, "inbox", "--json", "--config", o.config)

	for _, i := range items {
		if i.Kind == "info" {
			endtoend.RunJSON(o.t, nil, "answer", i.ID, "seen", "--json", "--config", o.config)
			continue
		}

		m := cutOffLine.FindStringSubmatch(strings.ReplaceAll(i.Message, "\n", " "))
		if i.Kind != "recovery" || m == nil || m[1] != m[2] {
			o.t.Fatalf("it asks %+v", i)
		}

		answer := "again"
		if lines := o.lines(); len(lines) > 0 && lines[len(lines)-1] == m[1] {
			answer = "done"
		}

		endtoend.RunJSON(o.t, nil, "answer", i.ID, answer, "--json", "--config", o.config)
		o.answers++
		o.said[answer]++
	}

	switch r := runs[0]; r.Outcome {
	case "", "success":
	case "interrupted":
		endtoend.RunJSON(o.t, nil, "retry", "1", "--json", "--config", o.config)
	default:
		o.t.Fatalf("the run ended %s: %s", r.Outcome, r.Error)
	}

	return string(runs[0].Outcome)
}
