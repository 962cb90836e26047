package config

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Included are the places where the patterns of includes look for files, also while nothing is
// there: whoever can write in them can configure the daemon.
func (c *Config) Included() (places []string) {
	for _, pattern := range c.Sources.Globs() {
		base, _ := doublestar.SplitPattern(filepath.ToSlash(pattern))
		places = append(places, filepath.FromSlash(base))
		for i := range c.Agents {
			for _, folder := range c.Agents[i].writes() {
				if rest, ok := matchesInside(pattern, folder); ok && !wild(rest) {
					places = append(places, filepath.Join(folder, rest))
				}
			}
		}
	}
	return places
}

// writes are the folders in which an agent's tools write.
func (a *Agent) writes() (out []string) {
	for _, p := range a.Grants.Write {
		out = append(out, string(p))
	}
	// grants.write narrows the workdir; without it all of it can be written.
	if len(out) == 0 && a.Workdir != "" {
		out = []string{string(a.Workdir)}
	}
	return out
}

// matchesInside says whether a pattern finds files in a folder, however deep, which lies where the pattern
// begins or deeper, and what of the pattern is left there.
func matchesInside(pattern, folder string) (rest string, ok bool) {
	base, wanted := doublestar.SplitPattern(filepath.ToSlash(pattern))
	rel, err := filepath.Rel(plainPlace(filepath.FromSlash(base)), plainPlace(folder))
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	// These cannot be matched folder by folder. Saying yes refuses too much rather than too little.
	if strings.Contains(wanted, "**") || strings.Contains(wanted, "{") { // which may hold a slash
		return wanted, true
	}

	parts := strings.Split(wanted, "/")
	for part := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		if part == "." {
			continue
		}
		if fits, err := doublestar.Match(parts[0], part); err != nil || !fits || len(parts) == 1 {
			return "", false
		}
		parts = parts[1:]
	}

	return strings.Join(parts, "/"), true
}

func wild(pattern string) bool { return strings.ContainsAny(pattern, "*?[{") }

// includes refuses patterns that find what an agent writes: its next file would be configuration.
func (c *checker) includes() {
	for i := range c.cfg.Agents {
		a := &c.cfg.Agents[i]
		for _, pattern := range c.cfg.Sources.Globs() {
			if slices.ContainsFunc(a.writes(), func(folder string) bool { rest, ok := matchesInside(pattern, folder); return ok && wild(rest) }) {
				c.bad("include", "%s finds what the agent %s writes, which would be configuration", display(pattern), a.Name).Hint = "name the files, or keep them in a folder of their own, outside of its workdir or below it"
			}
		}
	}
}
