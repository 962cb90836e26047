package bench

import (
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"
)

func TestBenchDB(t *testing.T) {
	program, err := exec.LookPath("sqlite3")
	if err != nil {
		program = ""
	}

	for _, path := range []string{"", program} {
		figures, err := measureDB(t.Context(), io.Discard, 1, dbSizes{rows: 3000, writes: 5, batch: 10, reads: 5, agents: 20, sqlite3: path})
		if err != nil {
			t.Fatal(err)
		}

		var out bytes.Buffer
		if err := printFigures(&out, figures); err != nil {
			t.Fatal(err)
		}

		for _, text := range []string{"import of 3,000 × 5", "undo of that import", "undo of an upsert by a text key", "insert of one row", "insert of 10 rows", "query of one row", "first row of each of 20 agents", "memory after 20 agents"} {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%q is missing in\n%s", text, &out)
			}
		}

		if strings.Contains(out.String(), "sqlite3 program") != (path != "") {
			t.Errorf("with sqlite3 at %q:\n%s", path, &out)
		}
	}
}
