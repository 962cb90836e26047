package check_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/config/configtest"
)

// TestExecutorLimits checks that limits reach the settings of the executor, and that mistakes are
// reported.
func TestExecutorLimits(t *testing.T) {
	t.Parallel()
	const head = "version: 1\nhome: ./h\nagents: [{name: a, executor: {argv: [cat], network: host, limits: "
	cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", head+"[{match: 'quota of team \\d+', wait: 1h}, {match: '(?i)come back'}]}}]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	limits := cfg.Agents[0].Executor.Settings().Limits
	if len(limits) != 2 || !limits[0].Match.MatchString("the quota of team 7") || limits[0].Wait != time.Hour || !limits[1].Match.MatchString("Come back") || limits[1].Wait != 0 {
		t.Errorf("%+v", limits)
	}

	for said, want := range map[string]string{
		"[{match: '(quota'}]":         "agents[0].executor.limits[0].match: is not a regular expression",
		"[{wait: 1h}]":                "agents[0].executor.limits[0]: the key \"match\" is missing",
		"[{match: quota, wait: -1h}]": "agents[0].executor.limits[0].wait: ",
		"[{match: quota, until: 1h}]": "agents[0].executor.limits[0]: unknown key \"until\"",
		"[{match: '', wait: 1h}]":     "agents[0].executor.limits[0].match: must not be empty",
	} {
		if _, err := configtest.Load(configtest.Write(t, "rouse.yaml", head+said+"}}]\n"), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", said, err, want)
		}
	}
}

// TestFoldersOfExecutors checks that HOME, logins, read folders and the program are separate from
// the folders of agents, with links resolved.
func TestFoldersOfExecutors(t *testing.T) {
	for executor, say := range map[string]string{
		"home: ./homes/a, read: [./tools], login: [./login.json]": "",
		"home: ./work/home":                      "agents[0].executor.home: the agent a may write in {{dir}}/work",
		"home: ./link/home":                      "agents[0].executor.home: the agent b may write in {{dir}}/other",
		"home: ./homes/b":                        "agents[0].executor.home: the executor of b may write in {{dir}}/homes/b",
		"login: [./homes/b/x.json]":              "agents[0].executor.login[0]: the executor of b may write in {{dir}}/homes/b",
		"login: [./link]":                        "agents[0].executor.login[0]: the agent b may write in {{dir}}/other",
		"login: [{path: ./shared, write: true}]": "agents[0].executor.login[0]: the executor of b may write in {{dir}}/shared",
		"read: [.]":                              "agents[0].executor.read[0]: ",
		"read: [./other/code]":                   "agents[0].executor.read[0]: the agent b may write in {{dir}}/other",
		"read: [./in/x]":                         "agents[0].executor.read[0]: whoever drops files may write in {{dir}}/in",
		"read: [./h]":                            "agents[0].executor.read[0]: {{dir}}/h belongs to rouse itself",
	} {
		path := configtest.Write(t, "rouse.yaml", "", "in/.keep", "", "other/.keep", "")
		dir := filepath.Dir(path)
		text := "version: 1\nhome: ./h\nagents:\n  - {name: a, workdir: ./work, executor: {argv: [sh, -c, x], network: host, " + executor + "}}\n" +
			"  - {name: b, workdir: ./other, executor: {argv: [sh], network: host, home: ./homes/b, login: [{path: ./shared, write: true}]}}\n" +
			"jobs: [{name: j, agent: a, prompt: x, watch: {path: ./in}}]\n"
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Symlink(filepath.Join(dir, "other"), filepath.Join(dir, "link"))); err != nil {
			t.Fatal(err)
		}
		_, err := configtest.Load(path, nil)
		if want := strings.ReplaceAll(say, "{{dir}}", dir); (err == nil) != (say == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", executor, err, want)
		}
	}
}
