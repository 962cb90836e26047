package shell

import (
	"os"
	"path/filepath"
	"slices"

	"rouse/agent/sandbox"
)

// How far repositories are searched for in what a command may write.
const (
	gitDepth   = 4      // folders below each place
	gitEntries = 10_000 // names in all; the outer folders come first
)

// maskGitFiles masks what git would later run for whoever uses the folder (hooks, and programs named in a
// config): it can neither be changed nor created. It is masked and not just read-only, because a link in
// its place would then make any file readable. In a working folder that is not a repository this is done
// on tier A only: to keep one name from being created, tier B has to keep all names from being created
// in that folder.
func (h *Launcher) maskGitFiles(c *sandbox.Command, tier sandbox.Tier) {
	found := findRepositories(c.Write)
	if own := filepath.Join(h.Roots.Workdir(), ".git"); tier == sandbox.TierA && !slices.Contains(found, own) {
		found = append(found, own)
	}

	for _, git := range found {
		switch info, err := os.Lstat(git); {
		case err != nil || info.IsDir():
			c.Masked = append(c.Masked, filepath.Join(git, "config"), filepath.Join(git, "hooks"))
		case info.Mode().IsRegular(): // a worktree or submodule: it names a repository elsewhere
			c.Masked = append(c.Masked, git)
		}
	}
}

// findRepositories lists the .git entries in and below the folders, the outer ones first.
func findRepositories(places []string) (found []string) {
	left := gitEntries
	for depth := 0; depth <= gitDepth && len(places) > 0; depth++ {
		var next []string
		for _, folder := range places {
			entries, err := os.ReadDir(folder)
			if err != nil {
				continue // then a command cannot read it either
			}

			for _, e := range entries {
				// A huge tree must not delay each command. What lies deeper than this is not protected.
				if left--; left < 0 {
					return found
				}
				switch path := filepath.Join(folder, e.Name()); {
				case e.Name() == ".git":
					found = append(found, path)
				case e.IsDir():
					next = append(next, path)
				}
			}
		}

		places = next
	}

	return found
}
