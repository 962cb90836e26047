package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/litestream"
	"github.com/superfly/ltx"

	"rouse/internal/atomicfile"
	"rouse/internal/storage/dbfile"
	"rouse/internal/storage/sqlite"
)

const (
	// maxLog is the size of the log in bytes at which a Follower stops waiting for the log to be
	// shipped.
	maxLog = 64 << 20
	// drainAt is the size of a shipped log in bytes at which Drain checkpoints it. It equals
	// SQLite's default for automatic checkpoints.
	drainAt = 1000 * 4096
)

// Shipper reads the transactions of one database from its write-ahead log and ships them to a
// litestream.ReplicaClient as LTX files.
//
// A read transaction (keep) prevents SQLite from restarting the log while it contains data that is
// not shipped. Once everything is shipped, Drain checkpoints the log in the writer's turn. A log
// larger than maxLog is released, and the whole database is shipped next.
//
// The whole database is also shipped if the log may not continue the shipped data: after another
// process wrote to the file, after the file was replaced, or if a shipped frame is missing. So the
// copies never mix states of different files. The salts and the running checksum of the log
// identify a position in it. For a closed file without a log, the clean-shutdown marker's size and
// checksum do.
type Shipper struct {
	path   string // path of the database
	state  string // file that stores the shipped state
	client litestream.ReplicaClient

	mu      sync.Mutex // held while shipping, opening and closing
	db      *sqlite.DB // nil while the database is closed
	known   state
	asked   bool // known was compared with the copies
	at      position
	whole   bool     // everything before at is shipped
	drained bool     // the log may restart once if nothing was written after at
	early   bool     // keep may precede the first frame, where it blocks every checkpoint
	base    string   // copy of the whole database at the position at, "" if not needed
	end     position // end of the transactions in found
	found   map[uint32]int64

	keepMu sync.Mutex
	keep   *sqlite.Snapshot
	lost   atomic.Bool // keep was released, so the log may have lost data that is not shipped
}

// state is the shipped state, stored as JSON in the state file.
type state struct {
	TX ltx.TXID `json:"tx"` // last shipped transaction
	At int64    `json:"at"` // time of TX, in Unix milliseconds
	// Whole reports whether everything before Position is shipped. Size and Sum describe the file
	// if it was closed at Position.
	Whole    bool     `json:"whole"`
	Position position `json:"position"`
	Size     int64    `json:"size,omitempty"`
	Sum      uint32   `json:"crc32c,omitempty"`
}

// New returns a Follower for the database at path. It does not read the database yet. stateFile
// stores the shipped state.
func New(path, stateFile string, client litestream.ReplicaClient) *Shipper {
	f := &Shipper{path: path, state: stateFile, client: client}
	text, err := os.ReadFile(stateFile)
	if err != nil || json.Unmarshal(text, &f.known) != nil {
		f.known = state{} // the whole database is shipped next
	}
	return f
}

// Shipped reports whether everything that was written to a closed file is shipped. It returns false
// if that is unknown or the file has changed.
func (f *Shipper) Shipped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := dbfile.ReadMarker(f.path)
	return err == nil && f.closedAs(m) && !dbfile.HasLog(f.path)
}

func (f *Shipper) closedAs(m dbfile.Marker) bool {
	return f.known.Whole && f.known.Size > 0 && m.State == dbfile.StateClosed && m.Size == f.known.Size && m.Sum == f.known.Sum
}

// Opened starts following a database. It must be called before the first write, or in the writer's
// turn. committed is called after writes and must not block. If the log does not continue the
// shipped data, the whole database is shipped next.
func (f *Shipper) Opened(ctx context.Context, db *sqlite.DB, found dbfile.Marker, committed func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.db, f.found = db, nil
	f.whole = f.hold(ctx) == nil && f.continues(found)
	f.end, f.drained, f.early = f.at, true, true
	if f.whole && f.scan(ctx) != nil {
		f.whole = false
	}
	db.Observe(committed, f.closing)
}

// continues sets f.at to the position in the log up to which the opened file is shipped. It returns
// false if there is no such position.
func (f *Shipper) continues(found dbfile.Marker) bool {
	if !f.known.Whole {
		return false
	}
	closed := f.closedAs(found)
	l, err := openLog(f.path)
	switch {
	case errors.Is(err, errNoLog):
		f.at = position{Commit: f.known.Position.Commit}
		return closed
	case err != nil:
		return false
	}
	defer l.f.Close()

	f.at = f.known.Position
	if f.at.Offset > 0 && l.holds(f.at) {
		return true
	}
	f.at = l.begin(f.known.Position.Commit)
	return closed && l.seq == 0
}

// closing releases the log and records whether all of it is shipped.
func (f *Shipper) closing() {
	if !f.mu.TryLock() { // do not wait for a call that is shipping
		f.letGo()
		return
	}
	defer f.mu.Unlock()
	whole := f.whole && !f.lost.Load() && f.scan(context.Background()) == nil && f.whole && f.end == f.at
	f.letGo()
	f.db, f.base = nil, f.dropBase()
	f.known.Whole, f.known.Position, f.known.Size, f.known.Sum = whole, f.at, 0, 0
	if whole {
		return // Closed saves the state
	}
	_ = f.save() // the whole database is shipped next
}

// Closed records the checksum of the file from its marker. It must be called after the file is
// closed.
func (f *Shipper) Closed() {
	if !f.mu.TryLock() {
		return
	}
	defer f.mu.Unlock()
	if f.db != nil || !f.known.Whole {
		return
	}
	m, err := dbfile.ReadMarker(f.path)
	if err != nil || m.State != dbfile.StateClosed {
		f.known.Whole = false
	}
	f.known.Size, f.known.Sum = m.Size, m.Sum
	_ = f.save() // the whole database is shipped next
}

func (f *Shipper) save() error {
	if err := os.MkdirAll(filepath.Dir(f.state), 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(f.known)
	if err != nil {
		return err
	}
	// An atomic rename is enough, without a sync: data lost in a power cut is shipped again.
	to := atomicfile.TempName(f.state)
	if err := os.WriteFile(to, text, 0o600); err != nil {
		return err
	}
	return os.Rename(to, f.state)
}

// hold opens a new keep, so that the log can only grow.
func (f *Shipper) hold(ctx context.Context) error {
	s, err := sqlite.OpenSnapshot(ctx, f.path)
	if err != nil {
		return err
	}
	if err := s.Take(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	return f.replaceKeep(s)
}

func (f *Shipper) replaceKeep(s *sqlite.Snapshot) error {
	f.keepMu.Lock()
	defer f.keepMu.Unlock()
	before := f.keep
	f.keep = s
	if before == nil {
		f.lost.Store(false)
		return nil
	}
	return before.Close()
}

func (f *Shipper) letGo() {
	f.keepMu.Lock()
	defer f.keepMu.Unlock()
	if f.keep != nil {
		_ = f.keep.Close() // read-only
		f.keep = nil
	}
	f.lost.Store(true)
}

// Bound releases a log that has become too large before it could be shipped, and reports whether it
// did. It does not block.
func (f *Shipper) Bound() (gone bool) {
	f.keepMu.Lock()
	held := f.keep != nil
	f.keepMu.Unlock()
	if !held || f.Waiting() < maxLog {
		return false
	}
	f.letGo()
	return true
}

// Waiting returns the approximate size of the log that is not shipped, in bytes.
func (f *Shipper) Waiting() int64 {
	info, err := os.Stat(f.path + "-wal")
	if err != nil {
		return 0
	}
	return info.Size()
}

// Prepare does the slow part of a Cut in advance: it reads the log, or copies the whole database if
// the log is not enough. The database must be open.
func (f *Shipper) Prepare(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db == nil {
		return errors.New("it is not open")
	}
	if !f.asked {
		if err := f.ask(ctx); err != nil {
			return err
		}
	}
	if f.lost.Load() {
		f.whole = false
	}
	if f.whole {
		if err := f.scan(ctx); err != nil {
			return err
		}
	}
	if !f.whole {
		return f.copyBase(ctx)
	}
	return nil
}

// ask compares the known state with the copies. They can differ if a process died after writing a
// copy.
func (f *Shipper) ask(ctx context.Context) error {
	files, err := f.client.LTXFiles(ctx, 0, f.known.TX, false)
	if err != nil {
		return err
	}
	defer files.Close()
	newest, there := f.known.TX, f.known.TX == 0
	for files.Next() {
		newest = max(newest, files.Item().MaxTXID)
		there = there || files.Item().MaxTXID == f.known.TX
	}
	if err := files.Err(); err != nil {
		return err
	}
	if !there { // the copies were removed or reset to an older state: continue from the newest one
		if newest, err = f.newest(ctx); err != nil {
			return err
		}
	}
	if newest != f.known.TX || !there {
		f.whole = false
	}
	f.known.TX, f.asked = newest, true
	return nil
}

// newest returns the newest transaction among the copies, or 0 if there are no copies.
func (f *Shipper) newest(ctx context.Context) (ltx.TXID, error) {
	versions, err := Versions(ctx, f.client)
	if err != nil || len(versions) == 0 {
		return 0, err
	}
	return versions[len(versions)-1].TX, nil
}

// Cut determines the transactions that Ship writes. The caller must prevent writes during the call.
func (f *Shipper) Cut(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db == nil || !f.whole {
		return nil
	}
	return f.scan(ctx)
}

// scan reads the transactions added to the log since the last call.
func (f *Shipper) scan(ctx context.Context) error {
	l, err := openLog(f.path)
	if errors.Is(err, errNoLog) {
		f.whole = f.whole && f.end.Offset == 0
		return nil
	}
	if err != nil {
		return err
	}
	defer l.f.Close()

	switch {
	case f.end.Offset == 0: // the database's first log was created
		f.whole = f.whole && l.seq == 0
		f.end = l.begin(f.end.Commit)
		f.at = f.end
	case l.holds(f.end):
	case f.drained && f.end == f.at && l.seq == f.end.Seq+1:
		f.end = l.begin(f.end.Commit)
		f.at = f.end
	default:
		f.whole = false
	}
	if !f.whole {
		return nil
	}

	if f.found == nil {
		f.found = map[uint32]int64{}
	}
	end, err := l.scan(f.end, f.found)
	if err != nil {
		return err
	}
	if end != f.end {
		f.drained = false
	}
	if end.Offset > walHeader && f.early {
		f.early = false
		if err := f.hold(ctx); err != nil {
			return err
		}
	}
	f.end = end
	return nil
}

// Ship writes the transactions that Cut found. If the log does not continue the shipped data, Ship
// writes the whole database first. at is the timestamp in Unix milliseconds. n is the number of
// transactions written, from 0 to 2.
func (f *Shipper) Ship(ctx context.Context, at int64) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db == nil {
		return 0, nil
	}
	if !f.whole {
		return 0, errors.New("its log does not continue what was shipped; it is shipped whole")
	}

	if f.base != "" {
		commit, err := f.shipBase(ctx, at)
		if err != nil {
			f.asked = false // the file may have been written
			return 0, err
		}
		f.at.Commit = commit
		f.base, n = f.dropBase(), 1
		if f.end.Offset == f.at.Offset {
			f.end.Commit = commit
		}
		if err := f.remember(at); err != nil {
			return n, err
		}
	}
	if len(f.found) == 0 {
		f.at = f.end
		return n, nil
	}

	body, err := f.read(at)
	if err != nil {
		return n, err
	}
	if _, err := f.client.WriteLTXFile(ctx, 0, f.known.TX+1, f.known.TX+1, body); err != nil {
		f.asked = false // the file may have been written
		return n, err
	}
	f.at, f.found = f.end, nil
	return n + 1, f.remember(at)
}

// read encodes the found transactions as an LTX file. It returns an error if the log was released
// meanwhile.
func (f *Shipper) read(at int64) (io.Reader, error) {
	l, err := openLog(f.path)
	if err != nil {
		return nil, err
	}
	defer l.f.Close()
	var body bytes.Buffer
	err = segment{f.found, f.at.Commit, f.end.Commit}.encode(&body, l, f.known.TX+1, at)
	if err == nil && (f.lost.Load() || !l.holds(f.end)) {
		f.whole = false
		err = errors.New("its log was let go while it was read; it is shipped whole")
	}
	return &body, err
}

// remember saves that one more transaction is shipped.
func (f *Shipper) remember(at int64) error {
	f.asked = true
	f.known = state{TX: f.known.TX + 1, At: at, Whole: f.whole, Position: f.at}
	return f.save()
}

// Drain checkpoints a shipped log, so that it does not grow without limit.
func (f *Shipper) Drain(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db == nil || !f.whole || f.end.Offset < drainAt || f.drained {
		return nil
	}
	return f.db.Turn(ctx, func() error {
		if err := f.scan(ctx); err != nil || !f.whole || f.end != f.at {
			return err
		}
		f.letGo()
		err := f.db.Checkpoint(ctx)
		// Take the new snapshot in the same turn, so that the log cannot restart twice.
		if e := f.hold(ctx); e != nil {
			f.whole = false
			return errors.Join(err, e)
		}
		f.drained, f.early = true, true
		return err
	})
}

// Restored records that the closed file was restored from a transaction.
func (f *Shipper) Restored(v Version) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := dbfile.ReadMarker(f.path)
	if err != nil {
		return err
	}
	pageSize, err := readPageSize(f.path)
	if err != nil {
		return err
	}

	f.known = state{TX: v.TX, At: v.At.UnixMilli(), Whole: m.State == dbfile.StateClosed, Position: position{Commit: uint32(m.Size / pageSize)}, Size: m.Size, Sum: m.Sum} //nolint:gosec // page counts fit in 32 bits
	f.asked = true
	return f.save()
}

// Last returns the last transaction known to be shipped.
func (f *Shipper) Last() Version {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Version{f.known.TX, time.UnixMilli(f.known.At).UTC()}
}

// Holds reports whether the closed file is intact and has the state of a transaction. It reads the
// whole file.
func (f *Shipper) Holds(ctx context.Context, v Version) bool {
	m, err := dbfile.ReadMarker(f.path)
	if err != nil || m.Reason != "" || !f.Shipped() || f.Last() != v {
		return false
	}
	file, err := os.Open(f.path)
	if err != nil {
		return false
	}
	defer file.Close()
	same, err := m.Matches(ctx, file)
	return err == nil && same
}
