package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Switching confinement off needs a reason, and no other setting that would refuse all programs
// then.
func TestUnconfined(t *testing.T) {
	for agent, say := range map[string]string{
		"sandbox: off, reason: a container is around it":              "",
		"sandbox: off, reason: a container is around it, min_tier: D": "",
		"min_tier: A": "", "on_denied: fail": "",
		"sandbox: off":                         "agents[0].sandbox: sandbox: off needs a reason beside it",
		`sandbox: off, reason: " "`:            "agents[0].sandbox: sandbox: off needs a reason beside it",
		"reason: x":                            "agents[0].reason: a reason is only for sandbox: off",
		"sandbox: off, reason: x, min_tier: B": "agents[0].min_tier: with sandbox: off programs run on tier D",
		"min_tier: E":                          "agents[0].min_tier: ",
		"on_denied: ask":                       "agents[0].on_denied: ",
		"sandbox: maybe,":                      "agents[0].sandbox: ",
	} {
		path := filepath.Join(t.TempDir(), "rouse.yaml")
		if err := os.WriteFile(path, []byte("version: 1\nhome: ./h\nagents: [{name: a, "+agent+"}]\n"), 0o644); err != nil {
			t.Fatal(err)
		}

		_, err := load(path, nil)
		if (err == nil) != (say == "") || (err != nil && !strings.Contains(err.Error(), say)) {
			t.Errorf("%s: %v, want %q", agent, err, say)
		}
	}
}
