package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/agent"
	"rouse/cmd/internal/config"
)

// OSA-40: the mode decides where an agent works, isolated over its workdir; what contradicts it is refused where it stands.
func TestModes(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"":                                 "folder h/agents/a/work",
		"workdir: ./books":                 "folder books",
		"mode: folder, workdir: ./books":   "folder books",
		"mode: none":                       "none h/agents/a/work",
		"mode: isolated":                   "isolated h/agents/a/work",
		"mode: isolated, min_tier: A":      "isolated h/agents/a/work",
		"mode: isolated, workdir: ./books": "isolated h/agents/a/work reads books",
		"mode: isolated, workdir: ./h/agents/a/work":                       "isolated h/agents/a/work",
		"mode: isolated, workdir: ./books, private: {workdir: false}":      "isolated h/agents/a/work reads books openly",
		"mode: isolated, workdir: ./books, grants: {write: [./books/out]}": "rouse.yaml:3:70: a: agents[0].grants.write: with mode: isolated the agent writes in a folder of its own",
		"mode: isolated, sandbox: off, reason: x":                          "agents[0].sandbox: mode: isolated cannot be held",
		"mode: isolated, min_tier: C":                                      "agents[0].min_tier: mode: isolated needs programs that are confined on tier B or A",
		"mode: none, workdir: ./books":                                     "agents[0].workdir: with mode: none the agent has no file tools",
		"mode: none, grants: {read: [./books]}":                            "agents[0].grants.read: with mode: none",
		"mode: none, grants: {write: [./books]}":                           "agents[0].grants.write: with mode: none",
		"mode: none, grants: {commands: [{argv: [date]}]}":                 "agents[0].grants.commands: with mode: none the agent runs no programs",
		"mode: none, executor: {argv: [cat], output: text}":                "agents[0].executor: is a program",
		"mode: none, mcp: [files]":                                         "agents[0].mcp[0]: with mode: none the agent runs no programs",
		"mode: sandbox":                                                    "agents[0].mode: ",
	} {
		path := write(t, "rouse.yaml", "version: 1\nhome: ./h\nagents: [{name: a, "+said+"}]\nmcp: [{name: files, argv: [/bin/cat]}]\n", "books/may.csv", "x")
		cfg, err := load(path, nil)
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", said, err, want)
			}
			continue
		}
		if got := worksAt(cfg, filepath.Dir(path)); got != want {
			t.Errorf("%s: %s, want %s", said, got, want)
		}
	}
}

// worksAt is where the first agent works and what it reads, within a folder.
func worksAt(cfg *config.Config, dir string) string {
	a := &cfg.Agents[0]
	out := a.Mode + " " + string(a.Workdir)
	all, public := a.Reads()
	for _, folder := range all {
		out += " reads " + folder
		if slices.Contains(public, folder) {
			out += " openly"
		}
	}
	return strings.ReplaceAll(filepath.ToSlash(out), filepath.ToSlash(dir)+"/", "")
}

// OSA-40: a playbook that needs a tool of files is refused where its agent has none.
func TestPlaybookWithoutHost(t *testing.T) {
	t.Parallel()
	const text = "version: 1\nhome: ./h\nagents: [{name: a, mode: MODE}]\njobs: [{name: j, agent: a, playbook: [{call: file_search, with: {pattern: x}}]}]\n"
	for mode, want := range map[string]string{"folder": "", "isolated": "", "none": `the agent "a" has mode: none, so it has no file_search`} {
		path := write(t, "rouse.yaml", strings.Replace(text, "MODE", mode, 1))
		_, err := config.Load(config.LoadOptions{Path: path, Getenv: func(string) string { return "" }, Tools: agent.Specs()})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", mode, err, want)
		}
	}
}

// OSA-40: who an agent is comes from its owner: a file that an agent can write, that is missing, empty or long is refused, with its place.
func TestSoul(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"soul: Patient.":                                             "",
		"soul_file: ./soul.md":                                       "",
		"soul_file: ./missing.md":                                    "rouse.yaml:3:31: a: agents[0].soul_file: ",
		"soul_file: ./empty.md":                                      "agents[0].soul_file: ",
		"soul_file: ./long.md":                                       "agents[0].soul_file: is 8001 bytes long",
		"soul: " + strings.Repeat("x", 8001):                         "agents[0].soul: is 8001 bytes long",
		"soul: x, soul_file: ./soul.md":                              "agents[0].soul_file: give soul or soul_file, not both",
		"workdir: ./work, soul_file: ./work/SOUL.md":                 "soul_file",
		"mode: isolated, soul_file: ./h/agents/a/work/s":             "soul_file",
		"mode: isolated, workdir: ./work, soul_file: ./work/SOUL.md": "",
	} {
		path := write(t, "rouse.yaml", "version: 1\nhome: ./h\nagents: [{name: a, "+said+"}]\n", "soul.md", "Patient.", "empty.md", " \n",
			"long.md", strings.Repeat("x", 8001), "work/SOUL.md", "Patient.", "h/agents/a/work/s", "Patient.")
		if err := os.Chmod(filepath.Join(filepath.Dir(path), "h"), 0o700); err != nil {
			t.Fatal(err)
		}
		cfg, err := load(path, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", said, err, want)
		}
		if err == nil && cfg.Agents[0].Soul != "Patient." {
			t.Errorf("%s: %q", said, cfg.Agents[0].Soul)
		}
	}
}
