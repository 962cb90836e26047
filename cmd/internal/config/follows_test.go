package config_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// What is wrong with after is said at its place, and a circle with all of its jobs and lines.
func TestFollows(t *testing.T) {
	for jobs, say := range map[string]string{
		`{name: j, agent: a, after: [k], prompt: "{{ .After.Job }} {{ .After.Run }} {{ .After.Summary }} {{ range .After.Artifacts }}{{ .Name }}{{ end }}"}`: "",
		`{name: j, agent: a, after: k, when: [{that: "After.Outcome == 'success' && len(After.Artifacts) > 0"}], prompt: x}`:                                 "",
		`{name: j, agent: a, after: [{job: k, on: [error, timeout]}], schedule: "@daily", prompt: x}`:                                                        "",
		`{name: j, agent: a, after: [gone], prompt: x}`:                                                                                                      `jobs[1].after[0]: there is no job "gone"`,
		`{name: j, agent: a, after: [""], prompt: x}`:                                                                                                        `jobs[1].after[0]: is empty`,
		`{name: j, agent: a, after: [{on: [error]}], prompt: x}`:                                                                                             `jobs[1].after[0]: the key "job" is missing`,
		`{name: j, agent: a, after: [k, {job: k, on: [error]}], prompt: x}`:                                                                                  `jobs[1].after[1]: the job "k" is there already`,
		`{name: j, agent: a, after: [{job: k, on: []}], prompt: x}`:                                                                                          `jobs[1].after[0].on: is empty`,
		`{name: j, agent: a, after: [{job: k, on: [sucess]}], prompt: x}`:                                                                                    `did you mean "success"?`,
		`{name: j, agent: a, after: [k], prompt: "{{ .After.Sumary }}"}`:                                                                                     `did you mean "Summary"?`,
		`{name: j, agent: a, prompt: "{{ .After.Job }}"}`:                                                                                                    `only a run that follows one of another job has After`,
		`{name: j, agent: a, after: [j], prompt: x}`:                                                                                                         "j follows j (rouse.yaml:5)",
		`{name: j, agent: a, after: [m], prompt: x}` + "\n- " + `{name: m, agent: a, after: [k, j], prompt: x}`:                                              "jobs[1].after: goes in a circle, in which each run would start the next for ever: j follows m (rouse.yaml:5), m follows j (rouse.yaml:6)",
		`{name: m, agent: a, after: [n], prompt: x}` + "\n- " + `{name: n, agent: a, after: [k], prompt: x}`:                                                 "",
		`{name: m, agent: a, after: [k, n], prompt: x}` + "\n- " + `{name: n, agent: a, after: [k], prompt: x}`:                                              "", // two ways to one job are no circle
		`{name: m, agent: a, after: [{job: n, on: [error]}], enabled: false, prompt: x}` + "\n- " + `{name: n, agent: a, after: [m], prompt: x}`:             "m follows n (rouse.yaml:5), n follows m (rouse.yaml:6)",
	} {
		path := write(t, "rouse.yaml", fmt.Sprintf("agents: [{name: a}]\njobs:\n- {name: k, agent: a, prompt: x}\n# one\n- %s\n", jobs))
		_, err := load(path, nil)
		said := strings.ReplaceAll(fmt.Sprint(err), filepath.Dir(path)+string(filepath.Separator), "")
		switch {
		case say == "" && err != nil:
			t.Errorf("%s: %v", jobs, err)
		case say != "" && (err == nil || !strings.Contains(said, say)):
			t.Errorf("%s: %v, want %s", jobs, err, say)
		case strings.Count(fmt.Sprint(err), "circle") > 1:
			t.Errorf("a circle is told more than once: %v", err)
		}
	}

	off := "agents: [{name: a}]\njobs:\n- {name: k, agent: a, enabled: false, prompt: x}\n- {name: j, agent: a, after: [k], prompt: x}\n"
	cfg, err := load(write(t, "rouse.yaml", off), nil)
	if err != nil || len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0].Message, `the job "k" is disabled, so there are no runs of it to follow`) {
		t.Errorf("it follows a disabled job: %v %v", err, cfg)
	}
}
