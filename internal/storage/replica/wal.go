package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/superfly/ltx"
)

const (
	walHeader   = 32 // bytes
	frameHeader = 24
)

// position is a position between two transactions of a write-ahead log.
type position struct {
	Offset int64     `json:"offset"` // zero before the first log of a file exists
	Seq    uint32    `json:"seq"`    // number of log restarts
	Salt   [2]uint32 `json:"salt"`
	Sum    [2]uint32 `json:"sum"`    // checksum of all frames before Offset
	Commit uint32    `json:"commit"` // database size, in pages
}

// header is the header of a log.
type header struct {
	seq      uint32
	pageSize int
	salt     [2]uint32
	sum      [2]uint32
	order    binary.ByteOrder // byte order of the checksums
}

// log is a write-ahead log opened for reading. SQLite holds no locks on the log's file, so closing
// it is safe.
type log struct {
	f *os.File
	header
}

// errNoLog is returned if there is no log yet.
var errNoLog = errors.New("there is no log")

func openLog(path string) (*log, error) {
	f, err := os.Open(path + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoLog
	}
	if err != nil {
		return nil, err
	}
	var raw [walHeader]byte
	if _, err := f.ReadAt(raw[:], 0); err != nil {
		_ = f.Close() // read-only
		if errors.Is(err, io.EOF) {
			return nil, errNoLog
		}
		return nil, err
	}

	word := func(i int) uint32 { return binary.BigEndian.Uint32(raw[4*i:]) }
	l := &log{f: f, header: header{seq: word(3), pageSize: int(word(2)), salt: [2]uint32{word(4), word(5)}, order: binary.LittleEndian}}
	if word(0)&1 == 1 {
		l.order = binary.BigEndian
	}
	l.sum = checksum(l.order, [2]uint32{}, raw[:24])
	if word(0)&^1 != 0x377f0682 || l.sum != [2]uint32{word(6), word(7)} {
		_ = f.Close()        // read-only
		return nil, errNoLog // the header is being written for the first time
	}
	return l, nil
}

// checksum returns the running checksum of SQLite's log format, continued from s.
func checksum(order binary.ByteOrder, s [2]uint32, b []byte) [2]uint32 {
	for i := 0; i+8 <= len(b); i += 8 {
		s[0] += order.Uint32(b[i:]) + s[1]
		s[1] += order.Uint32(b[i+4:]) + s[0]
	}
	return s
}

// begin returns the position before the first frame.
func (l *log) begin(commit uint32) position {
	return position{Offset: walHeader, Seq: l.seq, Salt: l.salt, Sum: l.sum, Commit: commit}
}

// holds reports whether the frame before a position is unchanged since the position was recorded.
func (l *log) holds(at position) bool {
	if at.Salt != l.salt {
		return false
	}
	if at.Offset == walHeader {
		return at.Sum == l.sum
	}
	var raw [frameHeader]byte
	if _, err := l.f.ReadAt(raw[:], at.Offset-int64(frameHeader+l.pageSize)); err != nil {
		return false
	}
	return [2]uint32{binary.BigEndian.Uint32(raw[16:]), binary.BigEndian.Uint32(raw[20:])} == at.Sum &&
		[2]uint32{binary.BigEndian.Uint32(raw[8:]), binary.BigEndian.Uint32(raw[12:])} == l.salt
}

// scan reads the complete transactions after a position. It records the offsets of their pages in
// pages and returns the position after the last transaction.
func (l *log) scan(from position, pages map[uint32]int64) (position, error) {
	type page struct {
		number uint32
		offset int64
	}
	var open []page // pages of a transaction that is not complete
	end, sum := from, from.Sum
	frame := make([]byte, frameHeader+l.pageSize)

	for at := from.Offset; ; at += int64(len(frame)) {
		if _, err := l.f.ReadAt(frame, at); err != nil {
			if errors.Is(err, io.EOF) {
				return end, nil
			}
			return end, err
		}
		word := func(i int) uint32 { return binary.BigEndian.Uint32(frame[4*i:]) }
		sum = checksum(l.order, checksum(l.order, sum, frame[:8]), frame[frameHeader:])
		if [2]uint32{word(2), word(3)} != l.salt || [2]uint32{word(4), word(5)} != sum {
			return end, nil // left from an earlier use of the log, or an unfinished write
		}

		open = append(open, page{word(0), at + frameHeader})
		if commit := word(1); commit > 0 {
			for _, p := range open {
				pages[p.number] = p.offset
			}
			open = open[:0]
			end.Offset, end.Sum, end.Commit = at+int64(len(frame)), sum, commit
		}
	}
}

// segment is the set of changed pages between two positions.
type segment struct {
	pages  map[uint32]int64 // log offset of the newest content of each page
	before uint32           // database size in pages before the segment
	commit uint32           // database size in pages after the segment
}

// encode writes a segment as an LTX file. New pages that are not in the log are free, so they are
// written as zeros.
func (s segment) encode(w io.Writer, l *log, tx ltx.TXID, at int64) error {
	numbers := make([]uint32, 0, len(s.pages))
	for n := range s.pages {
		if n <= s.commit {
			numbers = append(numbers, n)
		}
	}
	for n := s.before + 1; n <= s.commit; n++ {
		if _, ok := s.pages[n]; !ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)

	return encode(w, l.pageSize, s.commit, tx, at, numbers, func(n uint32, page []byte) error {
		offset, ok := s.pages[n]
		if !ok {
			clear(page)
			return nil
		}
		_, err := l.f.ReadAt(page, offset)
		return err
	})
}

// encode writes an LTX file of one transaction.
func encode(w io.Writer, pageSize int, commit uint32, tx ltx.TXID, at int64, numbers []uint32, read func(n uint32, page []byte) error) error {
	e, err := ltx.NewEncoder(w)
	if err != nil {
		return err
	}
	if err := e.EncodeHeader(ltx.Header{Version: ltx.Version, Flags: ltx.HeaderFlagNoChecksum, PageSize: uint32(pageSize), Commit: commit, MinTXID: tx, MaxTXID: tx, Timestamp: at}); err != nil { //nolint:gosec // at most 65536
		return err
	}
	page := make([]byte, pageSize)
	for _, n := range numbers {
		if n == ltx.LockPgno(uint32(pageSize)) { //nolint:gosec // at most 65536
			continue // SQLite never uses the lock page
		}
		if err := read(n, page); err != nil {
			return fmt.Errorf("page %d cannot be read: %w", n, err)
		}
		if err := e.EncodePage(ltx.PageHeader{Pgno: n}, page); err != nil {
			return err
		}
	}
	return e.Close()
}
