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

// newBoundary returns the folders in which agents or strangers can create names, so that links
// there are not trusted. These are the workdirs, write grants and clones of agents, and the folders
// of watches. Disabled agents and jobs count, too.
func newBoundary(cfg *config.Config) nofollow.UntrustedDirs {
	places := slices.Concat(config.ExecutorPlaces(cfg), []string{clonesFolder(cfg)}, untrustedFolders(cfg))
	for _, a := range cfg.Agents {
		places = append(append(places, string(a.Workdir)), paths(a.Grants.Write)...)
	}
	return nofollow.NewBoundary(places...)
}

// clonesFolder returns the folder of the private clones of runs. Agents write in it.
func clonesFolder(cfg *config.Config) string {
	return filepath.Join(string(cfg.Home), "checkouts", "runs")
}

// untrustedFolders returns the folders that may contain files from strangers: the watched folders,
// and the folders that their files are moved to.
func untrustedFolders(cfg *config.Config) (out []string) {
	for _, j := range cfg.Jobs {
		if j.Watch != nil {
			out = append(append(out, string(j.Watch.Path)), j.Watch.MovedTo()...)
		}
	}
	return out
}

// newMasks returns the paths that later runs trust, so agents must not change them. See
// docs/dev/security-tests.md.
func newMasks(cfg *config.Config) tool.ProtectedPaths {
	m := tool.ProtectedPaths{ReadOnly: slices.Concat(cfg.Files, places.Included(cfg)), Hidden: []string{string(cfg.Home)}}
	for _, r := range cfg.SkillRoots(os.Getenv) {
		if r.Trusted {
			m.ReadOnly = append(m.ReadOnly, r.Path)
		}
	}
	return m
}

// writables caches the results of checks by file, because thousands of jobs may be in the same
// file.
type writables map[string]string

// byOthers returns how another user could change one of the files that define an agent or a job. It
// returns an empty string if no other user can.
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
