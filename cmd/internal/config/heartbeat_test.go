package config_test

import (
	"strings"
	"testing"
)

// The heartbeat's address goes over no network readable, and is shown nowhere.
func TestHeartbeatURL(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://hc-ping.test/0b5d": "",
		"http://127.0.0.1:8000/x":   "",
		"http://[::1]/x":            "",
		"secret:ping":               "",

		"hc-ping.test/0b5d":         "must be a URL like",
		"ftp://hc-ping.test/0b5d":   "must be a URL like",
		"http://hc-ping.test/0b5d":  "must be https",
		"https://me:pw@hc-ping.com": "neither a user",
		"https://hc-ping.com/#x":    "neither a user",
	} {
		cfg, err := load(write(t, "rouse.yaml", "version: 1\nheartbeat_url: '"+address+"'\n"), map[string]string{"secret:ping": "https://hc-ping.test/0b5d"})
		switch {
		case want != "":
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", address, err, want)
			}
			continue
		case err != nil:
			t.Errorf("%s: %v", address, err)
			continue
		}

		shown, err := cfg.Show()
		if err != nil || strings.Contains(string(shown), cfg.HeartbeatURL) || !strings.Contains(string(shown), "heartbeat_url: '********'") && !strings.Contains(string(shown), "heartbeat_url: \"********\"") {
			t.Errorf("%s: %v\n%s", address, err, shown)
		}
	}
}
