package shell

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/internal/pattern"
	"rouse/internal/text"
)

// Refusal is an access that the sandbox may have refused a program, as far as its output tells.
type Refusal struct {
	Tier  sandbox.Tier
	Path  string // that the program named; "" if it named none
	Write bool   // the path can be read, so that only a change was refused
}

// refusals are the words, in lower case, with which a program reports that the system refused an access.
var refusals = []string{"permission denied", "operation not permitted", "read-only file system"}

// absent is what a program reports of a path that its view of the machine lacks.
const absent = "no such file or directory"

// namedPath is an absolute path in a message, with or without quotes.
var namedPath = pattern.New(`'(/[^']+)'|"(/[^"]+)"|(?:^|[\s=(])(/[^\s'":,;)]+)`)

// Refused returns what the sandbox may have refused a program that failed, or nil if its output does not tell of such a thing.
func (h *Launcher) Refused(p Program, ended sandbox.Result, printed ...string) *Refusal {
	if ended.Exit == 0 || ended.Tier == sandbox.TierD {
		return nil
	}

	var found *Refusal
	for line := range strings.Lines(strings.Join(printed, "\n")) {
		said := strings.ToLower(line)
		refused := slices.ContainsFunc(refusals, func(words string) bool { return strings.Contains(said, words) })
		if !refused && !strings.Contains(said, absent) {
			continue
		}

		path := lastPath(line)
		switch {
		case !refused && isBelow(path, "/tmp"): // of which a program has one of its own
		case h.outside(path, false):
			return &Refusal{Tier: ended.Tier, Path: path}
		case refused && path != "" && (p.ReadOnly || h.outside(path, true)):
			return &Refusal{Tier: ended.Tier, Path: path, Write: true}
		case refused && path == "" && found == nil: // a later line may name the path
			found = &Refusal{Tier: ended.Tier}
		}
	}
	return found
}

// lastPath returns the last absolute path that a line names, or "" if that is the program itself, which comes first.
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

// outside reports whether a path is outside of what the run may read, or write, by the grants of its agent.
func (h *Launcher) outside(path string, write bool) bool {
	if path == "" || !write && IsSystemProgram(path) || slices.ContainsFunc([]string{"/dev", "/proc", "/sys"}, func(folder string) bool { return isBelow(path, folder) }) {
		return false
	}
	p, err := h.Roots.Resolve(path, write)
	if err == nil {
		_ = p.Close()
		return false
	}
	bad, ok := errors.AsType[*tool.PathError](err)
	return ok && bad.Kind == tool.KindInvalidArgs
}

// Hint names the sandbox, and the setting of the agent that allows what it may have refused.
func (r *Refusal) Hint(roots *tool.Roots) string {
	path, folder := "PATH", "FOLDER"
	if r.Path != "" {
		if path, folder = text.Visible(r.Path), text.Visible(filepath.Dir(r.Path)); folder == "/" {
			folder = path
		}
	}

	// grants.write narrows: without the folders of now the program could not write there any more.
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
