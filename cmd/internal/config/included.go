package config

import (
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"rouse/internal/fspath"
)

// Included are the places where the patterns of includes look for files, also while nothing is
// there: whoever can write in them can configure the daemon.
func (c *Config) Included() (places []string) {
	for _, pattern := range c.Sources.Globs() {
		places = append(places, globFolder(pattern))
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

// globFolder is the folder in which a pattern begins to look.
func globFolder(pattern string) string {
	base, _ := doublestar.SplitPattern(filepath.ToSlash(pattern))
	return filepath.FromSlash(base)
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
	rel, ok := fspath.Rel(plainPlace(filepath.FromSlash(base)), plainPlace(folder))
	if !ok {
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
