// Package gitlayout recognizes the names and folders by which git finds a repository. This matters
// because git runs programs named in a repository's configuration for every user who runs git
// there.
package gitlayout

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// IsName reports whether git or a file system treats a name as .git. It follows git's own check of
// paths (verify_path) for names that are equivalent on NTFS and HFS+.
func IsName(name string) bool {
	// Fast path for large folders, where hardly any name matches.
	if name == "" || !strings.ContainsRune(".gG", rune(name[0])) && name[0] < utf8.RuneSelf {
		return false
	}
	name = Fold(name)
	return name == ".git" || name == "git~1"
}

// Fold returns a name in the form used for comparison by the least strict file systems. It is in
// lower case, without the characters that HFS+ ignores, the dots and spaces that Windows drops, and
// the streams of NTFS.
func Fold(name string) string {
	// On NTFS, a colon starts a stream name and a backslash ends the name.
	name, _, _ = strings.Cut(name, ":")
	name, _, _ = strings.Cut(name, `\`)
	return strings.ToLower(strings.TrimRight(strings.Map(withoutIgnored, name), ". "))
}

// withoutIgnored returns -1 for the characters that HFS+ ignores in names.
func withoutIgnored(r rune) rune {
	switch {
	case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
		return -1
	}
	return r
}

// IsLayout reports whether git treats a folder as a repository, whatever its name. has reports
// whether the folder has an entry. A repository has HEAD, and either objects and refs or commondir.
func IsLayout(has func(name string) bool) bool {
	return has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

// Has returns a function that reports whether names contains a name, ignoring case.
func Has(names []string) func(name string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
	}
}

// Disarmed returns a free name that git does not recognize. what is "git" or "HEAD".
func Disarmed(what string, free func(name string) bool) string {
	for n := 1; ; n++ {
		if name := fmt.Sprintf("disarmed-%s-%d", what, n); free(name) {
			return name
		}
	}
}

// Disarm returns new names for the entries by which git would find a repository: an entry called
// .git, and the HEAD of a folder with the layout of a repository. names must contain all entries of
// the folder.
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
