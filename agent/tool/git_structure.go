package tool

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rouse/internal/gitlayout"
)

// git runs what the configuration of a repository names, for whoever asks it anything in a folder
// of that repository. So no agent may write a .git, or a folder that git takes for a repository.

// gitObstacle returns why a path below a folder belongs to git, or "". Links are followed except at
// the path itself, which a rename would replace.
func gitObstacle(folder, rel string) string {
	top := resolveExisting(folder)
	within, inside := below(top, filepath.Join(resolveExisting(filepath.Join(top, filepath.Dir(rel))), filepath.Base(rel)))
	if !inside {
		within = rel // a link leads out, which is refused as such
	}

	for _, named := range []string{rel, within} {
		if slices.ContainsFunc(strings.Split(filepath.ToSlash(named), "/"), gitlayout.IsName) {
			return "belongs to a git repository"
		}
	}

	at := top
	for part := range strings.SplitSeq(filepath.ToSlash(within), "/") {
		has := func(name string) bool {
			_, err := os.Lstat(filepath.Join(at, name))
			return err == nil
		}
		// Calls made at the same time may each add one part of a layout: a folder with a HEAD gets none
		// of the others.
		switch added := !has(part) && slices.Contains([]string{"objects", "refs", "commondir"}, strings.ToLower(part)); {
		case gitlayout.IsLayout(has):
			return "lies in a folder that git takes for a repository (it has HEAD, objects and refs)"
		case added && has("HEAD"):
			return "would make its folder one that git takes for a repository (it has a HEAD)"
		}
		at = filepath.Join(at, part)
	}

	// Without one of these no folder is a layout, so that they are not an agent's to make at all.
	if name := filepath.Base(within); strings.EqualFold(name, "HEAD") || strings.EqualFold(name, "commondir") {
		return "has a name by which git knows a repository"
	}
	return ""
}

func gitError(shown, why string) error {
	return RefusePath(KindRejected, "%s %s, whose configuration git would run for its owner; no agent changes what is git's, but for git_commit", shown, why)
}
