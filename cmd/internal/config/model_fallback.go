package config

import (
	"fmt"
	"slices"
	"strings"
)

// fallbacks refuses a model that nobody configured, and a circle: a model that comes up again has
// failed already.
func (c *checker) fallbacks() {
	after := map[string]string{}
	for _, m := range c.cfg.Models {
		after[string(m.Name)] = m.Fallback
	}

	for i, m := range c.cfg.Models {
		at := fmt.Sprintf("models[%d].fallback", i)
		c.reference(at, "model", m.Fallback, c.models)
		way := []string{string(m.Name)}
		for next := m.Fallback; next != ""; next = after[next] {
			seen := slices.Contains(way, next)
			way = append(way, next)
			if next == string(m.Name) {
				c.bad(at, "goes in a circle: %s", strings.Join(way, " → "))
			}

			if seen { // a circle that starts at a later model is reported there
				break
			}
		}
	}
}

// fallbackChain are a model and those that it may take over from.
func (c *checker) fallbackChain(name string) []string {
	out := []string{name}
	for i := 0; i < len(out); i++ {
		for _, m := range c.cfg.Models {
			// The list grows while it is walked; the check for known names ends a circle.
			if m.Fallback == out[i] && !slices.Contains(out, string(m.Name)) {
				out = append(out, string(m.Name))
			}
		}
	}

	return out
}
