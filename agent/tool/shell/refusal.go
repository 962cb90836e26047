package shell

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/internal/fspath"
	"rouse/internal/text"
)

// Refusal is an access that the sandbox may have refused, according to the output of the program.
type Refusal struct {
	Tier  sandbox.Tier
	Path  string // path in the output, or ""
	Write bool   // a write was refused; the path can be read
	// Git explains that a git repository of the owner is the reason, and how to proceed. Otherwise
	// it is "".
	Git string
}

// refusals lists the messages, in lower case, of programs after the system refused an access.
var refusals = []string{"permission denied", "operation not permitted", "read-only file system"}

// absent is a program's message about a path that does not exist in its sandbox.
const absent = "no such file or directory"

// namedPath matches an absolute path in a message, with or without quotes.
var namedPath = regexp.MustCompile(`'(/[^']+)'|"(/[^"]+)"|(?:^|[\s=(])(/[^\s'":,;)]+)`)

// Refused returns the access that the sandbox may have refused a failed program, or nil. For a
// program that did not fail it considers only git repositories, because coding agents hide failures
// of git.
func (h *Launcher) Refused(p Program, ended Ended, printed ...string) *Refusal {
	if ended.Tier == sandbox.TierNone {
		return nil
	}

	// Git prints no message if it cannot stash.
	if len(ended.repositories) > 0 && ended.Exit != 0 && filepath.Base(p.Argv[0]) == "git" && slices.Contains(p.Argv, "stash") {
		return &Refusal{Tier: ended.Tier, Write: true, Git: cannotChange(topOf(ended.repositories[0]))}
	}

	var found *Refusal
	for line := range strings.Lines(strings.Join(printed, "\n")) {
		said := strings.ToLower(line)
		refused := slices.ContainsFunc(refusals, func(words string) bool { return strings.Contains(said, words) })
		if why := h.refusedByGit(ended, line, refused); why != "" {
			return &Refusal{Tier: ended.Tier, Write: true, Git: why}
		}
		if ended.Exit == 0 || !refused && !strings.Contains(said, absent) {
			continue
		}

		path := lastPath(line)
		switch {
		case !refused && fspath.Within(path, "/tmp"): // each sandbox has its own /tmp
		case h.outside(path, false):
			return &Refusal{Tier: ended.Tier, Path: path}
		case refused && path != "" && (p.ReadOnly || h.outside(path, true)):
			return &Refusal{Tier: ended.Tier, Path: path, Write: true}
		case refused && path == "" && found == nil: // a later line may name the path
			found = &Refusal{Tier: ended.Tier, Write: strings.Contains(said, "read-only")}
		}
	}
	return found
}

// lastPath returns the last absolute path in a line. It returns "" if that is only the program's
// own name at the start.
func lastPath(line string) string {
	all := namedPath.FindAllStringSubmatch(line, -1)
	if len(all) == 0 {
		return ""
	}
	m := all[len(all)-1]
	path := m[1] + m[2] + m[3]
	if IsSystemProgram(path) && strings.HasPrefix(line, path+":") {
		return ""
	}
	return filepath.Clean(path)
}

// outside reports whether the grants of the agent do not cover a path.
func (h *Launcher) outside(path string, write bool) bool {
	if path == "" || !write && IsSystemProgram(path) || slices.ContainsFunc([]string{"/dev", "/proc", "/sys"}, func(folder string) bool { return fspath.Within(path, folder) }) {
		return false
	}
	p, err := h.Roots.Resolve(path, write)
	if err == nil {
		_ = p.Close()
		return false
	}
	bad, ok := errors.AsType[*tool.Refusal](err)
	return ok && bad.Kind == tool.KindInvalidArgs
}

// Hint returns a message about the refused access, with the setting that allows it.
func (r *Refusal) Hint(roots *tool.Roots) string {
	if r.Git != "" {
		return fmt.Sprintf("the sandbox (tier %s) may have refused that: %s", r.Tier, r.Git)
	}

	path, folder := "PATH", "FOLDER"
	if r.Path != "" {
		if path, folder = text.Visible(r.Path), text.Visible(filepath.Dir(r.Path)); folder == "/" {
			folder = path
		}
	}

	// grants.write replaces the default, so the hint must repeat the folders that are writable now.
	var writes []string
	for _, place := range roots.Writable() {
		writes = append(writes, text.Visible(place.Name))
	}
	grant := fmt.Sprintf("grants: {write: [%s]}", strings.Join(append(writes, folder), ", "))
	if !r.Write {
		grant = fmt.Sprintf("grants: {read: [%s]}, or to let it write there %s", path, grant)
	}
	return fmt.Sprintf("the sandbox (tier %s) may have refused that: a program reads and writes only what its agent was granted; to allow it, add to the agent %s", r.Tier, grant)
}
