// Package places finds the folders of a configuration in which others than the owner can write.
// These writers are agents, their programs, and the senders of watched files. Files that rouse
// trusts must not be in such a folder.
package places

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"rouse/cmd/internal/config"
	"rouse/internal/fspath"
	"rouse/internal/nofollow"
)

// Place is a folder in which others than the owner can write, also if its agent is now disabled.
type Place struct {
	Key    string // path of the setting, such as agents[0].workdir
	Who    string // writer and verb for messages, such as "the agent clerk may write in"
	Mend   string
	Folder string // as configured
	// program is an agent if its executor is the only writer here. Otherwise it is "".
	program string
}

// All returns the folders in which agents, their programs or senders of files can write.
func All(c *config.Config) (out []Place) {
	for key, a := range config.Each("agents", c.Agents) {
		who := fmt.Sprintf("the agent %s may write in", a.Name)
		for at, folder := range config.Each(key+".grants.write", a.Grants.Write) {
			out = append(out, Place{at, who, "grant it a folder that holds nothing else", string(*folder), ""})
		}
		if len(a.Grants.Write) == 0 && a.Workdir != "" {
			out = append(out, Place{key + ".workdir", who, "give the agent a workdir of its own, or narrow it with grants: {write: [./out]}", string(a.Workdir), ""})
		}
	}

	for key, j := range config.Each("jobs", c.Jobs) {
		if w := j.Watch; w != nil {
			const mend = "choose a folder that is for such files alone"
			out = append(out, Place{key + ".watch.path", "whoever drops files may write in", mend, string(w.Path), ""},
				Place{key + ".watch.on_success", "files of others are moved to", mend, w.OnSuccess.Dir, ""},
				Place{key + ".watch.on_failure", "files of others are moved to", mend, w.OnFailure.Dir, ""})
		}
	}

	for _, e := range config.Executors(c) {
		for _, folder := range e.Writes() {
			out = append(out, Place{e.Path, fmt.Sprintf("the executor of %s may write in", e.Agent), "choose a folder for it alone", folder, e.Agent})
		}
	}

	return slices.DeleteFunc(out, func(p Place) bool { return p.Folder == "" })
}

// FindWriter returns a place that contains folder or is inside it, or nil if others cannot write
// there. It ignores places of the executor of the agent except.
func FindWriter(c *config.Config, folder, except string) *Place {
	glance := nofollow.NewStatCache()
	for _, p := range All(c) {
		own := except != "" && p.program == except
		if !own && (Holds(glance.UntrustedDirs(p.Folder), folder) || Holds(glance.UntrustedDirs(folder), OwnersPath(p.Folder, glance))) {
			return &p
		}
	}
	return nil
}

// String describes the place as part of a sentence. It returns "" for nil.
func (p *Place) String() string {
	if p == nil {
		return ""
	}
	return p.Who + " " + config.Display(p.Folder)
}

// Writer describes another writer of folder or a subfolder. It returns "" if only the owner can
// write there.
func Writer(c *config.Config, folder string) string { return FindWriter(c, folder, "").String() }

// WriterAround describes another writer of folder itself. Unlike Writer, it ignores writable
// subfolders, for callers that keep a file with a name of its own in folder.
func WriterAround(c *config.Config, folder string) string {
	glance := nofollow.NewStatCache()
	for _, p := range All(c) {
		if Holds(glance.UntrustedDirs(OwnersPath(p.Folder, glance)), folder) {
			return p.String()
		}
	}
	return ""
}

// Holds reports whether path is one of the untrusted folders or inside one.
func Holds(b nofollow.UntrustedDirs, path string) bool {
	return b.Holds(filepath.Join(path, "any")) != ""
}

// OwnersPath returns path with its links resolved, or the cleaned path if that fails. It assumes
// that all links belong to the owner.
func OwnersPath(path string, glance *nofollow.StatCache) string {
	if real, err := glance.Resolve(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// Included returns the folders in which includes look for files. Writing there configures rouse.
func Included(c *config.Config) (out []string) {
	for _, pattern := range c.Sources.Globs() {
		out = append(out, GlobFolder(pattern))
		for i := range c.Agents {
			for _, folder := range c.Agents[i].Writes() {
				if rest, ok := MatchesInside(pattern, folder); ok && !wild(rest) {
					out = append(out, filepath.Join(folder, rest))
				}
			}
		}
	}
	return out
}

// GlobFolder returns the folder at which a pattern starts.
func GlobFolder(pattern string) string {
	base, _ := doublestar.SplitPattern(filepath.ToSlash(pattern))
	return filepath.FromSlash(base)
}

// MatchesInside reports whether a pattern can match files below folder, and returns the rest of
// the pattern.
func MatchesInside(pattern, folder string) (rest string, ok bool) {
	base, wanted := doublestar.SplitPattern(filepath.ToSlash(pattern))
	rel, ok := fspath.Rel(config.RealPath(filepath.FromSlash(base)), config.RealPath(folder))
	if !ok {
		return "", false
	}
	// These cannot be matched folder by folder. Reporting true errs on the side of refusing.
	if strings.Contains(wanted, "**") || strings.Contains(wanted, "{") { // braces may contain a slash
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
