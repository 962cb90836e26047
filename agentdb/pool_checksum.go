package agentdb

import (
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

	"rouse/agentdb/sqlite"
	"rouse/internal/text"
)

// SQLite has no checksums: it does not notice a bit that flips inside a text. So the size and
// the checksum of a file that was closed are stored beside it, in db.sqlite-seal, and compared
// when it is opened. This clean-shutdown marker also says that there was a database, so that
// one which got lost is not silently replaced by an empty one, and that one is quarantined.
//
// A file that was not closed, because its process was killed, has no checksum; SQLite checks
// its structure instead.

// The states of a marker, as they are on disk.
const (
	markerOpen        = "open"      // the file may change at any time, or was not closed
	markerClosed      = "closed"    // the file is as Size and Sum say
	markerQuarantined = "damaged"   // nobody is to use the file, for Reason
	markerReplacing   = "replacing" // PATH-new is to be the file, and what is there goes to Aside
)

// markerBytes is the length of a marker. It is overwritten in place, within one sector, so that
// after a crash it is the old or the new one.
const markerBytes = 512

// marker is the clean-shutdown marker of a database file.
type marker struct {
	State  string    `json:"state"`
	Size   int64     `json:"size,omitempty"`
	Sum    uint32    `json:"crc32c,omitempty"`
	Reason string    `json:"reason,omitempty"` // of a closed one: why it was refused when it was last inspected
	Aside  string    `json:"aside,omitempty"`  // a folder, relative to that of the file
	At     time.Time `json:"at"`
}

// reasonChanged is why a file is refused whose checksum does not match.
const reasonChanged = "it is not as rouse left it: its disk damaged it, or another program changed it"

// reasonLost is why a database is refused that is not there any more, or empty.
const reasonLost = "the file is gone, or empty, and was not"

func markerPath(path string) string { return path + "-seal" }

// readMarker reads the marker of a file; its State is "" when there is none. One that cannot be
// parsed says no more than that there was a database.
func readMarker(path string) (marker, error) {
	text, err := os.ReadFile(markerPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return marker{}, nil
	}
	if err != nil {
		return marker{}, fmt.Errorf("cannot read what is known of the database: %w", err)
	}

	var s marker
	if json.Unmarshal(text, &s) != nil {
		return marker{State: markerOpen}, nil //nolint:nilerr // the file is checked instead
	}

	return s, nil
}

// writeMarker is durable when it returns.
func writeMarker(path string, s marker) error {
	s.At = time.Now().UTC()

	// The marker must not outgrow its sector, and the reason is the only part without a bound.
	line, err := json.Marshal(s)
	for err == nil && len(line) > markerBytes-1 {
		s.Reason = text.HeadBytes(s.Reason, len(s.Reason)-(len(line)-markerBytes+8))
		line, err = json.Marshal(s)
	}
	if err != nil {
		return err
	}

	f, err := os.OpenFile(markerPath(path), os.O_WRONLY|os.O_CREATE, 0o600)
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

// fileChecksum reads a whole file.
func fileChecksum(path string) (size int64, sum uint32, err error) {
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

// closedMarker computes the marker of a file that nobody has open.
func closedMarker(path string) (marker, error) {
	size, sum, err := fileChecksum(path)
	return marker{State: markerClosed, Size: size, Sum: sum}, err
}

// inspect compares a file that nobody has open with its marker. whole says that the checksum
// matches; otherwise its structure has to be checked. A *sqlite.CorruptError says why the file
// must not be used.
func inspect(path string, log *slog.Logger) (s marker, whole bool, err error) {
	if s, err = readMarker(path); err != nil {
		return s, false, err
	}

	if s.State == markerReplacing {
		if s, err = finishReplacing(path, s); err != nil {
			return s, false, err
		}
	}

	bad := func(reason string) (marker, bool, error) {
		return s, false, &sqlite.CorruptError{Path: path, Reason: reason}
	}
	if s.State == "" {
		return s, false, nil
	}

	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return bad(reasonLost)
	case err != nil:
		return s, false, fmt.Errorf("cannot open the database %s: %w", path, err)
	case s.State == markerQuarantined:
		return bad(s.Reason)
	case info.Size() == 0:
		return bad(reasonLost)
	case s.State != markerClosed:
		return s, false, nil
	}

	now, err := closedMarker(path)
	if err != nil {
		return s, false, fmt.Errorf("cannot read the database %s: %w", path, err)
	}

	whole = now.Size == s.Size && now.Sum == s.Sum
	if !whole && hasLog(path) {
		// The marker is forced to the disk before the first write, but a power cut may have
		// kept the log and not the marker. The log is rouse's own, so SQLite recovers from it.
		return s, false, nil
	}

	// The outcome is stored, so that quickInspect knows it without reading the file.
	if refused := s.Reason != ""; refused == whole {
		if s.Reason = reasonChanged; whole {
			s.Reason = ""
		}
		if err := writeMarker(path, s); err != nil {
			log.Warn("the result of checking an agent's database could not be stored", "path", path, "error", err)
		}
	}

	if whole {
		return s, true, nil
	}

	return bad(reasonChanged)
}

// hasLog says whether a database was not closed: SQLite removes the log of one that is.
func hasLog(path string) bool {
	log, err := os.Stat(path + "-wal")
	return err == nil && log.Size() > 0
}

// markerKeeper writes the marker of an open database.
type markerKeeper struct {
	path string

	mu         sync.Mutex
	markedOpen bool  // the marker says open
	damaged    error // a *sqlite.CorruptError
	checked    bool  // the whole file was checked and is sound
}

// markOpen is called before each write, and writes once: from then on the checksum is void.
func (s *markerKeeper) markOpen() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.damaged != nil {
		return s.damaged
	}
	if s.markedOpen {
		return nil
	}
	if err := writeMarker(s.path, marker{State: markerOpen}); err != nil {
		return fmt.Errorf("%s cannot be written, so nothing was changed in the database beside it; look at the free space, the owner and the permissions of its folder: %w", markerPath(s.path), err)
	}

	s.markedOpen = true
	return nil
}

// quarantine stops all use of the database, now and after a restart: its content cannot be
// trusted any more. The file stays as it is.
func (s *markerKeeper) quarantine(bad *sqlite.CorruptError) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.damaged == nil {
		s.damaged = bad
		if err := writeMarker(s.path, marker{State: markerQuarantined, Reason: bad.Reason}); err != nil {
			return errors.Join(bad, err)
		}
	}
	return bad
}

// setChecked records that the whole file was checked, so that it may get a checksum again.
func (s *markerKeeper) setChecked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked = true
}

func (s *markerKeeper) quarantined() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damaged
}

// markClosed computes and stores the checksum of a file that was closed. One without a
// checksum is checked when it is next opened.
func (s *markerKeeper) markClosed() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	// Nothing was written; or a checksum would vouch for a file that nobody has checked.
	if !s.markedOpen || !s.checked || s.damaged != nil || hasLog(s.path) {
		return nil
	}

	closed, err := closedMarker(s.path)
	if err == nil {
		err = writeMarker(s.path, closed)
	}
	if err != nil {
		return fmt.Errorf("the database is closed, but its checksum could not be stored: %w", err)
	}

	s.markedOpen = false
	return nil
}
