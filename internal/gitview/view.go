// Package gitview creates a view of a git repository that is safe to share. Its configuration
// contains no programs, no other files and no credentials.
package gitview

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Storage lists the settings for how a repository stores files and objects. They cannot name
// programs or other files.
var Storage = []string{
	"core.repositoryformatversion", "core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode", "core.autocrlf", "core.eol", "core.safecrlf",
	"extensions.objectformat", "extensions.refstorage",
}

// Env returns environment variables that make git ignore the configurations of the system and the
// user, and not prompt.
func Env() []string {
	return []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TERMINAL_PROMPT=0", "LC_ALL=C.UTF-8"}
}

// safe lists further settings of a view, such as the committer and the tracked branches. They
// cannot name programs or other files. A * stands for a subsection.
var safe = []string{
	"core.bare", "core.logallrefupdates", "user.name", "user.email", "branch.*.remote", "branch.*.merge", "branch.*.rebase", "remote.*.fetch", "remote.*.url", "submodule.*.active", "submodule.*.url",
	"lfs.repositoryformatversion", "pull.rebase", "pull.ff", "push.default", "push.autosetupremote",
}

// fixed contains the settings of every view, which override the repository's own.
const fixed = `[core]
	hooksPath = /dev/null
	fsmonitor = false
	untrackedCache = false
[gc]
	auto = 0
[maintenance]
	auto = false
`

// View is the safe part of a configuration.
type View struct {
	settings []setting
	// Whole reports whether the configuration contains only settings of the view.
	Whole bool
}

// New parses a configuration and returns its view. It does not read included files.
func New(config []byte) (View, error) {
	all, comments, err := parse(config)
	if err != nil {
		return View{}, err
	}
	v := View{Whole: !comments}
	for _, s := range all {
		if s.safe() {
			v.settings = append(v.settings, s)
		} else {
			v.Whole = false
		}
	}
	return v, nil
}

func (s setting) safe() bool {
	name := s.section + "." + s.key
	if s.named {
		name = s.section + ".*." + s.key
	}
	return (slices.Contains(Storage, name) || slices.Contains(safe, name)) && (s.key != "url" || isSafeURL(s.value))
}

// isSafeURL reports whether the URL of a repository contains no credential and no program.
func isSafeURL(url string) bool {
	if strings.ContainsAny(url, "?#%\n") || strings.Contains(url, "::") {
		return false
	}
	scheme, rest, full := strings.Cut(url, "://")
	if !full {
		rest = url
	}
	host, _, _ := strings.Cut(rest, "/")
	at := strings.LastIndex(host, "@")
	return at < 0 || (!full || scheme == "ssh") && !strings.Contains(host[:at], ":")
}

// Has reports whether the view has a non-empty value for a setting such as user.name.
func (v View) Has(name string) bool {
	return slices.ContainsFunc(v.settings, func(s setting) bool { return !s.named && s.section+"."+s.key == name && s.value != "" })
}

// Config returns the configuration of the view, followed by more. In git, the last value of a
// setting wins.
func (v View) Config(more string) string {
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	var out strings.Builder
	for _, s := range v.settings {
		out.WriteString("[" + s.section)
		if s.named {
			fmt.Fprintf(&out, ` "%s"`, quote.Replace(s.sub))
		}
		fmt.Fprintf(&out, "]\n\t%s = \"%s\"\n", s.key, quote.Replace(s.value))
	}
	return out.String() + fixed + more
}

// sharedParts are the files and folders that git reads from a repository's common folder.
var sharedParts = []string{"HEAD", "objects", "refs", "packed-refs", "reftable", "info", "logs", "shallow", "modules", "worktrees"}

// MakeCommon creates a folder for GIT_COMMON_DIR. It links to the parts of a repository, but has
// its own configuration.
func MakeCommon(folder, gitDir, config string) error {
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	for _, name := range sharedParts {
		if err := os.Symlink(filepath.Join(gitDir, name), filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(folder, "config"), []byte(config), 0o600)
}
