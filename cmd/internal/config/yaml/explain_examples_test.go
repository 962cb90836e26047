package yaml_test

import (
	"cmp"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent"
	"rouse/cmd/internal/config/configtest"
	"rouse/cmd/internal/config/load"
	"rouse/cmd/internal/config/yaml"
)

// Each example of a key is a valid configuration.
func TestKeyExamplesPassTheCheck(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(configtest.Write(t, "report.md", "Write it.", "bookkeeper.md", "You keep books.", "bookkeeper.soul.md", "Patient.", "closed.ics", "BEGIN:VCALENDAR\nEND:VCALENDAR\n", "tls/cert.pem", "x", "tls/key.pem", "x"))
	secrets := map[string]string{"heartbeat": "https://hc-ping.com/canary", "postgres": "postgres://rouse@db.example.net/rouse", "slack_url": "ntfy://ntfy.sh/topic"}
	for _, k := range yaml.Keys() {
		_, err := load.Config(yaml.Options{Path: filepath.Join(dir, "rouse.yaml"), Text: []byte(k.Example), Home: filepath.Join(dir, "home"),
			Getenv: func(string) string { return "" }, Secret: func(name string) (string, bool, error) {
				return cmp.Or(secrets[name], "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"), true, nil
			}}, agent.Specs())
		// Examples may name skills and recordings that do not exist here.
		if err != nil && !strings.Contains(err.Error(), "there is no skill") && !strings.Contains(err.Error(), "recordings/12.json") {
			t.Errorf("%s: %v\n%s", k.Path, err, k.Example)
		}
	}
}
