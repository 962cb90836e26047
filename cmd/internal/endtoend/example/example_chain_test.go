package example

import (
	"os"
	"strings"
	"testing"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestExampleChain checks that a report contains the summary of a successful run, and that a failed
// run causes a notice.
func TestExampleChain(t *testing.T) {
	e := newExample(t, "chain")
	p := endtoend.Serve(t, e.config)
	e.run("import")
	cmdtest.Until(t, "the report", func() bool { return len(e.runs()) == 2 && e.runs()[0].Outcome == "success" })
	e.wants(e.runs()[1], "success", "3 sales are in the books, 52.25 in all")
	if report := e.read("out", "report.md"); !strings.Contains(report, "# After run 1 of import") || !strings.Contains(report, "3 sales are in the books, 52.25 in all") || !strings.Contains(report, "- sums.txt (version 1, ") {
		t.Errorf("the report: %s", report)
	}

	if err := os.Remove(e.path("desk", "sales.csv")); err != nil {
		t.Fatal(err)
	}
	_ = endtoend.Rouse(t, "run", "import", "--wait", "--config", e.config).Run() // the run fails
	cmdtest.Until(t, "the alarm", func() bool {
		return len(e.runs()) == 4 && e.runs()[0].Job == "alarm" && e.runs()[0].Outcome == "success"
	})
	e.wants(e.runs()[0], "success", "told of run 3 of import")
	if !strings.Contains(e.notices(), "import has failed") {
		t.Errorf("nobody is told: %s", e.notices())
	}
	p.Stop(t)
}
