package config_test

import (
	"strings"
	"testing"
	"time"
)

// TestExecutorLimits: the messages of a program that mean a wait reach its settings; a mistake is refused where it stands.
func TestExecutorLimits(t *testing.T) {
	t.Parallel()
	const head = "version: 1\nhome: ./h\nagents: [{name: a, executor: {argv: [cat], network: host, limits: "
	cfg, err := load(write(t, "rouse.yaml", head+"[{match: 'quota of team \\d+', wait: 1h}, {match: '(?i)come back'}]}}]\n"), nil)
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
		if _, err := load(write(t, "rouse.yaml", head+said+"}}]\n"), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", said, err, want)
		}
	}
}
