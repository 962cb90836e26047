// Package gitlayout knows by which names and folders git finds a repository. git runs the programs that the
// configuration of a repository names, for every user who asks it anything in a folder of that repository.
package gitlayout

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// IsName reports whether git, or a file system that git guards against, takes a name for .git. It
// follows git's own protection of paths (verify_path): names that NTFS and HFS+ treat as the same.
func IsName(name string) bool {
	// Asked of every name in large folders, of which next to none can be one.
	if name == "" || !strings.ContainsRune(".gG", rune(name[0])) && name[0] < utf8.RuneSelf {
		return false
	}
	name = Fold(name)
	return name == ".git" || name == "git~1"
}

// Fold returns a name as the least strict file systems compare it: in lower case, without the characters
// that HFS+ ignores, the dots and spaces that Windows drops, and the streams of NTFS.
func Fold(name string) string {
	// NTFS has streams behind a colon, and a backslash ends a name there.
	name, _, _ = strings.Cut(name, ":")
	name, _, _ = strings.Cut(name, `\`)
	return strings.ToLower(strings.TrimRight(strings.Map(withoutIgnored, name), ". "))
}

// withoutIgnored drops the characters that HFS+ ignores in names.
func withoutIgnored(r rune) rune {
	switch {
	case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
		return -1
	}
	return r
}

// IsLayout reports whether git takes a folder for a repository, whatever its name, when it has the names
// that has reports: a HEAD, and either objects and refs of its own or the name of a folder that has them.
func IsLayout(has func(name string) bool) bool {
	return has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

// Has returns a function that reports whether one of names is a given one, in any case of letters.
func Has(names []string) func(name string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
	}
}

// Disarmed returns the name that takes an entry out of git's sight: what is "git" or "HEAD", and a number
// that is free.
func Disarmed(what string, free func(name string) bool) string {
	for n := 1; ; n++ {
		if name := fmt.Sprintf("disarmed-%s-%d", what, n); free(name) {
			return name
		}
	}
}

// Disarm returns new names for the entries of a folder by which git would find a repository: an entry called
// .git, and the HEAD of a folder that is a repository by its entries. names are all entries of the folder.
func Disarm(names []string) map[string]string {
	var out map[string]string
	rename := func(name, what string) {
		if out == nil {
			out = map[string]string{}
		}
		out[name] = Disarmed(what, func(as string) bool {
			return !slices.Contains(names, as) && !slices.ContainsFunc(names, func(other string) bool { return out[other] == as })
		})
	}

	layout := IsLayout(Has(names))
	for _, name := range names {
		switch {
		case IsName(name):
			rename(name, "git")
		case layout && strings.EqualFold(name, "HEAD"):
			rename(name, "HEAD")
		}
	}
	return out
}
