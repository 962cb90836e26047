package checkout

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"rouse/internal/text"
)

// Usage is the disk space of the checkouts of a home.
type Usage struct {
	Mirrors int64            `json:"mirrors"` // bytes
	Runs    map[string]int64 `json:"runs"`    // bytes by run
}

// Clones returns the bytes of all clones.
func (u Usage) Clones() (sum int64) {
	for _, n := range u.Runs {
		sum += n
	}
	return sum
}

// Usage measures the disk space of the mirrors and of each clone.
func (s *Store) Usage() (Usage, error) {
	u := Usage{Mirrors: size(filepath.Join(s.Dir, "mirrors")), Runs: map[string]int64{}}
	entries, err := os.ReadDir(filepath.Join(s.Dir, "runs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return u, err
	}
	for _, e := range entries {
		u.Runs[e.Name()] = size(s.runDir(e.Name()))
	}
	return u, nil
}

// size returns the bytes of the files below a folder. It does not follow links and skips unreadable
// folders.
func size(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // gone, or closed by the agent
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

func (s *Store) checkSpace() error {
	u, err := s.Usage()
	if err != nil {
		return err
	}
	if used := u.Clones(); used >= s.maxBytes() {
		largest := slices.MaxFunc(slices.Collect(maps.Keys(u.Runs)), func(a, b string) int { return cmp.Compare(u.Runs[a], u.Runs[b]) })
		return fmt.Errorf("checkout: the clones of %d runs use %s, and %s is the limit; apply or discard runs that are done. The largest is run %s with %s",
			len(u.Runs), text.Size(used), text.Size(s.maxBytes()), largest, text.Size(u.Runs[largest]))
	}
	return nil
}

// removeAll removes a folder, even if an agent has made folders in it unreadable. It does not
// follow links.
func removeAll(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return os.RemoveAll(dir)
	}
	defer root.Close()
	open(root, ".")
	return os.RemoveAll(dir)
}

// open makes a folder and its subfolders accessible to their owner. It ignores errors, which appear
// again when the folder is removed.
func open(root *os.Root, rel string) {
	if info, err := root.Lstat(rel); err != nil || !info.IsDir() {
		return
	}
	_ = root.Chmod(rel, 0o700)
	dir, err := root.Open(rel)
	if err != nil {
		return
	}
	entries, _ := dir.ReadDir(-1)
	dir.Close()
	for _, e := range entries {
		if e.IsDir() {
			open(root, filepath.Join(rel, e.Name()))
		}
	}
}
