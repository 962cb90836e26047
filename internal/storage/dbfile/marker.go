package dbfile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"rouse/internal/storage/sqlite"
	"rouse/internal/text"
)

// SQLite has no checksums: it does not notice a bit that flips inside a text. When a database is
// closed, its size and checksum are therefore stored in PATH-seal and compared when it is next
// opened. This clean-shutdown marker also records that a database existed, so that a lost one is
// not silently replaced by an empty one, and that a database is quarantined.
//
// If its process was killed, a file has no checksum. SQLite then checks its structure instead.

// The marker states. These are the values stored on disk.
const (
	// The file is open or was not closed. If Size is set, the file itself has not changed since it
	// was last closed.
	StateOpen        = "open"
	StateClosed      = "closed"    // Size and Sum describe the file
	StateQuarantined = "damaged"   // the file must not be used, see Reason
	StateReplacing   = "replacing" // PATH-new replaces the file, which moves to Aside
)

// markerBytes is the length of a marker. The marker is overwritten in place within one disk sector,
// so that a crash leaves either the old or the new marker.
const markerBytes = 512

// Marker is the clean-shutdown marker of a database file.
type Marker struct {
	State string `json:"state"`
	Size  int64  `json:"size,omitempty"`
	Sum   uint32 `json:"crc32c,omitempty"`
	// Reason is the reason for a quarantine. For a closed file, it is the result of the last failed
	// inspection.
	Reason string `json:"reason,omitempty"`
	// Aside is the folder for the old database, relative to the folder of the file.
	Aside string    `json:"aside,omitempty"`
	At    time.Time `json:"at"`
	// Inode and LogInode identify the open file and its log. Zero means unknown.
	Inode    uint64 `json:"inode,omitempty"`
	LogInode uint64 `json:"log_inode,omitempty"`
}

// ReasonChanged is the CorruptError reason for a file that does not match its checksum.
const ReasonChanged = "it is not as rouse left it: its disk damaged it, or another program changed it"

// ReasonLost is the CorruptError reason for a database file that is missing or empty.
const ReasonLost = "the file is gone, or empty, and was not"

// held reports whether the file was not closed but has not changed since it was last closed: all
// later writes are still in the log.
func (s Marker) held() bool { return s.State == StateOpen && s.Size > 0 }

// MarkerPath returns the path of the marker of a file.
func MarkerPath(path string) string { return path + "-seal" }

// ReadMarker reads the marker of a file. State is empty if there is no marker. A marker that cannot
// be parsed is returned as open, because it only proves that a database existed.
func ReadMarker(path string) (Marker, error) {
	text, err := os.ReadFile(MarkerPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return Marker{}, nil
	}
	if err != nil {
		return Marker{}, fmt.Errorf("cannot read what is known of the database: %w", err)
	}

	var s Marker
	if json.Unmarshal(text, &s) != nil {
		return Marker{State: StateOpen}, nil //nolint:nilerr // the file is checked instead
	}

	return s, nil
}

// WriteMarker writes the marker of the file at path. The marker is durable when WriteMarker
// returns.
func WriteMarker(path string, s Marker) error {
	s.At = time.Now().UTC()
	if s.State == StateOpen {
		s.identify(path)
	}

	// The marker must fit into its sector. Only the reason has no fixed limit.
	line, err := json.Marshal(s)
	for err == nil && len(line) > markerBytes-1 {
		s.Reason = text.HeadBytes(s.Reason, len(s.Reason)-(len(line)-markerBytes+8))
		line, err = json.Marshal(s)
	}
	if err != nil {
		return err
	}

	f, err := os.OpenFile(MarkerPath(path), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}

	// Overwrite in place instead of renaming: a marker is written before the first write of every
	// opened database, and writing one sector is atomic. The padding erases the rest of a longer
	// marker.
	_, err = f.WriteAt([]byte(fmt.Sprintf("%-*s\n", markerBytes-1, line)), 0)
	if err == nil {
		err = f.Sync()
	}

	return errors.Join(err, f.Close())
}

// Checksum reads a whole file and returns its size and CRC-32C.
func Checksum(path string) (size int64, sum uint32, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()

	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	// Hiding the file's WriteTo makes CopyBuffer use this 1 MiB buffer instead of the 32 KiB
	// default.
	size, err = io.CopyBuffer(h, struct{ io.Reader }{f}, make([]byte, 1<<20))
	return size, h.Sum32(), err
}

// Matches reads an open file to its end and reports whether its size and checksum match the marker.
func (s Marker) Matches(ctx context.Context, f *os.File) (bool, error) {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	buffer := make([]byte, 1<<20)
	for size := int64(0); ; {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}

		n, err := f.ReadAt(buffer, size)
		size += int64(n)
		_, _ = h.Write(buffer[:n]) // a hash never fails
		switch {
		case errors.Is(err, io.EOF):
			return size == s.Size && h.Sum32() == s.Sum, nil
		case err != nil:
			return false, err
		}
	}
}

// ClosedMarker returns the marker for a file that is not open in any process.
func ClosedMarker(path string) (Marker, error) {
	size, sum, err := Checksum(path)
	return Marker{State: StateClosed, Size: size, Sum: sum}, err
}

// Inspect compares a file that is not open in any process with its marker. whole reports whether
// the checksum matches; if false, the caller must check the file's structure. Inspect returns a
// *sqlite.CorruptError if the file must not be used.
func Inspect(path string, log *slog.Logger) (s Marker, whole bool, err error) {
	if s, err = ReadMarker(path); err != nil {
		return s, false, err
	}

	if s.State == StateReplacing {
		if s, err = finishReplacing(path, s); err != nil {
			return s, false, err
		}
	}

	bad := func(reason string) (Marker, bool, error) {
		return s, false, &sqlite.CorruptError{Path: path, Reason: reason}
	}
	if s.State == "" {
		return s, false, nil
	}

	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return bad(ReasonLost)
	case err != nil:
		return s, false, fmt.Errorf("cannot open the database %s: %w", path, err)
	case s.State == StateQuarantined:
		return bad(s.Reason)
	case info.Size() == 0:
		return bad(ReasonLost)
	case s.displaced(path):
		bad, err := quarantineDisplaced(path)
		if err != nil {
			return s, false, err
		}
		return s, false, bad
	case s.State != StateClosed && !s.held():
		return s, false, nil
	}

	now, err := ClosedMarker(path)
	if err != nil {
		return s, false, fmt.Errorf("cannot read the database %s: %w", path, err)
	}

	whole = now.Size == s.Size && now.Sum == s.Sum
	if !whole && s.State == StateClosed && HasLog(path) {
		// The marker is synced before the first write, but a power cut may have kept the log and
		// lost the marker. The log was written by rouse, so SQLite can recover from it.
		return s, false, nil
	}

	// Store the outcome, so that QuickInspect knows it without reading the file.
	if refused := s.Reason != ""; refused == whole {
		if s.Reason = ReasonChanged; whole {
			s.Reason = ""
		}
		if err := WriteMarker(path, s); err != nil {
			log.Warn("the result of checking a database could not be stored", "path", path, "error", err)
		}
	}

	switch {
	case !whole:
		return bad(ReasonChanged)
	case s.held():
		// From now on, checkpoints copy the log into the file.
		s = Marker{State: StateOpen}
		return s, true, WriteMarker(path, s)
	}

	return s, true, nil
}

// Size returns the size of a file, or 0 if it does not exist.
func Size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// HasLog reports whether a database has a non-empty log, which means that it was not closed. SQLite
// removes the log when it closes a database.
func HasLog(path string) bool {
	log, err := os.Stat(path + "-wal")
	return err == nil && log.Size() > 0
}

// NewKeeper returns a Keeper for the database at path. m is the marker that Inspect returned.
func NewKeeper(path string, m Marker) *Keeper {
	return &Keeper{path: path, found: m, markedOpen: m.State == StateOpen}
}

// Keeper updates the marker of an open database.
type Keeper struct {
	path  string
	found Marker // marker when the file was opened

	mu         sync.Mutex
	markedOpen bool  // the marker on disk has the state open
	identified bool  // this Keeper has recorded the inodes in the marker
	held       bool  // writes stay in the log, so the checksum of the file remains valid
	damaged    error // a *sqlite.CorruptError
	checked    bool  // a check of the whole file succeeded
}

// MarkOpen records that the database is open, which invalidates its checksum. It must be called
// before each write; only the first call writes the marker.
func (s *Keeper) MarkOpen() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.damaged != nil {
		return s.damaged
	}
	if s.markedOpen && s.identified {
		return nil
	}
	m := Marker{State: StateOpen}
	if s.held {
		m.Size, m.Sum = s.found.Size, s.found.Sum
	}
	if err := WriteMarker(s.path, m); err != nil {
		return fmt.Errorf("%s cannot be written, so nothing was changed in the database beside it; look at the free space, the owner and the permissions of its folder: %w", MarkerPath(s.path), err)
	}

	s.markedOpen, s.identified = true, true
	return nil
}

// Quarantine stops all use of a database because its content is not reliable any more. The
// quarantine survives a restart. The file is left unchanged.
func (s *Keeper) Quarantine(bad *sqlite.CorruptError) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.damaged == nil {
		s.damaged = bad
		if err := WriteMarker(s.path, Marker{State: StateQuarantined, Reason: bad.Reason}); err != nil {
			return errors.Join(bad, err)
		}
	}
	return bad
}

// Hold records that writes stay in the log until Release is called.
func (s *Keeper) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = true
}

// Release records that writes reach the file again. It must be called before the first checkpoint.
func (s *Keeper) Release() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.held = false
	if !s.markedOpen {
		return nil
	}
	return WriteMarker(s.path, Marker{State: StateOpen})
}

// Changed stops all use of a database that was opened and then found not to match its checksum. If
// the database has not been written to since, restoring the original file makes it usable again.
func (s *Keeper) Changed() error {
	s.mu.Lock()
	untouched := !s.markedOpen && s.damaged == nil
	if untouched {
		s.damaged = &sqlite.CorruptError{Path: s.path, Reason: ReasonChanged}
	}
	s.mu.Unlock()

	if !untouched {
		return s.Quarantine(&sqlite.CorruptError{Path: s.path, Reason: ReasonChanged})
	}

	m := s.found
	m.Reason = ReasonChanged
	return errors.Join(s.damaged, WriteMarker(s.path, m))
}

// SetChecked records that a check of the whole file succeeded, so that MarkClosed may store a
// checksum again.
func (s *Keeper) SetChecked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked = true
}

// Checked reports whether a check of the whole file succeeded.
func (s *Keeper) Checked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checked
}

// Quarantined returns the *sqlite.CorruptError of a quarantined database, or nil if it may be used.
func (s *Keeper) Quarantined() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damaged
}

// MarkClosed computes and stores the checksum of a closed file. If the file gets no checksum, its
// structure is checked when it is next opened.
func (s *Keeper) MarkClosed() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	// A checksum is not needed if there were no writes. A checksum must not vouch for an unchecked
	// file.
	if !s.markedOpen || !s.checked || s.damaged != nil || HasLog(s.path) {
		return nil
	}

	closed, err := ClosedMarker(s.path)
	if err == nil {
		err = WriteMarker(s.path, closed)
	}
	if err != nil {
		return fmt.Errorf("the database is closed, but its checksum could not be stored: %w", err)
	}

	s.markedOpen = false
	return nil
}

// QuickInspect inspects a closed file without reading it. It compares only the size and the stored
// result of the last Inspect. It returns a *sqlite.CorruptError if the file must not be used.
func QuickInspect(path string) error {
	s, err := ReadMarker(path)
	if err != nil || s.State == "" || s.State == StateReplacing {
		return err
	}

	size := Size(path)
	switch {
	case s.State == StateQuarantined, s.State == StateClosed && s.Reason != "" && !HasLog(path):
		return &sqlite.CorruptError{Path: path, Reason: s.Reason}
	case s.displaced(path):
		return &sqlite.CorruptError{Path: path, Reason: reasonDisplaced}
	case size == 0:
		return &sqlite.CorruptError{Path: path, Reason: ReasonLost}
	case s.State == StateClosed && size != s.Size && !HasLog(path):
		return &sqlite.CorruptError{Path: path, Reason: ReasonChanged}
	}

	return nil
}
