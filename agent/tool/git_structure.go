package tool

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rouse/internal/gitlayout"
)

// git runs programs named in the configuration of a repository for each user that calls git in it.
// So agents must not write to .git, or create a folder that git treats as a repository.

// gitObstacle returns the reason for which a path below a folder must not be written, or "" if git
// does not use it. It follows links except at the path itself, because a rename would replace that
// link.
func gitObstacle(folder, rel string) string {
	top := resolveExisting(folder)
	within, inside := below(top, filepath.Join(resolveExisting(filepath.Join(top, filepath.Dir(rel))), filepath.Base(rel)))
	if !inside {
		within = rel // a link out of the folder is refused elsewhere
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
		// Concurrent calls could each add one part of a repository layout. So the other parts are
		// refused in a folder with a HEAD.
		switch added := !has(part) && slices.Contains([]string{"objects", "refs", "commondir"}, strings.ToLower(part)); {
		case gitlayout.IsLayout(has):
			return "lies in a folder that git takes for a repository (it has HEAD, objects and refs)"
		case added && has("HEAD"):
			return "would make its folder one that git takes for a repository (it has a HEAD)"
		}
		at = filepath.Join(at, part)
	}

	// Each repository layout has one of these, so agents must not create them anywhere.
	if name := filepath.Base(within); strings.EqualFold(name, "HEAD") || strings.EqualFold(name, "commondir") {
		return "has a name by which git knows a repository"
	}
	return ""
}

func gitError(shown, why string) error {
	return RefusePath(KindRejected, "%s %s, whose configuration git would run for its owner; no agent changes what is git's, but for git_commit", shown, why)
}
