// Package backup copies a whole home, checks such a copy, and puts a home back from one.
//
// # Design
//
// A backup is a folder, or an archive of the same: manifest.json, which names all else with size and SHA-256 and is written
// last; home/, what the home held; config/, configurations that lay elsewhere. It has its name only once all of it was read
// again. What is cut off has another name, which the next backup to that place removes.
//
// What belongs together is of one instant: the snapshots of all databases are taken by whoever holds the home, while the ledger
// takes no writes (ledger.Ledger.Snapshot). What is read after that (large values, recordings, agents' files) is either named by
// its content, and kept until the backup is done, or stands for itself.
//
// Nothing in the home is followed: agents make names in their workdirs. A backup that is read is a stranger's: its names, kinds
// and sizes are judged before anything is written (admit).
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

// Info says of what a backup is.
type Info struct {
	Rouse     string    `json:"rouse"` // the version that made it
	At        time.Time `json:"at"`    // the instant of which it is
	Home      string    `json:"home"`
	Config    string    `json:"config"`     // the configuration that the home belongs to, "" for none
	Ledger    string    `json:"ledger"`     // the id of its ledger
	Schema    int       `json:"schema"`     // of the ledger
	NewestRun int64     `json:"newest_run"` // 0: none
	Secrets   bool      `json:"secrets"`    // they are in it
}

// Entry is a file or a folder of a backup.
type Entry struct {
	Path    string      `json:"path"` // in the backup, with slashes
	Folder  bool        `json:"folder,omitempty"`
	Bytes   int64       `json:"bytes"`
	SHA256  string      `json:"sha256,omitempty"`
	Mode    fs.FileMode `json:"mode"` // permissions
	ModTime time.Time   `json:"mod_time"`
	Of      string      `json:"of,omitempty"`       // of a configuration: where it was
	Redact  bool        `json:"redacted,omitempty"` // values of secrets in it were replaced
	Changed bool        `json:"changed,omitempty"`  // it became shorter while it was copied
	Was     string      `json:"was,omitempty"`      // its name in the home, by which git would find a repository
}

// LeftOut is what a home has and its backup has not.
type LeftOut struct {
	Path string `json:"path"` // below the home
	Why  string `json:"why"`
}

// Manifest is what a backup says of itself.
type Manifest struct {
	Format int `json:"format"`
	Info
	LeftOut []LeftOut `json:"left_out"`
	Entries []Entry   `json:"entries"`
}

// Bytes is how much all of it takes.
func (m Manifest) Bytes() (n int64) {
	for _, e := range m.Entries {
		n += e.Bytes
	}
	return n
}

// Files is how many files it names.
func (m Manifest) Files() (n int) {
	for _, e := range m.Entries {
		if !e.Folder {
			n++
		}
	}
	return n
}

// manifestOf reads the manifest of a backup that is a folder.
func manifestOf(dir string) (Manifest, error) {
	f, err := os.Open(filepath.Join(dir, manifestName))
	if err != nil {
		return Manifest{}, err
	}
	m, err := readManifest(f)
	return m, errors.Join(err, f.Close())
}

// readManifest reads and judges a manifest: from then on each of its paths leads into the backup, and stands once.
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
		if seen[strings.ToLower(e.Path)] { // both would be one file on some systems
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

// checkPath refuses what does not lie below one of the folders of a backup.
func checkPath(name string) error {
	below := strings.HasPrefix(name, homePrefix) || strings.HasPrefix(name, configPrefix)
	if !below || path.Clean(name) != name || !utf8.ValidString(name) || strings.ContainsRune(name, 0) || !filepath.IsLocal(filepath.FromSlash(name)) ||
		filepath.Separator != '/' && strings.ContainsRune(name, filepath.Separator) {
		return fmt.Errorf("%q is no path of a backup", name)
	}
	return nil
}

// The files of a home that say when it was backed up last, and from what it was restored.
const (
	LastFile     = "last-backup.json"
	RestoredFile = "restored.json"
)

// Note is what one of them says.
type Note struct {
	At    time.Time `json:"at"`
	Path  string    `json:"path"` // of the backup
	Of    time.Time `json:"of,omitzero"`
	From  string    `json:"from,omitempty"` // the home that was backed up
	Bytes int64     `json:"bytes,omitempty"`
	// Disarmed are the repositories that were taken out of use by a restore.
	Disarmed []shell.Disarmed `json:"disarmed,omitempty"`
	// Of the last that failed, since the one above.
	Error    string    `json:"error,omitempty"`
	FailedAt time.Time `json:"failed_at,omitzero"`
}

// ReadNote reads one of them; false where there is none that can be read.
func ReadNote(home, name string) (Note, bool) {
	var n Note
	text, err := os.ReadFile(filepath.Join(home, name))
	return n, err == nil && json.Unmarshal(text, &n) == nil
}

// Remember keeps when a home was backed up last.
func Remember(home string, n Note) error { return note(filepath.Join(home, LastFile), n) }

func note(path string, n Note) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(text, '\n'), 0o600)
}
