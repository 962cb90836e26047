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

// SQLite has no checksums: it does not notice a bit that flips inside a text. So the size and
// the checksum of a file that was closed are stored beside it, in PATH-seal, and compared
// when it is opened. This clean-shutdown marker also says that there was a database, so that
// one which got lost is not silently replaced by an empty one, and that one is quarantined.
//
// A file that was not closed, because its process was killed, has no checksum; SQLite checks
// its structure instead.

// The states of a marker, as they are on disk.
const (
	StateOpen        = "open"      // the file may change at any time, or was not closed; with a Size it is still as it was closed
	StateClosed      = "closed"    // the file is as Size and Sum say
	StateQuarantined = "damaged"   // nobody is to use the file, for Reason
	StateReplacing   = "replacing" // PATH-new is to be the file, and what is there goes to Aside
)

// markerBytes is the length of a marker. It is overwritten in place, within one sector, so that
// after a crash it is the old or the new one.
const markerBytes = 512

// Marker is the clean-shutdown marker of a database file.
type Marker struct {
	State  string    `json:"state"`
	Size   int64     `json:"size,omitempty"`
	Sum    uint32    `json:"crc32c,omitempty"`
	Reason string    `json:"reason,omitempty"` // of a closed one: why it was refused when it was last inspected
	Aside  string    `json:"aside,omitempty"`  // a folder, relative to that of the file
	At     time.Time `json:"at"`
	// Of an open one: which file is open, and which log. 0 when that is not known.
	Inode    uint64 `json:"inode,omitempty"`
	LogInode uint64 `json:"log_inode,omitempty"`
}

// ReasonChanged is why a file is refused whose checksum does not match.
const ReasonChanged = "it is not as rouse left it: its disk damaged it, or another program changed it"

// ReasonLost is why a database is refused that is not there any more, or empty.
const ReasonLost = "the file is gone, or empty, and was not"

// held says that a file was not closed, but that nothing got into it since it was.
func (s Marker) held() bool { return s.State == StateOpen && s.Size > 0 }

// MarkerPath is where the marker of a file is.
func MarkerPath(path string) string { return path + "-seal" }

// ReadMarker reads the marker of a file; its State is "" when there is none. One that cannot be
// parsed says no more than that there was a database.
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

// WriteMarker is durable when it returns.
func WriteMarker(path string, s Marker) error {
	s.At = time.Now().UTC()
	if s.State == StateOpen {
		s.identify(path)
	}

	// The marker must not outgrow its sector, and the reason is the only part without a bound.
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

	// No rename: this is written before the first write of every opened database, and one
	// sector needs none. The padding overwrites what a longer marker left.
	_, err = f.WriteAt([]byte(fmt.Sprintf("%-*s\n", markerBytes-1, line)), 0)
	if err == nil {
		err = f.Sync()
	}

	return errors.Join(err, f.Close())
}

// Checksum reads a whole file.
func Checksum(path string) (size int64, sum uint32, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()

	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	// Hiding the file's WriteTo makes CopyBuffer use this buffer, which is 32 times the usual one.
	size, err = io.CopyBuffer(h, struct{ io.Reader }{f}, make([]byte, 1<<20))
	return size, h.Sum32(), err
}

// Matches reads an opened file to its end, and says whether it is as the marker has it.
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

// ClosedMarker computes the marker of a file that nobody has open.
func ClosedMarker(path string) (Marker, error) {
	size, sum, err := Checksum(path)
	return Marker{State: StateClosed, Size: size, Sum: sum}, err
}

// Inspect compares a file that nobody has open with its marker. whole says that the checksum
// matches; otherwise its structure has to be checked. A *sqlite.CorruptError says why the file
// must not be used.
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
		// The marker is forced to the disk before the first write, but a power cut may have
		// kept the log and not the marker. The log is rouse's own, so SQLite recovers from it.
		return s, false, nil
	}

	// The outcome is stored, so that QuickInspect knows it without reading the file.
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
		// From now on the log gets into the file.
		s = Marker{State: StateOpen}
		return s, true, WriteMarker(path, s)
	}

	return s, true, nil
}

// Size is that of a file, 0 when there is none.
func Size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// HasLog says whether a database was not closed: SQLite removes the log of one that is.
func HasLog(path string) bool {
	log, err := os.Stat(path + "-wal")
	return err == nil && log.Size() > 0
}

// NewKeeper takes the marker that Inspect found.
func NewKeeper(path string, m Marker) *Keeper {
	return &Keeper{path: path, found: m, markedOpen: m.State == StateOpen}
}

// Keeper writes the marker of an open database.
type Keeper struct {
	path  string
	found Marker // when the file was opened

	mu         sync.Mutex
	markedOpen bool  // the marker says open
	identified bool  // and which files are open since this was made
	held       bool  // what is written stays in the log, so that the checksum holds for the file
	damaged    error // a *sqlite.CorruptError
	checked    bool  // the whole file was checked and is sound
}

// MarkOpen is called before each write, and writes once: from then on the checksum is void.
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

// Quarantine stops all use of the database, now and after a restart: its content cannot be
// trusted any more. The file stays as it is.
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

// Hold says that what is written stays in the log until Release.
func (s *Keeper) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = true
}

// Release says that from now on what is written gets into the file. It is called before it does.
func (s *Keeper) Release() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.held = false
	if !s.markedOpen {
		return nil
	}
	return WriteMarker(s.path, Marker{State: StateOpen})
}

// Changed stops all use of a database whose checksum was compared while it was open, and differs.
// Where nothing was written meanwhile, putting the file back as it was mends it.
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

// SetChecked records that the whole file was checked, so that it may get a checksum again.
func (s *Keeper) SetChecked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked = true
}

// Checked says whether the whole file was checked.
func (s *Keeper) Checked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checked
}

// Quarantined is why the database must not be used, a *sqlite.CorruptError; nil: it may be.
func (s *Keeper) Quarantined() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damaged
}

// MarkClosed computes and stores the checksum of a file that was closed. One without a
// checksum is checked when it is next opened.
func (s *Keeper) MarkClosed() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	// Nothing was written; or a checksum would vouch for a file that nobody has checked.
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

// QuickInspect says what can be said of a closed file without reading it: only its size is
// compared, and what Inspect found when it was last opened.
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
