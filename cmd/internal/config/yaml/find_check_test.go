package yaml_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/configtest"
	"rouse/cmd/internal/config/yaml"
)

// A configuration that was not named by --config is refused if a nearby configuration lets agents
// or strangers write there. A named one is accepted.
func TestFindAmongAgents(t *testing.T) {
	const mine = "version: 1\nhome: ./h\nagents: [{name: ann, workdir: ./work}, {name: bob}]\njobs: [{name: j, agent: ann, prompt: x, watch: {path: ./in, on_success: {move: ./done}}}]\n"
	dir := filepath.Dir(configtest.Write(t, "own/rouse.yaml", mine, "own/work/sub/rouse.yaml", mine, "own/work/rouse.yaml", mine, "own/in/rouse.yaml", mine, "own/done/rouse.yaml", mine, "own/other/rouse.yaml", mine,
		"own/h/agents/bob/work/rouse.yaml", mine, "user/.rouse/"+config.AdoptedFile, "", "far/team.yaml", "home: ./h\nagents: [{name: cid, workdir: ../shared}]\n", "shared/deep/rouse.yaml", mine,
		"far/h/"+config.AdoptedFile, "", "far/h/agents/cid/rouse.yaml", mine, "broken/rouse.yaml", "[", "broken/sub/rouse.yaml", mine))
	dir = filepath.Dir(dir)
	for _, home := range []string{"user/.rouse", "far/h"} {
		if err := os.WriteFile(filepath.Join(dir, home, config.AdoptedFile), []byte(filepath.Join(dir, "far", "team.yaml")), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	for folder, says := range map[string]string{
		"own":                   "",
		"own/other":             "",
		"own/work":              "the agent ann may write in {{dir}}/own/work ({{dir}}/own/rouse.yaml:3); if it is yours, name it: --config rouse.yaml",
		"own/work/sub":          "the agent ann may write in",
		"own/in":                "whoever drops files may write in",
		"own/done":              "files of others are moved to",
		"own/h/agents/bob/work": "the agent bob may write in",
		"shared/deep":           "the agent cid may write in {{dir}}/shared ({{dir}}/far/team.yaml:2)",
		"far/h/agents/cid":      "",
		"broken/sub":            "which cannot be read",
	} {
		t.Chdir(filepath.Join(dir, folder))
		getenv := env(map[string]string{"HOME": filepath.Join(dir, "user")})
		path, err := yaml.Find("", getenv)
		if want := filepath.FromSlash(strings.ReplaceAll(says, "{{dir}}", dir)); (err != nil) != (says != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v; want %q", folder, path, err, want)
		}
		if path, err := yaml.Find("rouse.yaml", getenv); err != nil || filepath.Base(path) != "rouse.yaml" {
			t.Errorf("%s: %s, %v", folder, path, err)
		}
	}
}

// A found configuration is refused if other users can write it.
func TestFindOfOthers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes say nothing about other users")
	}

	dir := filepath.Dir(configtest.Write(t, "rouse.yaml", "version: 1\n"))
	t.Chdir(dir)
	if err := os.Chmod("rouse.yaml", 0o666); err != nil {
		t.Fatal(err)
	}
	if path, err := yaml.Find("", env(nil)); err == nil || !strings.Contains(err.Error(), "is not taken for the configuration, since it may be written by everybody (mode 0666); take that right away with: chmod go-w "+filepath.Join(dir, "rouse.yaml")+"; or, if it is yours, name it: --config rouse.yaml") {
		t.Errorf("%s, %v", path, err)
	}
}
