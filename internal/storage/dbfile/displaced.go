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

// A write-ahead log belongs to the database file that was open when the log was written. SQLite
// does not notice if that file is replaced, and would apply the log to the wrong file. The marker
// of an open database therefore records the inodes of the file and its log.

// reasonDisplaced is the start of the CorruptError reason for a file that replaced an open
// database.
const reasonDisplaced = "it took the place of another file that was in use"

// Acceptable reports whether a file rejected for this reason may have been put there by the owner.
func Acceptable(reason string) bool {
	return reason == ReasonChanged || strings.HasPrefix(reason, reasonDisplaced)
}

// identify records the inodes of the open database and its log in the marker.
func (s *Marker) identify(path string) { s.Inode, s.LogInode = inode(path), inode(path+"-wal") }

// displaced reports whether path is a different file than the one that was open, while the log is
// still the old one. If the log is different too, the file and its log were copied together.
func (s Marker) displaced(path string) bool {
	if s.State != StateOpen || s.Inode == 0 || !HasLog(path) {
		return false
	}
	now := inode(path)
	return now != 0 && now != s.Inode && (s.LogInode == 0 || inode(path+"-wal") == s.LogInode)
}

// quarantineDisplaced quarantines a file that replaced an open database. It moves the log of the
// original file aside.
func quarantineDisplaced(path string) (*sqlite.CorruptError, error) {
	aside := filepath.Join(AsidePath(), filepath.Base(path)+"-wal")
	bad := &sqlite.CorruptError{Path: path, Reason: reasonDisplaced}
	if HasLog(path) {
		bad.Reason += "; the log of that one is kept in " + aside
	}

	// Write the marker before moving the log. Without the log, the two files cannot be told apart.
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

// Lost quarantines a database after its files were removed or replaced while it was open. The
// quarantine survives a restart. The returned error is never nil.
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
