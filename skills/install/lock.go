package install

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"rouse/internal/atomicfile"
	"rouse/skills"
)

// lockName is the lock file of a directory of skills.
const lockName = "skills.lock.json"

// Pinned is the entry of an installed skill in the lock file.
type Pinned struct {
	Name        string    `json:"name"`               // and of its directory
	Source      string    `json:"source"`             // folder, archive or URL
	Path        string    `json:"path,omitempty"`     // within the source
	Revision    string    `json:"revision,omitempty"` // as requested
	Commit      string    `json:"commit,omitempty"`
	Hash        string    `json:"hash"`              // see Hash
	Version     string    `json:"version,omitempty"` // of its program's manifest
	Tags        []string  `json:"tags,omitempty"`    // of the index of the source
	InstalledAt time.Time `json:"installed_at"`
}

type lockFile struct {
	Version int      `json:"version"`
	Skills  []Pinned `json:"skills"` // by name
}

// Installed are the entries of the lock file of a directory of skills, by name. Without a lock file
// nothing is installed.
func Installed(root string) ([]Pinned, error) {
	path := filepath.Join(root, lockName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	var l lockFile
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, fmt.Errorf("%s is damaged (%w); restore it, or remove it and install the skills again", path, err)
	}
	if l.Version != 1 {
		return nil, fmt.Errorf("%s has version %d, and this rouse knows version 1; use a newer one", path, l.Version)
	}

	return l.Skills, nil
}

// Tags are for skills.Root: those that the skills of a directory were installed with (OSL-34). A lock file that
// is damaged has none; whoever uses a skill of it is told.
func Tags(root string) func(dir string) []string {
	pinned := sync.OnceValue(func() []Pinned { all, _ := Installed(root); return all })
	return func(dir string) []string {
		all := pinned()
		i := slices.IndexFunc(all, func(p Pinned) bool { return p.Name == filepath.Base(dir) })
		if i < 0 {
			return nil
		}
		return all[i].Tags
	}
}

// ErrExists: there is a directory with the skill's name.
var ErrExists = errors.New("there is one already")

// Install moves a staged skill to its place below root and pins it. With replace it takes the place of
// a skill with its name; without, that is ErrExists. The directory changes before the lock file, so
// that after a crash between the two the skill is reported as changed.
func Install(ctx context.Context, root string, s *Staged, replace bool) (Pinned, error) {
	p := Pinned{Name: s.Skill.Name, Source: s.Source, Path: s.Path, Revision: s.Revision, Commit: s.Commit, Hash: s.Hash, Version: s.version(), Tags: s.Skill.Tags, InstalledAt: time.Now().UTC().Truncate(time.Second)}
	// What could never run here is not installed (OSL-21, OSL-33); what only lacks something may find it later.
	if m := s.Skill.Manifest; m != nil {
		if why := m.Refusals(runtime.GOOS); len(why) > 0 {
			return p, fmt.Errorf("the skill %s cannot be installed here: %s", p.Name, strings.Join(why, "; "))
		}
	}
	if name, err := cleanPath(p.Name); err != nil || name != p.Name || filepath.Base(name) != name || name[0] == '.' || skills.RefusedName(name) != "" {
		return p, fmt.Errorf("the name %q cannot be that of a folder; the skill has to have another in its %s", p.Name, filepath.Base(s.Skill.File))
	}

	return p, updateLock(ctx, root, func(l *lockFile) error {
		place := filepath.Join(root, p.Name)
		switch _, err := os.Lstat(place); {
		case err == nil && !replace:
			return fmt.Errorf("%s: %w", place, ErrExists)
		case err == nil:
			// Into the staging directory, which Close deletes.
			if err := os.Rename(place, filepath.Join(s.tempDir, "replaced")); err != nil {
				return fmt.Errorf("%s cannot make room: %w", place, err)
			}
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}

		if err := atomicfile.Rename(s.Skill.Dir, place); err != nil {
			return fmt.Errorf("the skill cannot be put in its place: %w", err)
		}

		l.remove(p.Name)
		l.Skills = append(l.Skills, p)
		return nil
	})
}

// Pin accepts the changes of an installed skill: as it is now it counts as what was installed.
func Pin(ctx context.Context, root, name string) (Pinned, error) {
	var pinned Pinned
	return pinned, updateLock(ctx, root, func(l *lockFile) error {
		i := slices.IndexFunc(l.Skills, func(p Pinned) bool { return p.Name == name })
		if i < 0 {
			return notInstalled(root, name)
		}

		hash, err := Hash(filepath.Join(root, name))
		if err != nil {
			return err
		}

		l.Skills[i].Hash = hash
		pinned = l.Skills[i]
		return nil
	})
}

// Remove uninstalls a skill.
func Remove(ctx context.Context, root, name string) error {
	return updateLock(ctx, root, func(l *lockFile) error {
		if !l.remove(name) {
			return notInstalled(root, name)
		}

		// A rename removes the skill at once. Deleting its files may take a while, or be interrupted.
		away, err := makeStaging(root)
		if err != nil {
			return err
		}

		err = os.Rename(filepath.Join(root, name), filepath.Join(away, "removed"))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // the owner deleted it already
		}

		return errors.Join(err, os.RemoveAll(away))
	})
}

func notInstalled(root, name string) error {
	return fmt.Errorf("%s was not installed in %s by rouse; what people put there themselves is left to them", name, root)
}

// remove deletes an entry, and says whether there was one.
func (l *lockFile) remove(name string) bool {
	n := len(l.Skills)
	l.Skills = slices.DeleteFunc(l.Skills, func(p Pinned) bool { return p.Name == name })
	return len(l.Skills) < n
}

// updateLock makes a change of a directory of skills and its lock file, one process at a time. The lock
// file is replaced atomically, and only if the change succeeded.
func updateLock(ctx context.Context, root string, do func(*lockFile) error) (err error) {
	if err := os.MkdirAll(filepath.Join(root, stagingDir), 0o755); err != nil {
		return err
	}

	lock := flock.New(filepath.Join(root, stagingDir, "lock"))
	if ok, err := lock.TryLockContext(ctx, 50*time.Millisecond); !ok {
		return fmt.Errorf("somebody else is changing %s: %w", root, err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()

	pinned, err := Installed(root)
	if err != nil {
		return err
	}

	l := lockFile{Version: 1, Skills: pinned}
	if err := do(&l); err != nil {
		return err
	}

	slices.SortFunc(l.Skills, func(a, b Pinned) int { return cmp.Compare(a.Name, b.Name) })
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}

	return atomicfile.Write(filepath.Join(root, lockName), append(text, '\n'), 0o644)
}
