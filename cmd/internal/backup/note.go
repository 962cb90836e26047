package backup

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"rouse/agent/tool/shell"
	"rouse/internal/atomicfile"
)

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
