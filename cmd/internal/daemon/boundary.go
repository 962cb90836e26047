package daemon

import (
	"path/filepath"

	"rouse/cmd/internal/config"
	"rouse/internal/nofollow"
)

// newBoundary is where the owner's own folders end: agents make names in their workdirs and where else
// they may write, strangers in the watched folders, and both give files the names that they are moved
// under. What is disabled counts, for it may have written before.
func newBoundary(cfg *config.Config) nofollow.Boundary {
	var places []string
	for _, a := range cfg.Agents {
		places = append(append(places, string(a.Workdir)), paths(a.Grants.Write)...)
	}

	places = append(append(places, cfg.ExecutorPlaces()...), clonesFolder(cfg))

	return nofollow.NewBoundary(append(places, untrustedFolders(cfg)...)...)
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
