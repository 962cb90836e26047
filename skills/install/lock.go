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

// list is a file that lists skills: a lock file, or the skills that were trusted.
type list[T any] struct {
	Version int `json:"version"`
	Skills  []T `json:"skills"`
}

// readList reads a list. A file that does not exist is empty. The error ends with a remedy.
func readList[T any](path, remedy string) ([]T, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	var l list[T]
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, fmt.Errorf("%s is damaged (%w); %s", path, err, remedy)
	}
	if l.Version != 1 {
		return nil, fmt.Errorf("%s has version %d, and this rouse knows version 1; use a newer one", path, l.Version)
	}
	return l.Skills, nil
}

// writeList replaces a list, which is sorted by a key.
func writeList[T any](path string, all []T, key func(T) string, mode fs.FileMode) error {
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	text, err := json.MarshalIndent(list[T]{1, all}, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(text, '\n'), mode)
}

// Installed returns the entries of the lock file of a directory of skills, by name. Without a lock file
// nothing is installed.
func Installed(root string) ([]Pinned, error) {
	return readList[Pinned](filepath.Join(root, lockName), "restore it, or remove it and install the skills again")
}

// find returns the entry of a skill, or nil if there is none.
func find(all []Pinned, name string) *Pinned {
	if i := slices.IndexFunc(all, func(p Pinned) bool { return p.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// Tags returns the tags that the skills of a directory were installed with, for skills.Root (OSL-34). A
// damaged lock file has none; it is reported when one of its skills is used.
func Tags(root string) func(dir string) []string {
	pinned := sync.OnceValue(func() []Pinned { all, _ := Installed(root); return all })
	return func(dir string) []string {
		if p := find(pinned(), filepath.Base(dir)); p != nil {
			return p.Tags
		}
		return nil
	}
}

// ErrExists: there is a directory with the skill's name.
var ErrExists = errors.New("there is one already")

// Install moves a staged skill to its place below root and pins it. With replace it takes the place of
// a skill with its name; without, that is ErrExists. The directory changes before the lock file, so
// that after a crash between the two the skill is reported as changed.
func Install(ctx context.Context, root string, s *Staged, replace bool) (Pinned, error) {
	p := s.Pinned
	p.InstalledAt = time.Now().UTC().Truncate(time.Second)
	// What could never run here is not installed (OSL-21, OSL-33); what only lacks something may find it later.
	if m := s.Skill.Manifest; m != nil {
		if why := m.Refusals(runtime.GOOS); len(why) > 0 {
			return p, fmt.Errorf("the skill %s cannot be installed here: %s", p.Name, strings.Join(why, "; "))
		}
	}
	if name, err := cleanPath(p.Name); err != nil || name != p.Name || filepath.Base(name) != name || name[0] == '.' || skills.RefusedName(name) != "" {
		return p, fmt.Errorf("the name %q cannot be that of a folder; the skill has to have another in its %s", p.Name, filepath.Base(s.Skill.File))
	}

	return p, updateLock(ctx, root, func(l *list[Pinned]) error {
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

		l.Skills = append(without(l.Skills, p.Name), p)
		return nil
	})
}

// Pin accepts the changes of an installed skill: as it is now it counts as what was installed.
func Pin(ctx context.Context, root, name string) (Pinned, error) {
	var pinned Pinned
	return pinned, updateLock(ctx, root, func(l *list[Pinned]) error {
		p := find(l.Skills, name)
		if p == nil {
			return notInstalled(root, name)
		}
		var err error
		p.Hash, err = Hash(filepath.Join(root, name))
		pinned = *p
		return err
	})
}

// Remove uninstalls a skill.
func Remove(ctx context.Context, root, name string) error {
	return updateLock(ctx, root, func(l *list[Pinned]) error {
		if find(l.Skills, name) == nil {
			return notInstalled(root, name)
		}
		l.Skills = without(l.Skills, name)

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

func without(all []Pinned, name string) []Pinned {
	return slices.DeleteFunc(all, func(p Pinned) bool { return p.Name == name })
}

// updateLock makes a change of a directory of skills and its lock file, one process at a time. The lock
// file is replaced atomically, and only if the change succeeded.
func updateLock(ctx context.Context, root string, do func(*list[Pinned]) error) (err error) {
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

	l := list[Pinned]{Skills: pinned}
	if err := do(&l); err != nil {
		return err
	}
	return writeList(filepath.Join(root, lockName), l.Skills, func(p Pinned) string { return p.Name }, 0o644)
}

// Verify checks that the files of a skill are those that were installed, or trusted by themselves. It is
// called when the skill is used, and not when it is discovered, so that nothing can change in between. The
// error says what to do.
func Verify(s *skills.Skill) error {
	// What lies beside it says nothing here: whoever changes the skill could change that as well.
	if s.TrustedHash != "" {
		return asTrusted(s.Dir, s.TrustedHash)
	}

	root := filepath.Dir(s.Dir)
	pinned, err := Installed(root)
	if err != nil {
		return err
	}

	if p := find(pinned, filepath.Base(s.Dir)); p != nil {
		return p.check(root)
	}
	return nil // the owner put it there
}

// check checks that an installed skill is what was installed. The error says what to do.
func (p Pinned) check(root string) error {
	err := compare(filepath.Join(root, p.Name), p.Hash)
	var refused *RefusedError
	switch {
	case errors.Is(err, errChanged):
		return fmt.Errorf("the files of the skill %s are not those that were installed from %s; if you changed them, say rouse skills pin %[1]s, else install it again with --replace", p.Name, p.Source)
	case errors.As(err, &refused):
		return fmt.Errorf("the skill %s contains %q, which was not shown when it was installed from %s: %s; use no such tool in %s, and install the skill again with --replace, or rouse skills remove %[1]s", p.Name, refused.Path, p.Source, refused.Why, filepath.Join(root, p.Name))
	case err != nil:
		return fmt.Errorf("the installed skill %s cannot be checked: %w", p.Name, err)
	}
	return nil
}
