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

// lockName is the name of the lock file in a directory of skills.
const lockName = "skills.lock.json"

// Pinned is the lock file entry of an installed skill.
type Pinned struct {
	Name        string    `json:"name"`               // also the name of its folder
	Source      string    `json:"source"`             // folder, archive or URL
	Path        string    `json:"path,omitempty"`     // path within the source
	Revision    string    `json:"revision,omitempty"` // as requested
	Commit      string    `json:"commit,omitempty"`
	Hash        string    `json:"hash"`              // hash of the files of the skill
	Version     string    `json:"version,omitempty"` // from its manifest
	Tags        []string  `json:"tags,omitempty"`    // from the index of the source
	InstalledAt time.Time `json:"installed_at"`
}

// list is the content of a lock file or of the file of trusted skills.
type list[T any] struct {
	Version int `json:"version"`
	Skills  []T `json:"skills"`
}

// readList reads a list. A missing file is an empty list. remedy is appended to the error for a
// damaged file.
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

// writeList sorts a list by key and replaces its file.
func writeList[T any](path string, all []T, key func(T) string, mode fs.FileMode) error {
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	text, err := json.MarshalIndent(list[T]{1, all}, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(text, '\n'), mode)
}

// Installed returns the lock file entries of a directory of skills, sorted by name. It returns nil
// if there is no lock file.
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

// Tags returns a function for skills.Root that returns the tags with which a skill was installed.
// It ignores errors of the lock file, which Verify reports.
func Tags(root string) func(dir string) []string {
	pinned := sync.OnceValue(func() []Pinned { all, _ := Installed(root); return all })
	return func(dir string) []string {
		if p := find(pinned(), filepath.Base(dir)); p != nil {
			return p.Tags
		}
		return nil
	}
}

// ErrExists is returned if a folder with the skill's name already exists.
var ErrExists = errors.New("there is one already")

// Install moves a staged skill to its folder in root and adds it to the lock file. If the folder
// exists, Install replaces it if replace is true, and otherwise returns ErrExists. The folder
// changes before the lock file, so a crash between the two steps is detected as a changed skill.
func Install(ctx context.Context, root string, s *Staged, replace bool) (Pinned, error) {
	p := s.Pinned
	p.InstalledAt = time.Now().UTC().Truncate(time.Second)
	// A skill for another system is not installed. A missing feature may become available later.
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
			// Move the old folder to the staging directory, which Close deletes.
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

// Pin updates the lock file with the current content of an installed skill. It accepts changes made
// since installation.
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

		// The rename removes the skill atomically. Deleting its files may be slow or interrupted.
		away, err := makeStaging(root)
		if err != nil {
			return err
		}

		err = os.Rename(filepath.Join(root, name), filepath.Join(away, "removed"))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // already deleted by the owner
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

// updateLock changes a directory of skills and its lock file, exclusively among processes. It
// replaces the lock file atomically, and only if do succeeds.
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

// Verify checks that the files of a skill are unchanged since it was installed or trusted. It must
// be called at each use of the skill, because the files can change after discovery. The error
// contains a remedy.
func Verify(s *skills.Skill) error {
	// Ignore the lock file next to a trusted skill, because others could change it along with the
	// skill.
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
	return nil // added by the owner, without installation
}

// check checks that an installed skill is unchanged. The error contains a remedy.
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
