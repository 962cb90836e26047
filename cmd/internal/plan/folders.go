package plan

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"rouse/agent/tool"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/places"
	"rouse/internal/nofollow"
	"rouse/internal/owner"
)

// newBoundary ends the owner's own folders where others make names: agents in their workdirs and write grants, strangers in the
// watched folders, and both in the folders that their files are moved to. Disabled agents and jobs count too.
func newBoundary(cfg *config.Config) nofollow.UntrustedDirs {
	places := slices.Concat(config.ExecutorPlaces(cfg), []string{clonesFolder(cfg)}, untrustedFolders(cfg))
	for _, a := range cfg.Agents {
		places = append(append(places, string(a.Workdir)), paths(a.Grants.Write)...)
	}
	return nofollow.NewBoundary(places...)
}

// clonesFolder holds the private clones of runs, in which agents write.
func clonesFolder(cfg *config.Config) string {
	return filepath.Join(string(cfg.Home), "checkouts", "runs")
}

// untrustedFolders are those that strangers' files come to: the watched ones, and those that their files are moved to.
func untrustedFolders(cfg *config.Config) (out []string) {
	for _, j := range cfg.Jobs {
		if j.Watch != nil {
			out = append(append(out, string(j.Watch.Path)), j.Watch.MovedTo()...)
		}
	}
	return out
}

// newMasks returns the places that later runs trust, so no agent may change them (docs/dev/security-tests.md).
func newMasks(cfg *config.Config) tool.ProtectedPaths {
	m := tool.ProtectedPaths{ReadOnly: slices.Concat(cfg.Files, places.Included(cfg)), Hidden: []string{string(cfg.Home)}}
	for _, r := range cfg.SkillRoots(os.Getenv) {
		if r.Trusted {
			m.ReadOnly = append(m.ReadOnly, r.Path)
		}
	}
	return m
}

// writables is what was found of files, each of which is looked at once: thousands of jobs stand in the same.
type writables map[string]string

// byOthers reports how another user could change a file that defines an agent or a job (OSL-19), or "".
func (w writables) byOthers(files ...string) string {
	for _, path := range files {
		why, known := w[path]
		if !known && path != "" {
			why = definitionWritableByOthers(path)
			w[path] = why
		}
		if why != "" {
			return why
		}
	}
	return ""
}

func definitionWritableByOthers(path string) string {
	if actual, err := filepath.EvalSymlinks(path); err == nil {
		path = actual
	}
	if why := owner.WritableByOthers(path); why != "" {
		return fmt.Sprintf("%s %s", path, why)
	}
	return ""
}
