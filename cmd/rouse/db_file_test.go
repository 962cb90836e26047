package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestDatabaseFilesThroughTheDaemon checks that import and export give the same results with and
// without a daemon, and that a long import shows its progress.
func TestDatabaseFilesThroughTheDaemon(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("n,word\n")
	const rows = 120_000
	for i := range rows {
		fmt.Fprintf(&b, "%d,word\n", i)
	}

	dir := cmdtest.Write(t, map[string]string{
		"rouse.yaml": "version: 1\nhome: ./home\nagents: [{name: clerk, workdir: ./work}]\njobs: [{name: j, agent: clerk, playbook: [{call: db_schema}]}]\n",
		"many.csv":   b.String(), "ragged.csv": "a,b\n1\n",
	})
	config := filepath.Join(dir, "rouse.yaml")
	p := endtoend.Serve(t, config)
	defer p.Stop(t)

	var in api.Imported
	endtoend.RunJSON(t, &in, "db", "clerk", "import", filepath.Join(dir, "many.csv"), "--json", "--config", config)
	if in.RowsImported != rows || in.Table != "many" {
		t.Errorf("%+v", in)
	}

	var out api.Exported
	to := filepath.Join(dir, "out.csv")
	endtoend.RunJSON(t, &out, "db", "clerk", "export", "select n, word from many order by n", "--to", to, "--json", "--config", config)
	got, err := os.ReadFile(to)
	if err != nil || out.RowsExported != rows || string(got) != b.String() {
		t.Errorf("%+v, %d bytes, %v", out, len(got), err)
	}

	for _, c := range [][]string{
		{"import", filepath.Join(dir, "ragged.csv"), "more than half of its 1 rows do not fit"},
		{"export", "select * from nowhere", "no such table"},
	} {
		p := endtoend.Rouse(t, "db", "clerk", c[0], c[1], "--config", config)
		if err := p.Run(); err == nil || !strings.Contains(p.Err.String(), c[2]) {
			t.Errorf("%s: %v, %s", c[0], err, p.Err.String())
		}
	}
}
