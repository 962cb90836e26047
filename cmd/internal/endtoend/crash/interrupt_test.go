//go:build unix

package crash

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestStopWaiting checks that an interrupted wait for a daemon's run prints that the run continues,
// and how to stop it.
func TestStopWaiting(t *testing.T) {
	t.Parallel()
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\nagents: [{name: ann}]\njobs: [{name: j, agent: ann, when: [{command: [sleep, \"600\"], timeout: 10m}], playbook: [{call: db_schema}]}]\n"}), "rouse.yaml")
	daemon := endtoend.Serve(t, config)

	for n, args := range [][]string{{"run", "j", "--wait"}, {"run", "j", "--wait", "--json"}} {
		p := endtoend.Rouse(t, append(args, "--config", config)...)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}

		runs := []api.Run{}
		cmdtest.Until(t, "a run that waits", func() bool {
			endtoend.RunJSON(t, &runs, "runs", "--json", "--config", config)
			return len(runs) == n+1
		})
		if err := p.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(); err == nil {
			t.Errorf("%v: no failure", args)
		}
		if said := p.Err.String(); !strings.Contains(said, "run "+runs[0].ID+" goes on in the daemon") || !strings.Contains(said, "rouse stop "+runs[0].ID) {
			t.Errorf("%v: %q", args, said)
		}

		endtoend.RunJSON(t, nil, "cancel", runs[0].ID, "--json", "--config", config)
	}

	daemon.Stop(t)
}
