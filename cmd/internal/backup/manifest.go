// Package backup creates, checks and restores backups of a whole home.
//
// # Design
//
// A backup is a directory, or an archive of such a directory. manifest.json lists every other file
// with its size and SHA-256 and is written last. home/ holds the contents of the home; config/
// holds configuration files from outside the home. A backup gets its final name only after all of
// it has been read back. An interrupted backup has a temporary name, and the next backup to the
// same place removes it.
//
// All databases are copied as of one instant. The process that holds the home takes their snapshots
// while the ledger accepts no writes (ledger.Ledger.Snapshot). Other files (large values,
// recordings, agents' files) are read later. They are either content-addressed and kept until the
// backup is done, or independent of the databases.
//
// Symbolic links in the home are not followed, because agents choose the names in their workdirs. A
// backup to be read is untrusted input: its names, types and sizes are checked before anything is
// written (admit).
package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"rouse/agent/tool/shell"
	"rouse/internal/atomicfile"
	"rouse/internal/gitlayout"
	"rouse/internal/text"
)

const (
	manifestName = "manifest.json"
	homePrefix   = "home/"
	configPrefix = "config/"

	format      = 1
	maxManifest = 256 << 20 // bytes
)

// Info describes the origin of a backup.
type Info struct {
	Rouse     string    `json:"rouse"` // version of rouse that made the backup
	At        time.Time `json:"at"`    // instant of the backup
	Home      string    `json:"home"`
	Config    string    `json:"config"`     // configuration file of the home; "" if there was none
	Ledger    string    `json:"ledger"`     // ID of the ledger
	Schema    int       `json:"schema"`     // schema version of the ledger
	NewestRun int64     `json:"newest_run"` // 0 if there was no run
	Secrets   bool      `json:"secrets"`    // the backup contains secrets
}

// Entry is a file or a directory of a backup.
type Entry struct {
	Path    string      `json:"path"` // path in the backup, with slashes
	Folder  bool        `json:"folder,omitempty"`
	Bytes   int64       `json:"bytes"`
	SHA256  string      `json:"sha256,omitempty"`
	Mode    fs.FileMode `json:"mode"` // permission bits
	ModTime time.Time   `json:"mod_time"`
	Of      string      `json:"of,omitempty"`       // original path of a configuration file
	Redact  bool        `json:"redacted,omitempty"` // secret values in the file were replaced
	Changed bool        `json:"changed,omitempty"`  // the file shrank while it was copied
	Was     string      `json:"was,omitempty"`      // original name, if git would have recognized it as part of a repository
}

// LeftOut is a file or directory of the home that the backup does not contain.
type LeftOut struct {
	Path string `json:"path"` // relative to the home
	Why  string `json:"why"`
}

// Manifest holds the contents of manifest.json.
type Manifest struct {
	Format int `json:"format"`
	Info
	LeftOut []LeftOut `json:"left_out"`
	Entries []Entry   `json:"entries"`
}

// Bytes returns the total size of all entries.
func (m Manifest) Bytes() (n int64) {
	for _, e := range m.Entries {
		n += e.Bytes
	}
	return n
}

// Files returns the number of files, without directories.
func (m Manifest) Files() (n int) {
	for _, e := range m.Entries {
		if !e.Folder {
			n++
		}
	}
	return n
}

// manifestOf reads the manifest of a directory backup.
func manifestOf(dir string) (Manifest, error) {
	f, err := os.Open(filepath.Join(dir, manifestName))
	if err != nil {
		return Manifest{}, err
	}
	m, err := readManifest(f)
	return m, errors.Join(err, f.Close())
}

// readManifest reads and validates a manifest. Every path of a valid manifest is unique and stays
// inside the backup.
func readManifest(r io.Reader) (Manifest, error) {
	var m Manifest
	raw, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err == nil && len(raw) > maxManifest {
		err = errors.New("it is larger than any")
	}
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err != nil {
		return m, fmt.Errorf("its %s cannot be read: %w", manifestName, err)
	}
	if m.Format != format {
		return m, fmt.Errorf("it is of the format %d and this rouse reads %d; use the rouse that made it (%s)", m.Format, format, text.OneLine(m.Rouse))
	}

	seen := map[string]bool{}
	for _, e := range m.Entries {
		if err := checkPath(e.Path); err != nil {
			return m, err
		}
		// Case-insensitive file systems would treat both as one file.
		if seen[strings.ToLower(e.Path)] {
			return m, fmt.Errorf("%q stands twice in it", e.Path)
		}
		seen[strings.ToLower(e.Path)] = true
		if e.Was != "" && (path.Base(e.Was) != e.Was || !gitlayout.IsName(e.Was) && !strings.EqualFold(e.Was, "HEAD")) {
			return m, fmt.Errorf("%q was called %q, which is no name of git's", e.Path, e.Was)
		}
		if e.Bytes < 0 || e.Mode&^fs.ModePerm != 0 {
			return m, fmt.Errorf("%q has a size or a mode that no file has", e.Path)
		}
	}
	return m, nil
}

// checkPath returns an error unless a path is clean and lies below home/ or config/.
func checkPath(name string) error {
	below := strings.HasPrefix(name, homePrefix) || strings.HasPrefix(name, configPrefix)
	if !below || path.Clean(name) != name || !utf8.ValidString(name) || strings.ContainsRune(name, 0) || !filepath.IsLocal(filepath.FromSlash(name)) ||
		filepath.Separator != '/' && strings.ContainsRune(name, filepath.Separator) {
		return fmt.Errorf("%q is no path of a backup", name)
	}
	return nil
}

// Files of a home that record the last backup and the last restore.
const (
	LastFile     = "last-backup.json"
	RestoredFile = "restored.json"
)

// Note holds the contents of LastFile or RestoredFile.
type Note struct {
	At    time.Time `json:"at"`
	Path  string    `json:"path"` // path of the backup
	Of    time.Time `json:"of,omitzero"`
	From  string    `json:"from,omitempty"` // original home of a restored backup
	Bytes int64     `json:"bytes,omitempty"`
	// Disarmed lists the git repositories that the restore disabled by renaming.
	Disarmed []shell.Disarmed `json:"disarmed,omitempty"`
	// Error and FailedAt describe the last backup that failed after At.
	Error    string    `json:"error,omitempty"`
	FailedAt time.Time `json:"failed_at,omitzero"`
}

// ReadNote reads one of the two files. It returns false if the file does not exist or cannot be
// read.
func ReadNote(home, name string) (Note, bool) {
	var n Note
	text, err := os.ReadFile(filepath.Join(home, name))
	return n, err == nil && json.Unmarshal(text, &n) == nil
}

// Remember records the last backup of a home.
func Remember(home string, n Note) error { return note(filepath.Join(home, LastFile), n) }

func note(path string, n Note) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(text, '\n'), 0o600)
}
