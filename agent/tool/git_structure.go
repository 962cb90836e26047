package tool

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rouse/internal/gitlayout"
)

// git runs what the configuration of a repository names, for whoever asks it anything in a folder of
// that repository. So nothing of a repository is an agent's to write: neither what is called .git, nor
// a folder that git takes for a repository because of what lies in it.

// gitObstacle says why a path below a folder belongs to git, so that no agent writes there; "" when it does
// not. The links of today are followed, but for one at the path itself: a rename replaces that.
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
		// Calls may be made at the same time, each of which adds one part of a layout: what has a HEAD
		// gets none of the others.
		switch added := !has(part) && completesLayout(part); {
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

// completesLayout reports whether a name makes a repository of a folder with a HEAD.
func completesLayout(name string) bool {
	return slices.ContainsFunc([]string{"objects", "refs", "commondir"}, func(part string) bool { return strings.EqualFold(part, name) })
}

func gitError(shown, why string) error {
	return &PathError{KindRejected, shown + " " + why + ", whose configuration git would run for its owner; no agent changes what is git's, but for git_commit"}
}
