package dbfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"rouse/internal/atomicfile"
	"rouse/internal/storage/sqlite"
)

// A log belongs to the file that was open when it was written, and SQLite does not notice when
// another takes that one's place: it would bring the log into a file that it was not written for. So
// the marker of an open file says which file that is, and which log.

// reasonDisplaced is how the reason begins for which a file is refused that took the place of one
// that was open.
const reasonDisplaced = "it took the place of another file that was in use"

// Acceptable says whether a file that was refused for that reason can be one that its owner put there.
func Acceptable(reason string) bool {
	return reason == ReasonChanged || strings.HasPrefix(reason, reasonDisplaced)
}

// identify has the marker of an open file say which files are open.
func (s *Marker) identify(path string) { s.Inode, s.LogInode = inode(path), inode(path+"-wal") }

// displaced says whether another file is there than the one that was open, with the log of that one.
// Where both are others, they were copied together.
func (s Marker) displaced(path string) bool {
	if s.State != StateOpen || s.Inode == 0 || !HasLog(path) {
		return false
	}
	now := inode(path)
	return now != 0 && now != s.Inode && (s.LogInode == 0 || inode(path+"-wal") == s.LogInode)
}

// quarantineDisplaced refuses the file that took the place of one, and sets that one's log aside.
func quarantineDisplaced(path string) (*sqlite.CorruptError, error) {
	aside := filepath.Join(AsidePath(), filepath.Base(path)+"-wal")
	bad := &sqlite.CorruptError{Path: path, Reason: reasonDisplaced}
	if HasLog(path) {
		bad.Reason += "; the log of that one is kept in " + aside
	}

	// Before the log is away, which alone would tell the two files apart.
	if err := WriteMarker(path, Marker{State: StateQuarantined, Reason: bad.Reason}); err != nil {
		return bad, fmt.Errorf("that the database %s was replaced cannot be recorded: %w", path, err)
	}
	if !HasLog(path) {
		return bad, nil
	}

	to := filepath.Join(filepath.Dir(path), aside)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return bad, fmt.Errorf("the log of the database that was replaced cannot be kept: %w", err)
	}
	if err := os.Rename(path+"-wal", to); err != nil {
		return bad, fmt.Errorf("the log of the database that was replaced cannot be kept: %w", err)
	}
	return bad, errors.Join(atomicfile.SyncFolder(filepath.Dir(to)), atomicfile.SyncFolder(filepath.Dir(path)))
}

// Lost stops all use of a database whose files were taken away while it was open, also after a
// restart. The error, which says why, is never nil.
func (s *Keeper) Lost(lost *sqlite.LostError) error {
	bad := &sqlite.CorruptError{Path: s.path, Reason: "its file " + lost.Path + " " + lost.Reason + " while it was in use"}
	if !lost.Displaced {
		return s.Quarantine(bad)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.damaged != nil {
		return s.damaged
	}

	bad, err := quarantineDisplaced(s.path)
	s.damaged = bad
	return errors.Join(bad, err)
}
