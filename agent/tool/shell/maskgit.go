package shell

import (
	"os"
	"path/filepath"
	"slices"

	"rouse/agent/sandbox"
)

// How far is looked for repositories in what a command may write.
const (
	gitDepth   = 4      // folders below each place
	gitEntries = 10_000 // names in all, the outer ones first
)

// maskGitFiles hides what git would run later, in the hands of whoever uses the folder: nothing of it
// is changed, nor made where it is not. It is hidden and not merely read-only, for a link in its
// place would then be one to anywhere. In a working folder without a repository that is so on tier
// A alone: to keep one name from being made, tier B would keep all from being made beside it.
func (h *Host) maskGitFiles(c *sandbox.Command, tier sandbox.Tier) {
	found := findRepositories(c.Write)
	if own := filepath.Join(h.Roots.Workdir(), ".git"); tier == sandbox.TierA && !slices.Contains(found, own) {
		found = append(found, own)
	}

	for _, git := range found {
		switch info, err := os.Lstat(git); {
		case err != nil || info.IsDir():
			c.Masked = append(c.Masked, filepath.Join(git, "config"), filepath.Join(git, "hooks"))
		case info.Mode().IsRegular(): // it names a repository elsewhere
			c.Masked = append(c.Masked, git)
		}
	}
}

// findRepositories are the .git in some folders, the outer ones first.
func findRepositories(places []string) (found []string) {
	left := gitEntries
	for depth := 0; depth <= gitDepth && len(places) > 0; depth++ {
		var next []string
		for _, folder := range places {
			entries, err := os.ReadDir(folder)
			if err != nil {
				continue // nor could a command
			}

			for _, e := range entries {
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
