// Package gitview makes the part of a git repository that others than its owner may see: a configuration that names no
// program, no other file and no credential.
package gitview

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Storage lists the settings that say how a repository stores its files and objects. None of them names a program or another file.
var Storage = []string{
	"core.repositoryformatversion", "core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode", "core.autocrlf", "core.eol", "core.safecrlf",
	"extensions.objectformat", "extensions.refstorage",
}

// Env returns variables that keep git from the configuration of the machine and its user, and from asking at a terminal.
func Env() []string {
	return []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TERMINAL_PROMPT=0", "LC_ALL=C.UTF-8"}
}

// safe lists the other settings of a view: who commits, and what branches follow. None of them names a program or another file. A name
// with * has a subsection.
var safe = []string{
	"core.bare", "core.logallrefupdates", "user.name", "user.email", "branch.*.remote", "branch.*.merge", "branch.*.rebase", "remote.*.fetch", "remote.*.url", "submodule.*.active", "submodule.*.url",
	"lfs.repositoryformatversion", "pull.rebase", "pull.ff", "push.default", "push.autosetupremote",
}

// fixed has the settings of every view, whatever the repository says.
const fixed = `[core]
	hooksPath = /dev/null
	fsmonitor = false
	untrackedCache = false
[gc]
	auto = 0
[maintenance]
	auto = false
`

// View is what may be seen of a configuration.
type View struct {
	settings []setting
	// Whole reports that the configuration has nothing else.
	Whole bool
}

// New reads a configuration. It does not follow its includes.
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

// isSafeURL reports whether an address of a repository has no credential in it, and names no program.
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

// Has reports whether the view has a setting, such as user.name, with a value.
func (v View) Has(name string) bool {
	return slices.ContainsFunc(v.settings, func(s setting) bool { return !s.named && s.section+"."+s.key == name && s.value != "" })
}

// Config returns the configuration of the view, with more settings after it: git lets the last value of a setting win.
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

// sharedParts are the parts of a repository that git looks for in its common folder.
var sharedParts = []string{"HEAD", "objects", "refs", "packed-refs", "reftable", "info", "logs", "shallow", "modules", "worktrees"}

// MakeCommon makes a folder that git takes for the common folder of a repository (GIT_COMMON_DIR), and that has
// another configuration.
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
