package check_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/config/configtest"
	"rouse/cmd/internal/config/yaml"
)

// TestWatchModes checks the settings and names that fit each mode of a watch. Mistakes are
// reported with a hint, and valid settings are accepted.
func TestWatchModes(t *testing.T) {
	const once = "playbook: [{call: file_read, with: {path: %s}}]"
	each := func(list, path string) string {
		return fmt.Sprintf("playbook: [{call: file_read, each: %s, with: {path: %q}}]", list, path)
	}
	read := func(path string) string { return fmt.Sprintf(once, fmt.Sprintf("%q", path)) }
	for name, c := range map[string]struct{ watch, work, say string }{
		"per_file":             {"", read("{{ .File.Path }}"), ""},
		"batch":                {"mode: batch, max_wait: 1m, max_files: 20, on_success: {move: ./done}, follow_symlinks: true", each("'= Files'", "{{ .item.Path }}"), ""},
		"batch in a prompt":    {"mode: batch", `prompt: "{{ len .Files }} of {{ .More }} in {{ .Manifest }}: {{ range .Files }}{{ .Path }}{{ end }}"`, ""},
		"some of a batch":      {"mode: batch", each("'= filter(Files, .Size > 0)'", "{{ .item.Path }}"), ""},
		"converge":             {"mode: converge, existing: process, max_wait: 1m, on_success: leave", each("'= Changes.Added'", "{{ .Folder }}/{{ .item }} {{ .Round }}"), ""},
		"no mode":              {"mode: bacth", read("{{ .Files }} {{ .Folder }} {{ .File.Path }}"), `jobs[0].watch.mode: "bacth" is none of per_file, batch, converge; did you mean "batch"?`},
		"file of a batch":      {"mode: batch", read("{{ .File.Path }}"), `with.path: a run of a batch has many files: Files, not File; in a playbook each: "= Files" makes the call for each of them, with {{ .item.Path }}`},
		"file in an if":        {"mode: batch", `playbook: [{call: todo, if: "File.Size > 0", with: {markdown: x}}]`, `if: a run of a batch has many files: Files, not File`},
		"file of a folder":     {"mode: converge", read("{{ .File.Path }}"), `only a run of a watch with mode: per_file has File, and the mode is converge; this one has Folder, Changes, Round`},
		"files of a file":      {"", each("'= Files'", "{{ .item.Path }}"), `each: only a run of a watch with mode: batch has Files, and the mode is per_file; this one has File`},
		"changes of a batch":   {"mode: batch", `prompt: "{{ .Changes.Added }}"`, `jobs[0].prompt: only a run of a watch with mode: converge has Changes, and the mode is batch; this one has Files, More, Manifest`},
		"a slip":               {"mode: batch", `prompt: "{{ .files }}"`, `there is no value "files"; did you mean "Files"?`},
		"a slip in an item":    {"mode: batch", each("'= Files'", "{{ .item.Pth }}"), `there is no field of .item "Pth"; did you mean "Path"?`},
		"a slip in an expr":    {"mode: batch", `playbook: [{call: todo, each: "= Files", if: "item.Siez > 0", with: {markdown: x}}]`, `if: there is no field of .item "Siez"; did you mean "Size"?`},
		"a slip in a change":   {"mode: converge", each("'= Changes.Aded'", "{{ .item }}"), `each: there is no field of .Changes "Aded"; did you mean "Added"?`},
		"part of a list":       {"mode: batch", read("{{ .Files.Path }}"), `Files is a list, of which "Path" cannot be taken; take each of them: {{ range .Files }}`},
		"an item saved":        {"mode: batch", `playbook: [{call: file_read, with: {path: a}, save: Files}]`, `save "Files" hides a name that every run has`},
		"saved under a name":   {"", `playbook: [{call: file_read, with: {path: a}, save: Files}, {call: todo, with: {markdown: "{{ .Files.Path }}"}}]`, ""},
		"wait for one file":    {"max_wait: 1m", read("{{ .File.Path }}"), `jobs[0].watch.max_wait: goes with mode: batch or converge; with per_file a file starts a run as soon as it is ready`},
		"one file of many":     {"max_files: 2", read("{{ .File.Path }}"), `jobs[0].watch.max_files: goes with mode: batch, not per_file`},
		"files of a folder":    {"mode: converge, max_files: 2", read("x"), `jobs[0].watch.max_files: goes with mode: batch, not converge`},
		"too many":             {"mode: batch, max_files: 10001", read("x"), `jobs[0].watch.max_files: is at most 10000`},
		"none":                 {"mode: batch, max_files: 0", read("x"), `jobs[0].watch.max_files: must be more than 0`},
		"moved away":           {"mode: converge, on_success: {move: ./done}", read("x"), `jobs[0].watch.on_success: cannot move files with mode: converge`},
		"deleted":              {"mode: converge, on_failure: delete", read("x"), `jobs[0].watch.on_failure: cannot delete files with mode: converge`},
		"manifest in a title":  {"mode: batch", read("x") + `, notify: {title: "{{ .Manifest }}"}`, `notify.title: the manifest is removed when a run has ended; .Files tells what was in it`},
		"a file as its path":   {"mode: per_file", read("{{ .File }}"), `with.path: {{ .File }} is all that is known of the file, which is no path`},
		"moved by name":        {"on_success: {move: './done/{{ .Scheduled.Format \"2006\" }}/{{ .File.Name }}'}, on_failure: {move: './bad/{{ .Outcome }}'}", read("x"), ""},
		"moved by name, all":   {"mode: batch, on_success: {move: './done/{{ .File.Name }}'}", read("x"), ""},
		"moved by a slip":      {"on_success: {move: './done/{{ .File.Nmae }}'}", read("x"), `jobs[0].watch.on_success.move: there is no field of .File "Nmae"; did you mean "Name"?`},
		"moved by the whole":   {"on_success: {move: './done/{{ .File }}'}", read("x"), `on_success.move: {{ .File }} is all that is known of the file, which is no path`},
		"moved by a summary":   {"on_failure: {move: './bad/{{ .Summary }}'}", read("x"), `on_failure.move: there is no value "Summary"`},
		"moved anywhere":       {"on_success: {move: '{{ .File.Name }}'}", read("x"), `on_success.move: begins with a template; begin with a folder`},
		"moved out":            {"on_success: {move: './done/{{ .File.Name }}/../..'}", read("x"), `on_success.move: has .. after a template`},
		"moved to itself":      {"on_success: {move: './in/{{ .File.Name }}'}", read("x"), `on_success: moves files to where they are`},
		"a template elsewhere": {"", read("x") + `, expect: [{file: './{{ .File.Name }}'}]`, `expect[0].file: "./{{ .File.Name }}" has a template, and templates are not expanded here; write the path itself`},
		"collected by day":     {`collect: {until: "08:00"}`, each("'= Files'", "{{ .item.Path }}"), ""},
		"collected by span":    {"mode: batch, collect: {every: 24h}", each("'= Files'", "{{ .item.Path }}"), ""},
		"collected one file":   {`collect: {until: "08:00"}`, read("{{ .File.Path }}"), `with.path: a run of a batch has many files`},
		"collected how":        {"mode: per_file, collect: {every: 24h}", read("x"), `jobs[0].watch.collect: goes with mode: batch, not per_file`},
		"collected twice":      {`collect: {every: 24h, until: "08:00"}`, read("x"), `jobs[0].watch.collect: give exactly one of until (until: "08:00") and every (every: 24h)`},
		"collected never":      {"collect: {}", read("x"), `jobs[0].watch.collect: give exactly one of until`},
		"collected at":         {`collect: {until: "8am"}`, read("x"), `jobs[0].watch.collect.until: "8am" is not a time of day; write until: "08:00"`},
		"files in a title":     {"mode: batch", read("x") + `, notify: {title: "{{ len .Files }} files"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := fmt.Sprintf("agents: [{name: a}]\njobs:\n  - {name: j, agent: a, watch: {path: ./in, %s}, %s}\n", c.watch, c.work)
			_, err := configtest.Load(configtest.Write(t, "rouse.yaml", text), nil)
			switch {
			case c.say == "" && err != nil:
				t.Errorf("%v\n%s", err, text)
			case c.say != "" && (err == nil || !strings.Contains(err.Error(), c.say)):
				t.Errorf("%v, want %s", err, c.say)
			case c.say != "" && strings.Count(err.Error(), "rouse.yaml:") > 1:
				t.Errorf("it is said more than once: %v", err)
			}
		})
	}

	for name, say := range map[string]string{"File": "only a run that a watch started has a File, and this job has no watch",
		"Files": "only a run of a watch with mode: batch has Files, and this job has no watch", "Round": "only a run of a watch with mode: converge has Round, and this job has no watch",
		"Body": "only a run that a webhook started has Body, and this job has no webhook"} {
		_, err := configtest.Load(configtest.Write(t, "rouse.yaml", fmt.Sprintf("agents: [{name: a}]\njobs: [{name: j, agent: a, prompt: '{{ .%s }}'}]\n", name)), nil)
		if err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The defaults of a watch depend on its mode. The shown configuration is equivalent.
func TestWatchDefaults(t *testing.T) {
	for mode, want := range map[string]string{"per_file": "process 0s 0", "batch": "ignore 30s 500", "converge": "ignore 30s 0"} {
		path := configtest.Write(t, "rouse.yaml", "home: ./h\nagents: [{name: a}]\njobs: [{name: j, agent: a, prompt: x, watch: {path: ./in, mode: "+mode+"}}]\n")
		for range 2 {
			cfg, err := configtest.Load(path, nil)
			if err != nil {
				t.Fatal(err)
			}

			w := cfg.Jobs[0].Watch
			if got := fmt.Sprintf("%s %s %d", w.Existing, time.Duration(w.MaxWait), w.MaxFiles); got != want {
				t.Errorf("%s: %s, want %s", mode, got, want)
			}

			shown, err := yaml.Show(cfg)
			if err != nil {
				t.Fatal(err)
			}

			path = configtest.Write(t, "rouse.yaml", string(shown))
		}
	}
}

// TestBatchFitsItsCalls checks that a batch by default is not larger than the calls of its
// playbook allow. Configuring a larger one causes a warning.
func TestBatchFitsItsCalls(t *testing.T) {
	const each = "{call: file_read, each: '= Files', with: {path: '{{ .item.Path }}'}}"
	for name, c := range map[string]struct {
		watch, bounds, work string
		want                int
		warned              string
	}{
		"a model":        {"", "", "prompt: x", 500, ""},
		"no each":        {"", "", "playbook: [{call: file_read, with: {path: '{{ .Manifest }}'}}]", 500, ""},
		"the default":    {"", "", "playbook: [" + each + ", {call: todo, with: {markdown: x}}]", 99, ""},
		"twice":          {"", "bounds: {calls: 1000}, ", "playbook: [" + each + ", {call: todo, each: '= filter(Files, .Size > 0)', with: {markdown: x}}]", 500, ""},
		"few calls":      {"", "bounds: {calls: 21}, ", "playbook: [" + each + ", " + each + "]", 10, ""},
		"not one":        {"", "bounds: {calls: 1}, ", "playbook: [" + each + ", " + each + "]", 1, "a run of 1 files makes 2 calls, and ends after 1"},
		"asked for":      {", max_files: 200", "", "playbook: [" + each + "]", 200, "a run of 200 files makes 200 calls, and ends after 100 (bounds.calls): raise that, or take fewer files"},
		"and allowed":    {", max_files: 200", "bounds: {calls: 200}, ", "playbook: [" + each + "]", 200, ""},
		"of other lists": {"", "", "playbook: [{call: todo, each: [1, 2], with: {markdown: x}}]", 500, ""},
	} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "agents: [{name: a}]\njobs:\n  - {name: j, agent: a, "+c.bounds+"watch: {path: ./in, mode: batch"+c.watch+"}, "+c.work+"}\n", "in/.keep", ""), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		warned := ""
		for _, w := range cfg.Warnings {
			warned += w.Message
		}
		if got := cfg.Jobs[0].Watch.MaxFiles; got != c.want || (c.warned == "") != (warned == "") || !strings.Contains(warned, c.warned) {
			t.Errorf("%s: %d files, %q; want %d, %q", name, got, warned, c.want, c.warned)
		}
	}
}

// Mistakes in after are reported at their position, and a cycle with all of its jobs and lines.
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
		`{name: m, agent: a, after: [k, n], prompt: x}` + "\n- " + `{name: n, agent: a, after: [k], prompt: x}`:                                              "", // two paths to one job are not a cycle
		`{name: m, agent: a, after: [{job: n, on: [error]}], enabled: false, prompt: x}` + "\n- " + `{name: n, agent: a, after: [m], prompt: x}`:             "m follows n (rouse.yaml:5), n follows m (rouse.yaml:6)",
	} {
		path := configtest.Write(t, "rouse.yaml", fmt.Sprintf("agents: [{name: a}]\njobs:\n- {name: k, agent: a, prompt: x}\n# one\n- %s\n", jobs))
		_, err := configtest.Load(path, nil)
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
	cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", off), nil)
	if err != nil || len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0].Message, `the job "k" is disabled, so there are no runs of it to follow`) {
		t.Errorf("it follows a disabled job: %v %v", err, cfg)
	}
}
