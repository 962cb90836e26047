package files

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

// TestUndoneFile checks a file whose run was undone. If it is dropped again, it gets another run.
// If the undo restores it, it does not. --again runs a finished file once more.
func TestUndoneFile(t *testing.T) {
	endtoend.Unraced(t)
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"in/.keep": "", "done/.keep": "", "sorted/.keep": "", "rouse.yaml": `version: 1
home: ./home
defaults: {notify: {on: []}}
agents: [{name: clerk, workdir: ., grants: {read: [./in], write: [./in, ./sorted]}}]
jobs:
  - {name: book, agent: clerk, watch: {path: ./in, include: ["*.csv"], responsiveness: fast, on_success: {move: ./done}}, playbook: [{call: todo, with: {markdown: "- [x] a"}}]}
  - {name: sort, agent: clerk, watch: {path: ./in, include: ["*.pdf"], responsiveness: fast}, playbook: [{call: file_move, with: {from: "{{ .File.Path }}", to: sorted/}}]}
`})
	config := filepath.Join(dir, "rouse.yaml")
	say := func(want string, args ...string) {
		t.Helper()
		p := endtoend.Rouse(t, append(args, "--config", config)...)
		_ = p.Run() // the output shows whether it failed
		if got := p.Out.String() + p.Err.String(); !strings.Contains(got, want) {
			t.Errorf("rouse %s:\n%s\nwant: %s", strings.Join(args, " "), got, want)
		}
	}
	drop := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("bytes of a "+filepath.Ext(name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	exists := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	succeeded := func(job string, want int) {
		t.Helper()
		cmdtest.Until(t, fmt.Sprintf("success %d of %s", want, job), func() bool {
			var runs []api.Run
			endtoend.RunJSON(t, &runs, "runs", "--json", "--job", job, "--config", config)
			n := 0
			for _, r := range runs {
				if r.Outcome == "success" {
					n++
				}
			}
			return n == want
		})
	}

	endtoend.Serve(t, config)
	drop("in/a.csv")
	cmdtest.Until(t, "the file in done", func() bool { return exists("done/a.csv") })
	drop("in/a.csv")
	cmdtest.Until(t, "the second file to be removed", func() bool { return !exists("in/a.csv") })

	say("nothing of run 1", "undo", "1")
	drop("in/a.csv")
	cmdtest.Until(t, "the file of the undone run in done", func() bool { return exists("done/a-2.csv") })
	succeeded("book", 2)

	// An undo restores the file in the watched folder, where it stays without a run.
	drop("in/a.pdf")
	succeeded("sort", 1)
	say("a.pdf remains and gets no run by itself; to run it again: rouse run sort --file "+filepath.Join(dir, "in/a.pdf")+" --again", "undo", "3")
	drop("in/b.pdf")
	succeeded("sort", 2)
	say("run 3 processed it and was undone", "why", filepath.Join(dir, "in/a.pdf"))
	say("To process it again: rouse run sort", "run", "sort", "--file", filepath.Join(dir, "in/a.pdf"))
	if !exists("in/a.pdf") {
		t.Fatal("the file that was put back has gone")
	}
	drop("in/a.pdf")
	succeeded("sort", 3)

	drop("a.txt")
	for range 3 {
		say("success", "run", "book", "--wait", "--again", "--file", filepath.Join(dir, "a.txt"))
	}
	succeeded("book", 5)
	say("processed before, by run 8 (success)", "run", "book", "--wait", "--file", filepath.Join(dir, "a.txt"))
	say("--again goes with --file", "run", "book", "--again")
}
