package yaml_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/configtest"
)

const included = `version: 1
home: ./state
include: [jobs/*.yaml, more.yaml]
agents: [{name: a, instructions_file: a.md}]
`

// The sources change if the content changes, the matches of a pattern change, or a missing file
// appears. They do not change otherwise.
func TestSources(t *testing.T) {
	path := configtest.Write(t, "rouse.yaml", included, "a.md", "Work.", "jobs/one.yaml", "jobs: [{name: one, agent: a, prompt_file: ../one.md}]",
		"one.md", "Do one.", "more.yaml", "jobs: []")
	dir := filepath.Dir(path)
	cfg, err := configtest.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}

	var names []string
	for _, f := range cfg.Sources.Files() {
		rel, err := filepath.Rel(dir, f)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, filepath.ToSlash(rel))
	}
	if got := strings.Join(names, " "); got != "a.md jobs/one.yaml more.yaml one.md rouse.yaml" {
		t.Errorf("files: %s", got)
	}
	if globs := cfg.Sources.Globs(); len(globs) != 1 || !strings.HasSuffix(filepath.ToSlash(globs[0]), "/jobs/*.yaml") {
		t.Errorf("globs: %s", globs)
	}

	read := cfg.Sources.Digest()
	if now := cfg.Sources.Now().Digest(); now != read {
		t.Fatal("nothing happened, and it changed")
	}

	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	steps := map[string][2]func(){
		"the prompt":  {func() { put("one.md", "Do 0ne.") }, func() { put("one.md", "Do one.") }},
		"a new match": {func() { put("jobs/two.yaml", "") }, func() { os.Remove(filepath.Join(dir, "jobs/two.yaml")) }},
		"a file gone": {func() { os.Remove(filepath.Join(dir, "more.yaml")) }, func() { put("more.yaml", "jobs: []") }},
		"no main":     {func() { os.Remove(path) }, func() { put("rouse.yaml", included) }},
	}
	for what, step := range steps {
		look := cfg.Sources.Look()
		step[0]()
		if cfg.Sources.Now().Digest() == read || cfg.Sources.Look().Equal(look) {
			t.Errorf("%s changed nothing", what)
		}

		step[1]()
		if cfg.Sources.Now().Digest() != read {
			t.Errorf("%s: not as before", what)
		}
	}

	put("jobs/readme.md", "nobody reads this")
	if cfg.Sources.Now().Digest() != read {
		t.Error("a file that does not match changed it")
	}

	// Missing files are recorded too.
	for _, missing := range []string{"one.md", "more.yaml", "rouse.yaml"} {
		old, err := os.ReadFile(filepath.Join(dir, missing))
		if err != nil {
			t.Fatal(err)
		}

		os.Remove(filepath.Join(dir, missing))
		broken, err := configtest.Load(path, nil)
		if err == nil || !slices.Contains(broken.Sources.Files(), filepath.Join(dir, missing)) {
			t.Errorf("without %s: %v, %s", missing, err, broken.Sources.Files())
		}

		put(missing, string(old))
		if broken.Sources.Now().Digest() == broken.Sources.Digest() {
			t.Errorf("that %s is back is not seen", missing)
		}
	}
}

func TestCompare(t *testing.T) {
	base := strings.Replace(configtest.Valid, "${TEST_KEY}", "sk-canary", 1)
	read := func(text string) *config.Config {
		t.Helper()
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", text), nil)
		if err != nil {
			t.Fatal(err)
		}

		// Ignore the folders, which differ.
		cfg.Home = ""
		for i := range cfg.Agents {
			cfg.Agents[i].Workdir, cfg.Agents[i].Grants.Read = "", nil
		}

		for i := range cfg.Jobs {
			if cfg.Jobs[i].Expect = nil; cfg.Jobs[i].Watch != nil {
				cfg.Jobs[i].Watch = nil
			}
		}

		return cfg
	}

	const job = "  - {name: extra, agent: bookkeeper, prompt: x, retry: {attempts: 3}}\n"
	for what, c := range map[string]struct {
		before, after string
		want          string
	}{
		"nothing":           {base, base, "   "},
		"lines":             {base, strings.Replace(base, "agents:", "# a comment\n\nagents:", 1), "   "},
		"a new job":         {base, base + job, "extra   "},
		"a removed job":     {base + job, base, "  extra "},
		"a number in a job": {base + job, base + strings.Replace(job, "3", "4", 1), " extra  "},
		"a disabled job":    {base + job, base + strings.Replace(job, "agent:", "enabled: false, agent:", 1), " extra  "},
		"limits":            {base, strings.Replace(base, "runs: 8", "runs: 9", 1), "   limits"},
		"a model":           {base, strings.Replace(base, "model: qwen,", "model: qwen3,", 1), "   model local"},
		"the key":           {base, strings.Replace(base, "sk-canary", "sk-other", 1), "   model local"},
		"an agent":          {base, strings.Replace(base, "10MiB", "11MiB", 1), "   agent bookkeeper"},
	} {
		c2 := config.Compare(read(c.before), read(c.after))
		got := strings.Join([]string{strings.Join(c2.Added, ","), strings.Join(c2.Changed, ","), strings.Join(c2.Removed, ","), strings.Join(c2.Others, ",")}, " ")
		if got != c.want || c2.Empty() != (c.want == "   ") {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}
