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

// SQLite has no checksums: a bit that flips inside a text is nothing that it could notice.
// So the size and a sum of a file that was closed are kept beside it, in db.sqlite-seal,
// and compared when it is opened. The same small file says that there was a database, so
// that one which is lost is not made anew, and that one is barred because it is damaged.
//
// A file that was not closed, because its process was killed, has no sum; its structure is
// looked at instead.

// The states of a seal.
const (
	sealOpen      = "open"      // the file may change at any time, or was not closed
	sealClosed    = "closed"    // the file is as Size and Sum say
	sealDamaged   = "damaged"   // nobody is to use the file, for Reason
	sealReplacing = "replacing" // PATH-new is to be the file, and what is there goes to Aside
)

// sealBytes is the length of a seal. It is written over in place, within one sector, so
// that it is the old or the new one after a crash.
const sealBytes = 512

type seal struct {
	State  string    `json:"state"`
	Size   int64     `json:"size,omitempty"`
	Sum    uint32    `json:"crc32c,omitempty"`
	Reason string    `json:"reason,omitempty"` // of a closed one: why it was refused when it was last looked at
	Aside  string    `json:"aside,omitempty"`  // a folder, relative to that of the file
	At     time.Time `json:"at"`
}

// changedOutside is why a closed file is refused that is not as it was closed.
const changedOutside = "it is not as rouse left it: its disk damaged it, or another program changed it"

// lost is why a database is refused that is not there any more, or empty.
const lost = "the file is gone, or empty, and was not"

func sealPath(path string) string { return path + "-seal" }

// readSeal reads the seal of a file; its State is "" when there is none. One that cannot be
// understood says no more than that there was a database.
func readSeal(path string) (seal, error) {
	text, err := os.ReadFile(sealPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		return seal{}, nil
	}
	if err != nil {
		return seal{}, fmt.Errorf("cannot read what is known of the database: %w", err)
	}

	var s seal
	if json.Unmarshal(text, &s) != nil {
		return seal{State: sealOpen}, nil //nolint:nilerr // that is what it means
	}

	return s, nil
}

// writeSeal is durable when it returns.
func writeSeal(path string, s seal) error {
	s.At = time.Now().UTC()
	line, err := json.Marshal(s)
	for err == nil && len(line) > sealBytes-1 { // a long reason
		s.Reason = text.HeadBytes(s.Reason, len(s.Reason)-(len(line)-sealBytes+8))
		line, err = json.Marshal(s)
	}
	if err != nil {
		return err
	}

	f, err := os.OpenFile(sealPath(path), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}

	_, err = f.WriteAt([]byte(fmt.Sprintf("%-*s\n", sealBytes-1, line)), 0)
	if err == nil {
		err = f.Sync()
	}

	return errors.Join(err, f.Close())
}

// measureFile gives what a seal keeps of a file.
func measureFile(path string) (size int64, sum uint32, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()

	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	// Without its other methods the file is read into a buffer of this size.
	size, err = io.CopyBuffer(h, struct{ io.Reader }{f}, make([]byte, 1<<20))
	return size, h.Sum32(), err
}

// closedSeal is the seal of a file that nobody has open.
func closedSeal(path string) (seal, error) {
	size, sum, err := measureFile(path)
	return seal{State: sealClosed, Size: size, Sum: sum}, err
}

// inspect compares a file that nobody has open with its seal. whole says that it is proved
// to be as it was left; otherwise its structure has to be looked at. A *sqlite.CorruptError
// says why it must not be used.
func inspect(path string, log *slog.Logger) (s seal, whole bool, err error) {
	if s, err = readSeal(path); err != nil {
		return s, false, err
	}

	if s.State == sealReplacing {
		if s, err = finishReplacing(path, s); err != nil {
			return s, false, err
		}
	}

	bad := func(reason string) (seal, bool, error) {
		return s, false, &sqlite.CorruptError{Path: path, Reason: reason}
	}
	if s.State == "" {
		return s, false, nil
	}

	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return bad(lost)
	case err != nil:
		return s, false, fmt.Errorf("cannot open the database %s: %w", path, err)
	case s.State == sealDamaged:
		return bad(s.Reason)
	case info.Size() == 0:
		return bad(lost)
	case s.State != sealClosed:
		return s, false, nil
	}

	now, err := closedSeal(path)
	if err != nil {
		return s, false, fmt.Errorf("cannot read the database %s: %w", path, err)
	}

	whole = now.Size == s.Size && now.Sum == s.Sum
	if !whole && hasLog(path) { // the power went before the seal was broken
		return s, false, nil
	}

	if refused := s.Reason != ""; refused == whole { // who only glances at it is to know too
		if s.Reason = changedOutside; whole {
			s.Reason = ""
		}
		if err := writeSeal(path, s); err != nil {
			log.Warn("what was found of an agent's database could not be noted", "path", path, "error", err)
		}
	}

	if whole {
		return s, true, nil
	}

	return bad(changedOutside)
}

func hasLog(path string) bool {
	log, err := os.Stat(path + "-wal")
	return err == nil && log.Size() > 0
}

// sealing is the part of an open database that keeps its seal.
type sealing struct {
	path string

	mu      sync.Mutex
	broken  bool  // the seal says open
	damaged error // a *sqlite.CorruptError
	checked bool  // the whole file is known to be sound
}

// breakSeal is called before each write.
func (s *sealing) breakSeal() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.damaged != nil {
		return s.damaged
	}
	if s.broken {
		return nil
	}
	if err := writeSeal(s.path, seal{State: sealOpen}); err != nil {
		return fmt.Errorf("%s cannot be written, so nothing was changed in the database beside it; look at the free space, the owner and the permissions of its folder: %w", sealPath(s.path), err)
	}

	s.broken = true
	return nil
}

// condemn bars the database: what it says cannot be trusted any more. It stays as it is.
func (s *sealing) condemn(bad *sqlite.CorruptError) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.damaged == nil {
		s.damaged = bad
		if err := writeSeal(s.path, seal{State: sealDamaged, Reason: bad.Reason}); err != nil {
			return errors.Join(bad, err)
		}
	}
	return bad
}

// sound notes that the whole file was looked at.
func (s *sealing) sound() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked = true
}

func (s *sealing) barred() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damaged
}

// settle seals the file after it was closed. What cannot be sealed is looked at anew when
// it is opened.
func (s *sealing) settle() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if !s.broken || !s.checked || s.damaged != nil || hasLog(s.path) {
		return nil
	}

	closed, err := closedSeal(s.path)
	if err == nil {
		err = writeSeal(s.path, closed)
	}
	if err != nil {
		return fmt.Errorf("the database is closed, and could not be sealed: %w", err)
	}

	s.broken = false
	return nil
}
