package check_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/config/configtest"
)

// TestCheckout checks that invalid checkouts are refused, and that a job's checkout overrides its
// agent's.
func TestCheckout(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"repo: ./app":            "rouse/{{ .Job }}-{{ .Run }}",
		"repo: ./app, ref: v1.2": "rouse/{{ .Job }}-{{ .Run }}",
		"repo: ./app, branch: 'night/{{ .Agent }}/{{ .Run }}', keep: 3d": "night/{{ .Agent }}/{{ .Run }}",
		"ref: main":                                                        `jobs[0].checkout: the key "repo" is missing`,
		"repo: ./nothing":                                                  "warning: does not exist; until it does, each run fails",
		"repo: ./plain":                                                    "plain is not a git repository; name the folder with .git in it",
		"repo: ./app/file.txt":                                             "is not a git repository",
		"repo: ./h/app":                                                    "lies in the home of rouse",
		"repo: ./work/app":                                                 "/work, and so could change what rouse trusts: the repository of a checkout /",
		"repo: ./app, ref: '--upload-pack=x'":                              "jobs[0].checkout.ref: \"--upload-pack=x\" is not the name of a branch",
		"repo: ./app, ref: 'a..b'":                                         "jobs[0].checkout.ref: ",
		"repo: ./app, branch: fix":                                         "jobs[0].checkout.branch: is the same for all runs",
		"repo: ./app, branch: '{{ .Run }}..x'":                             "is not a name for a branch",
		"repo: ./app, branch: '-{{ .Run }}'":                               "is not a name for a branch",
		"repo: ./app, branch: 'refs/heads/{{ .Run }}'":                     "is not a name for a branch",
		"repo: ./app, branch: '{{ .Run }} x'":                              "is not a name for a branch",
		"repo: ./app, branch: '{{ .Run }}.lock'":                           "is not a name for a branch",
		"repo: ./app, branch: 'x-{{ .Input.a }}'":                          "Input",
		"repo: ./app, branch: 'x-{{ .File.Name }}-{{ .Run }}'":             "File",
		"repo: ./app, on_success: {push: 'https://evil.example/x'}":        `jobs[0].checkout.on_success.push: "https://evil.example/x" is not the name of a remote`,
		"repo: ./app, on_success: {push: --upload-pack=x}":                 "is not the name of a remote",
		"repo: ./app, on_success: {token: x}":                              `the key "push" is missing`,
		"repo: ./app, on_success: {push: origin, open_pull_request: true}": "warning: a pull request is opened with a token",
		"repo: ./app, keep: 0s":                                            "jobs[0].checkout.keep: ",
	} {
		path := configtest.Write(t, "rouse.yaml", "version: 1\nhome: ./h\nagents: [{name: a, workdir: ./work, checkout: {repo: ./app, branch: 'agent/{{ .Run }}'}}]\njobs:\n  - {name: j, agent: a, prompt: Work., checkout: {"+name+"}}\n  - {name: k, agent: a, prompt: Work.}\n",
			"plain/a.txt", "x", "app/file.txt", "x", "h/app/file.txt", "x", "work/app/file.txt", "x")
		for _, dir := range []string{"app", "h/app", "work/app"} {
			makeRepository(t, filepath.Join(filepath.Dir(path), dir))
		}
		cfg, err := configtest.Load(path, nil)
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
			continue
		}
		if warning, ok := strings.CutPrefix(want, "warning: "); ok {
			if len(cfg.Warnings) == 0 || !strings.Contains(cfg.Warnings[0].Message, warning) {
				t.Errorf("%s: %v", name, cfg.Warnings)
			}
			continue
		}
		if got := cfg.CheckoutOf(&cfg.Jobs[0]); got.Branch != want || string(got.Repo) != filepath.Join(filepath.Dir(path), "app") {
			t.Errorf("%s: %+v, want %s", name, got, want)
		}
		if got := cfg.CheckoutOf(&cfg.Jobs[1]); got.Branch != "agent/{{ .Run }}" || got.Keep.String() != "14d" {
			t.Errorf("%s: the agent's is %+v", name, got)
		}
	}
}

// TestBesideCheckout checks that agent settings that conflict with a checkout are refused.
func TestBesideCheckout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ agent, job, want string }{
		{"", "expect: [{command: [make, test]}]", ""},
		{"", "expect: [{command: []}]", "jobs[0].expect[0].command: must name a program"},
		{"", "expect: [{command: [make], sql: select 1}]", "jobs[0].expect[0].command: give exactly one of file, sql and command"},
		{"", "expect: [{file: ./app/report.md}]", "jobs[0].expect[0].file: lies in the repository of the checkout"},
		{"mode: none", "", "jobs[0].checkout: the agent a has mode: none"},
		{"mode: none", "expect: [{command: [make]}]", "jobs[0].expect[0].command: the agent \"a\" has mode: none"},
		{"grants: {write: [./work/out]}", "", "jobs[0].checkout: the agent a has grants.write"},
		{"workdir: ./app", "", "/app, and so could change what rouse trusts: the repository of a checkout /"},
		{"mode: isolated, workdir: ./app", "", ""},
	} {
		path := configtest.Write(t, "rouse.yaml", "version: 1\nhome: ./h\nagents: [{name: a, "+c.agent+"}]\njobs: [{name: j, agent: a, prompt: Work., checkout: {repo: ./app}, "+c.job+"}]\n", "app/file.txt", "x")
		makeRepository(t, filepath.Join(filepath.Dir(path), "app"))
		_, err := configtest.Load(path, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.agent, c.job, err, c.want)
		}
	}
}

func makeRepository(t *testing.T, dir string) {
	t.Helper()
	c := exec.Command("git", "init", "--quiet", dir)
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Skip("git: ", string(out), err)
	}
}
