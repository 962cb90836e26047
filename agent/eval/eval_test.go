package eval_test

import (
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/eval"
	"rouse/internal/contract"
)

// TestScenarios checks that the production loop meets the expectations of each scenario in a
// separate workspace.
func TestScenarios(t *testing.T) {
	all, err := eval.Builtin()
	if err != nil || len(all) < 10 {
		t.Fatalf("%d scenarios: %v", len(all), err)
	}

	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			r, err := eval.Run(t.Context(), filepath.Join(t.TempDir(), "stage"), s, nil)
			if err != nil || len(r.Problems) > 0 {
				t.Errorf("%s (%v)", strings.Join(r.Problems, "\n"), err)
			}
		})
	}
}

// TestProblems checks that differences from the expectations are reported, and that a folder with
// content is rejected.
func TestProblems(t *testing.T) {
	row := contract.Of(t, "OSA-27")
	text := `about: everything is wrong
files: { there.txt: here }
prompt: Do it.
script:
  - calls: [{ file_read: { path: there.txt } }, { file_write: { path: made.txt, content: b } }]
  - say: Done.
  - say: Never asked for.
want:
  outcome: nothing
  files: { made.txt: a, missing.txt: a }
  absent: [there.txt]
  rows: { "select 1": "2" }
  script: { exit: ended_by_surface, says: Undone, calls: { done: 5 }, notices: [Never told], sees: [Never seen] }
`
	for _, key := range row.Between("what it did: ", ". A folder") {
		if !strings.Contains(text, key+":") {
			t.Errorf("the scenario does not check %s", key)
		}
	}
	s, err := eval.Parse("x/wrong.yaml", []byte(text))
	if err != nil || s.Name != "wrong" {
		t.Fatal(s, err)
	}

	dir := t.TempDir()
	r, err := eval.Run(t.Context(), dir, s, nil)
	if err != nil {
		t.Fatal(err)
	}

	for i, want := range []string{"the outcome is success, wanted nothing", `made.txt holds "b"`, "no file missing.txt", "there is a file there.txt", `"select 1" gives 1`,
		"the exit is final_response", `the record says "Done."`, "2 calls are done, wanted 5", `"Never told" is in 0 steps`, `no request held "Never seen"`, "1 turns of the script were not asked for"} {
		if i >= len(r.Problems) || !strings.Contains(r.Problems[i], want) {
			t.Errorf("problem %d of %q, want %q", i+1, r.Problems, want)
		}
	}

	if _, err := eval.Run(t.Context(), dir, s, nil); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("a folder in which something is: %v", err)
	}

	s.Script = s.Script[:1]
	if r, err := eval.Run(t.Context(), filepath.Join(dir, "second"), s, nil); err != nil || !strings.Contains(r.Problems[0], "the script has 1 turns") {
		t.Errorf("a script that is too short: %q %v", r.Problems, err)
	}
}

// TestParse checks that the error for an invalid scenario contains the file and the line.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"about: x":                          "x.yaml: there is no prompt",
		"prompt: x\nwant: {outcome: error}": "there is no script",
		"prompt: x\nscript: [{say: x}]":     "want.outcome is missing",
		"prompt: x\nscript: [{calls: [{file_read: {}, todo: {}}]}]\nwant: {outcome: error}": "a call of turn 1 is not one tool",
		"prompt: x\nscript: [{say: x}]\nwant: {outcome: error}\nfiles: {../x: y}":           "../x leads out of the workspace",
		"prompt: x\npromt: y": "line 2",
		"prompt: [":           "x.yaml",
	} {
		if _, err := eval.Parse("x.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
