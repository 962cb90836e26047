package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"rouse/agent/sandbox"
	"rouse/internal/nofollow"
)

// MkdirTemp creates a folder for one command or call. The caller must remove it.
func (h *Launcher) MkdirTemp(what string) (string, error) { return sandbox.MkdirTemp(h.Scratch, what) }

// noteName is the name of a file next to the HOME of a command.
const noteName = "before.json"

// note records the folders that a command may write, and the repositories in them.
type note struct {
	Roots   []string `json:"roots"`
	Owners  []string `json:"owners"`
	Mounted []string `json:"mounted,omitempty"` // see temporaries
}

// note writes a note for Recover into a command's folder.
func (g *gitGuard) note(dir string, mounted []string) error {
	if len(g.roots) == 0 {
		return nil
	}

	n := note{Owners: slices.Sorted(maps.Keys(g.owners)), Mounted: mounted}
	for _, root := range g.roots {
		n.Roots = append(n.Roots, root.Name())
	}

	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, noteName), text, 0o600)
}

// Recovered describes the files and repositories left by the commands of a process that died.
type Recovered struct {
	Disarmed []Disarmed
	Kept     []Kept
}

// Recover cleans up after the commands of a process that died. It keeps files that they may have
// moved into the scratch folder, disarms repositories that they made, and removes their folders. No
// command may be running that has a folder there.
func Recover(ctx context.Context, scratch string) (out Recovered, err error) {
	left, err := os.ReadDir(scratch)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return out, err
	}

	var all error
	for _, e := range left {
		dir := filepath.Join(scratch, e.Name())
		err := out.command(ctx, dir)
		if err == nil {
			err = os.RemoveAll(dir)
		}
		if err != nil {
			all = errors.Join(all, fmt.Errorf("%s, which a command left when its process died: %w", dir, err))
		}
	}

	return out, all
}

// command recovers the files of one command. A command without a note never started.
func (r *Recovered) command(ctx context.Context, dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, noteName))
	var n note
	if err != nil || json.Unmarshal(text, &n) != nil {
		return nil //nolint:nilerr // a note that is not whole was being written, before the start
	}

	// The roots were not links when the command ran. A link now may point to another agent's
	// folder.
	for _, path := range n.Roots {
		if at, err := (nofollow.UntrustedDirs{}).Resolve(path); err != nil || at != path {
			return errors.Join(err, fmt.Errorf("%s is a link by now, or lies behind one, to %s; put the folder back in its place", path, at))
		}
	}
	g, err := openGuard(nofollow.UntrustedDirs{}, n.Roots...)
	if err != nil {
		return err
	}
	defer g.close()

	for _, path := range n.Owners {
		g.owners[path] = nil
	}

	kept, _, err := temporaries{own: dir, guard: g, mounted: n.Mounted}.settle(ctx)
	if kept != nil {
		r.Kept = append(r.Kept, *kept)
	}

	disarmed, also := g.disarm()
	r.Disarmed = append(r.Disarmed, disarmed...)
	return errors.Join(err, also)
}
