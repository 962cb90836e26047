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
	// maxLog is how large a log may become, in bytes, while it waits for being shipped.
	maxLog = 64 << 20
	// drainAt is from which size a log that is shipped is brought into the file, in bytes: as SQLite does by itself.
	drainAt = 1000 * 4096
)

// Follower ships one database.
type Follower struct {
	path   string // of the database
	state  string // of the file that keeps what is shipped
	client litestream.ReplicaClient

	mu      sync.Mutex // held while something is shipped, opened and closed
	db      *sqlite.DB // nil while it is closed
	known   state
	asked   bool // the place of the copies was asked what it has
	at      position
	whole   bool     // what is shipped is all until at
	drained bool     // the log may begin again, once, where nothing came after at
	early   bool     // the keep may be of before the first frame, where it holds back every checkpoint
	base    string   // a copy of the whole database as it was at at, "" where none is needed
	end     position // of what is found in the log
	found   map[uint32]int64

	keepMu sync.Mutex
	keep   *sqlite.Snapshot
	lost   atomic.Bool // the keep was given up, so that the log may not hold what is expected there
}

// state is what is kept beside the home of what is shipped.
type state struct {
	TX ltx.TXID `json:"tx"` // the last that is shipped
	At int64    `json:"at"` // of when that is, in milliseconds
	// Whole says that all until Position is shipped; Size and Sum are those of the file, once it was closed at it.
	Whole    bool     `json:"whole"`
	Position position `json:"position"`
	Size     int64    `json:"size,omitempty"`
	Sum      uint32   `json:"crc32c,omitempty"`
}

// New follows the database path, of which nothing is read yet. stateFile keeps what is shipped.
func New(path, stateFile string, client litestream.ReplicaClient) *Follower {
	f := &Follower{path: path, state: stateFile, client: client}
	text, err := os.ReadFile(stateFile)
	if err != nil || json.Unmarshal(text, &f.known) != nil {
		f.known = state{} // the whole database is shipped then
	}
	return f
}

// Shipped is until when all was shipped that was written to a file that is closed: false where that is not known, or it has changed.
func (f *Follower) Shipped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := dbfile.ReadMarker(f.path)
	return err == nil && f.closedAs(m) && !dbfile.HasLog(f.path)
}

func (f *Follower) closedAs(m dbfile.Marker) bool {
	return f.known.Whole && f.known.Size > 0 && m.State == dbfile.StateClosed && m.Size == f.known.Size && m.Sum == f.known.Sum
}

// Opened begins to follow a database that was opened, and that nobody writes to yet, or in its turn. committed is called after writes;
// it must not wait. What cannot be followed is shipped whole.
func (f *Follower) Opened(ctx context.Context, db *sqlite.DB, found dbfile.Marker, committed func()) {
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

// continues finds the position of what was shipped in the log of a file that was opened.
func (f *Follower) continues(found dbfile.Marker) bool {
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

// closing lets the log go, and remembers whether all of it is shipped.
func (f *Follower) closing() {
	if !f.mu.TryLock() { // something is on its way to a place that does not answer; nobody waits for it
		f.letGo()
		return
	}
	defer f.mu.Unlock()
	whole := f.whole && !f.lost.Load() && f.scan(context.Background()) == nil && f.whole && f.end == f.at
	f.letGo()
	f.db, f.base = nil, f.dropBase()
	f.known.Whole, f.known.Position, f.known.Size, f.known.Sum = whole, f.at, 0, 0
	if whole {
		return // Closed keeps it
	}
	_ = f.save() // what is not known is shipped whole
}

// Closed is told once the file is closed: its marker says how.
func (f *Follower) Closed() {
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
	_ = f.save() // what is not known is shipped whole
}

func (f *Follower) save() error {
	if err := os.MkdirAll(filepath.Dir(f.state), 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(f.known)
	if err != nil {
		return err
	}
	// A name that appears whole is enough: what is lost with the power is shipped again.
	to := atomicfile.TempName(f.state)
	if err := os.WriteFile(to, text, 0o600); err != nil {
		return err
	}
	return os.Rename(to, f.state)
}

// hold has the log stay as it is from now on, but for what is added.
func (f *Follower) hold(ctx context.Context) error {
	s, err := sqlite.OpenSnapshot(ctx, f.path)
	if err != nil {
		return err
	}
	if err := s.Take(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	return f.replaceKeep(s)
}

func (f *Follower) replaceKeep(s *sqlite.Snapshot) error {
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

func (f *Follower) letGo() {
	f.keepMu.Lock()
	defer f.keepMu.Unlock()
	if f.keep != nil {
		_ = f.keep.Close() // it only read
		f.keep = nil
	}
	f.lost.Store(true)
}

// Bound lets a log go that has become too large while it could not be shipped. It waits for nobody.
func (f *Follower) Bound() (gone bool) {
	f.keepMu.Lock()
	held := f.keep != nil
	f.keepMu.Unlock()
	if !held || f.Waiting() < maxLog {
		return false
	}
	f.letGo()
	return true
}

// Waiting is how much of the log is not shipped, in bytes, about.
func (f *Follower) Waiting() int64 {
	info, err := os.Stat(f.path + "-wal")
	if err != nil {
		return 0
	}
	return info.Size()
}

// Prepare gets ready for a Cut, so that this is short: it reads what is in the log so far, or copies the database where that is not
// enough. The database is open.
func (f *Follower) Prepare(ctx context.Context) error {
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

// ask compares the known state with the copies: a process may have died before it knew of a file.
func (f *Follower) ask(ctx context.Context) error {
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
	if !there { // the place was emptied, or put back to an older state: what it has now is gone on from
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

// newest is the last transaction that the place of the copies has, 0 for none.
func (f *Follower) newest(ctx context.Context) (ltx.TXID, error) {
	versions, err := Versions(ctx, f.client)
	if err != nil || len(versions) == 0 {
		return 0, err
	}
	return versions[len(versions)-1].TX, nil
}

// Cut fixes what Ship ships. Nothing that belongs to it is written meanwhile.
func (f *Follower) Cut(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db == nil || !f.whole {
		return nil
	}
	return f.scan(ctx)
}

// scan reads what has come into the log since the last time.
func (f *Follower) scan(ctx context.Context) error {
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
	case f.end.Offset == 0: // its first log has begun
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

// Ship writes what Cut has found, as of an instant in milliseconds: the whole database first, where what is there does not
// continue. It says how many transactions were written, 0 to 2.
func (f *Follower) Ship(ctx context.Context, at int64) (n int, err error) {
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
			f.asked = false // it may have arrived
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
		f.asked = false // it may have arrived
		return n, err
	}
	f.at, f.found = f.end, nil
	return n + 1, f.remember(at)
}

// read makes an LTX file of what was found. What was read while the log was let go is not used.
func (f *Follower) read(at int64) (io.Reader, error) {
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

// remember keeps that one more transaction is shipped.
func (f *Follower) remember(at int64) error {
	f.asked = true
	f.known = state{TX: f.known.TX + 1, At: at, Whole: f.whole, Position: f.at}
	return f.save()
}

// Drain brings a log that is shipped into the file, so that it does not grow without bound.
func (f *Follower) Drain(ctx context.Context) error {
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
		// In the same turn, so that the log can begin again once, and not twice.
		if e := f.hold(ctx); e != nil {
			f.whole = false
			return errors.Join(err, e)
		}
		f.drained, f.early = true, true
		return err
	})
}

// Restored says that the file, which is closed, is what was restored of a transaction.
func (f *Follower) Restored(v Version) error {
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

	f.known = state{TX: v.TX, At: v.At.UnixMilli(), Whole: m.State == dbfile.StateClosed, Position: position{Commit: uint32(m.Size / pageSize)}, Size: m.Size, Sum: m.Sum} //nolint:gosec // SQLite has no more
	f.asked = true
	return f.save()
}

// Last is the last transaction that is known to be shipped.
func (f *Follower) Last() Version {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Version{f.known.TX, time.UnixMilli(f.known.At).UTC()}
}

// Holds says whether the file, which is closed, is as it was at a transaction, and sound. It reads the whole file.
func (f *Follower) Holds(ctx context.Context, v Version) bool {
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
