package load_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/configtest"
	"rouse/cmd/internal/config/yaml"
)

// FuzzLoad checks that any text either loads or returns problems with positions, and that loaded
// settings stay the same when they are shown and read again.
func FuzzLoad(f *testing.F) {
	f.Add(configtest.Valid)
	f.Add(strings.Replace(configtest.Valid, "${TEST_KEY}", "", 1))
	f.Add("jobs: [{name: j, agent: a, playbook: [{call: x, with: &a {b: *a}, each: [1]}]}]")
	f.Add("jobs: [&j {name: j, agent: a, retry: *j}]\ndefaults: &d {retry: *d}")

	for _, name := range []string{"mistakes/rouse.yaml", "aliases/rouse.yaml", "design/rouse.yaml", "design/every.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}

	path := configtest.Write(f, "rouse.yaml", "")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "include") || strings.Contains(text, "_file") {
			return // the fuzzer must not read other files
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		cfg, err := configtest.Load(path, nil)
		var all *config.Errors
		switch {
		case errors.As(err, &all):
			for _, p := range all.Problems {
				if p.Line < 1 || p.Column < 1 || p.File != path || p.Message == "" {
					t.Errorf("%+v", p)
				}
			}
		case err != nil:
			if len(text) < 4<<20 {
				t.Error(err)
			}
		default:
			first, err := yaml.Show(cfg)
			if err != nil || len(cfg.Secrets.Values) > 0 {
				return // a masked secret has changed
			}
			if err := os.WriteFile(path, first, 0o600); err != nil {
				t.Fatal(err)
			}

			again, err := configtest.Load(path, nil)
			if err != nil {
				t.Fatalf("%v in\n%s", err, first)
			}
			if second, err := yaml.Show(again); err != nil || string(first) != string(second) {
				t.Errorf("(%v)\n%s\nbecame\n%s", err, first, second)
			}
		}
	})
}
