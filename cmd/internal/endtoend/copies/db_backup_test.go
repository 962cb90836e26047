package copies

import (
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/internal/domain"
)

// TestRestoreBesideRuns copies and replaces a database while the daemon runs. The database is never
// replaced during a run of its agent. While a run of the agent waits, it is replaced only on
// request.
func TestRestoreBesideRuns(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t,
		modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "clarify", Args: []byte(`{"question":"Which account?"}`)}}},
		modeltest.Turn{Hang: true})
	text := `version: 1
home: ./home
models: [{name: scripted, provider: openai, model: scripted, base_url: "` + s.URL + `/v1", api_key: none}]
agents: [{name: clerk}]
jobs: [{name: books, agent: clerk, prompt: Do the books., overlap: allow}]
`

	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": text, "rows.csv": "a,b\n1,2\n"}), "rouse.yaml")
	say := func(args ...string) (out string, ok bool) {
		t.Helper()
		p := endtoend.Rouse(t, append(args, "--config", config)...)
		err := p.Run()
		return p.Out.String() + p.Err.String(), err == nil
	}

	must := func(args ...string) string {
		t.Helper()
		out, ok := say(args...)
		if !ok {
			t.Fatalf("rouse %v: %s", args, out)
		}
		return out
	}

	refused := func(part string, args ...string) {
		t.Helper()
		if out, ok := say(args...); ok || !strings.Contains(out, part) {
			t.Errorf("rouse %v: %s, want %q", args, out, part)
		}
	}

	state := func(run string, want domain.State) {
		t.Helper()
		var d api.RunDetail
		cmdtest.Until(t, "run "+run+" is "+string(want), func() bool {
			endtoend.RunJSON(t, &d, "show", run, "--json", "--config", config)
			return d.State == want
		})
	}

	rows := func(want int) {
		t.Helper()
		var out api.Rows
		endtoend.RunJSON(t, &out, "db", "clerk", "query", "select count(*) n from t", "--json", "--config", config)
		if n, _ := out.Rows[0]["n"].(float64); int(n) != want {
			t.Errorf("%v rows, want %d", n, want)
		}
	}

	p := endtoend.Serve(t, config)
	csv := filepath.Join(filepath.Dir(config), "rows.csv")
	must("db", "clerk", "import", csv, "--table", "t")
	must("db", "clerk", "backup")
	must("db", "clerk", "import", csv, "--table", "t")
	rows(2)

	must("run", "books")
	state("1", "waiting")
	refused("run 1 of clerk is half-way (waiting)", "db", "clerk", "restore", "last")
	refused("run 1 of clerk is half-way (waiting)", "db", "clerk", "reset")
	rows(2)
	must("db", "clerk", "restore", "last", "--force")
	rows(1)

	must("run", "books")
	state("2", "running")
	refused("run 2 of clerk is half-way (running)", "db", "clerk", "restore", "last", "--force")
	must("db", "clerk", "backup") // no run is open
	must("cancel", "2")
	state("2", "finished")
	must("cancel", "1")
	state("1", "finished")
	must("db", "clerk", "reset")
	if out := must("db", "clerk", "schema"); !strings.Contains(out, "no tables yet") {
		t.Error(out)
	}

	p.Stop(t)
	if out := must("db", "clerk", "backups"); strings.Count(out, "manual") != 2 || strings.Count(out, "-replaced") != 2 {
		t.Errorf("without the daemon: %s", out)
	}
}
