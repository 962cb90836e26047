package config_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A pattern of includes that finds what an agent writes is refused; where it finds one name alone, or
// looks in a folder within the agent's, that is a place that no agent may change.
func TestIncludesOfAgents(t *testing.T) {
	for _, c := range []struct {
		include, workdir, write string
		refused                 bool
		mask                    string // beside where the pattern begins
	}{
		{"conf.d/*.yaml", "work", "", false, ""},
		{"conf.d/*.yaml", ".", "", false, ""},
		{"conf.d/*.yaml", "conf.d", "", true, ""},
		{"conf.d/*.yaml", "conf.d/ann", "", false, ""},
		{"conf.d/**/*.yaml", "conf.d/ann", "", true, ""},
		{"conf.d/**/*.yaml", "conf.d/ann", "out", false, ""},
		{"conf.d/{a,b/c}.yaml", "conf.d/b", "", true, ""},
		{"*.yaml", ".", "", true, ""},
		{"*.yaml", ".", "conf.d", false, ""},
		{"*/more.yaml", "ann", "", false, "ann/more.yaml"},
		{"*/*.yaml", "ann", "", true, ""},
		{"b*/*.yaml", "ann", "", false, ""},
		{"*/work/*.yaml", "ann", "", true, ""},
	} {
		text := "include: [\"" + c.include + "\"]\nagents: [{name: a, workdir: " + c.workdir
		if c.write != "" {
			text += ", grants: {write: [" + c.write + "]}"
		}

		path := write(t, "main.yml", text+"}]\n")
		cfg, err := load(path, nil)
		if refused := err != nil && strings.Contains(err.Error(), "which would be configuration"); refused != c.refused || err != nil && !refused {
			t.Errorf("%+v: %v", c, err)
			continue
		}

		if dir := filepath.Dir(path); err == nil && c.mask != "" && !slices.Contains(cfg.Included(), filepath.Join(dir, c.mask)) {
			t.Errorf("%+v: %q", c, cfg.Included())
		}
	}
}
