package yaml_test

import (
	"errors"
	"path/filepath"
	"testing"

	"rouse/cmd/internal/config/configtest"
	"rouse/cmd/internal/config/yaml"
)

func env(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func TestFind(t *testing.T) {
	home := filepath.Dir(configtest.Write(t, "rouse.yaml", "version: 1\n"))
	t.Chdir(t.TempDir())
	if path, err := yaml.Find("", env(map[string]string{"ROUSE_HOME": home})); err != nil || path != filepath.Join(home, "rouse.yaml") {
		t.Errorf("in the home: %s (%v)", path, err)
	}

	here := filepath.Dir(configtest.Write(t, "rouse.yaml", "version: 1\n", "other.yaml", ""))
	t.Chdir(here)

	for named, want := range map[string]string{"": "rouse.yaml", "other.yaml": "other.yaml", "missing.yaml": "missing.yaml"} {
		path, err := yaml.Find(named, env(map[string]string{"ROUSE_HOME": home}))
		if err != nil || filepath.Base(path) != want || !filepath.IsAbs(path) {
			t.Errorf("%q: %s (%v)", named, path, err)
		}
	}

	t.Chdir(t.TempDir())
	if _, err := yaml.Find("", env(map[string]string{"HOME": t.TempDir()})); !errors.Is(err, yaml.ErrNoFile) {
		t.Errorf("%v", err)
	}
}

// Home finds the home despite other mistakes in the configuration.
func TestHome(t *testing.T) {
	path := configtest.Write(t, "rouse.yaml", "home: ./${PLACE}/h\njobs: {a: 5}\nwrong: x\n", "plain.yaml", "version: 1\n", "broken.yaml", "[\n", "cut.yaml", "version: 1\nhome: ./${PLACE} # here\njobs: [\n")
	dir := filepath.Dir(path)
	for _, c := range []struct {
		file string
		env  map[string]string
		want string
	}{
		{"rouse.yaml", map[string]string{"PLACE": "p"}, filepath.Join(dir, "p", "h")},
		{"rouse.yaml", map[string]string{"ROUSE_HOME": dir}, dir},
		{"cut.yaml", map[string]string{"PLACE": "p"}, filepath.Join(dir, "p")},
		{"plain.yaml", map[string]string{"HOME": dir}, filepath.Join(dir, ".rouse")},
		{"broken.yaml", map[string]string{"USERPROFILE": dir}, filepath.Join(dir, ".rouse")},
	} {
		if got, err := yaml.Home(filepath.Join(dir, c.file), env(c.env)); err != nil || got != c.want {
			t.Errorf("%s: %s, want %s (%v)", c.file, got, c.want, err)
		}
	}

	for _, file := range []string{"plain.yaml", "none.yaml"} {
		if got, err := yaml.Home(filepath.Join(dir, file), env(nil)); err == nil {
			t.Errorf("%s: %s", file, got)
		}
	}
}
