package sqlite

import (
	"encoding/binary"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"rouse/agentdb/sqlite/vfs"
)

// A transaction goes into the log (https://sqlite.org/fileformat2.html#walformat) as a frame for each page, and SQLite has the system write a
// frame in two pieces: its header and its page. Here the pieces of a transaction are put together and written at once, which saves some thirty
// calls of the system for a transaction of the ledger.
//
// Nobody misses what is held back. SQLite makes a transaction known after its last page, with which all of it is written. What the connection
// itself asks of the file (reads, its size, a sync) has it written first. And what an incomplete transaction leaves is dropped as soon as the
// connection gives up its right to write: from then on others may write into the same place. SQLite says so with each lock but in locking_mode
// exclusive, and gives each piece whole but where a disk is not powersafe (psow=0): no connection of this package is opened with either.
const (
	frameHeader = 24       // bytes before each page
	maxPage     = 64 << 10 // bytes of the largest page that SQLite has
	maxHeld     = 60 << 10 // bytes that are held until they are written; with one frame more it is less than the 128 KiB of SQLite's longest write
)

// logWritesVFS is the name by which connections ask for the layer.
const logWritesVFS = "rouse-log-writes"

// joinLogWrites makes the layer known to SQLite, which comes before the first connection.
var joinLogWrites = sync.OnceValue(func() (err error) {
	logLayer, err = vfs.NewLayer(logWritesVFS, false, openFile)
	return err
})

var logLayer *vfs.Layer

// openFiles holds what stands for databases and their logs, by SQLite's address of the file: SQLite's own memory keeps nothing of Go reachable.
var openFiles = struct {
	sync.Mutex
	byAddress map[uintptr]*openedFile
}{byAddress: map[uintptr]*openedFile{}}

// openedFile is a database, or its log, as one connection has it open.
type openedFile struct {
	plain *sqlite3.Tsqlite3_io_methods
	log   *openedFile // of a database: its log, once that is open, and also when it was closed since
	held  *heldFrames // of a log: nil for none
}

// heldFrames are pieces of a log that follow each other and are not written yet.
type heldFrames struct {
	at        int64 // where in the log they begin
	data      []byte
	completes int // where in data the frame begins that completes the transaction; -1: none does
}

var heldPool = sync.Pool{New: func() any { return &heldFrames{data: make([]byte, 0, maxHeld+frameHeader+maxPage)} }}

// openFile opens a file as the layer beneath does, and takes the place of some methods of a database and of its log.
func openFile(tls *libc.TLS, _, name, file uintptr, flags int32, outFlags uintptr) int32 {
	result := logLayer.Open(tls, name, file, flags, outFlags)
	plain := vfs.Methods(file)
	if plain == nil || flags&(sqlite3.SQLITE_OPEN_MAIN_DB|sqlite3.SQLITE_OPEN_WAL) == 0 {
		return result
	}

	var database *openedFile
	if flags&sqlite3.SQLITE_OPEN_WAL != 0 {
		openFiles.Lock()
		database = openFiles.byAddress[sqlite3.Xsqlite3_database_file_object(tls, name)]
		openFiles.Unlock()
		if database == nil { // nobody would say when the right to write is given up
			return result
		}
	}

	f := &openedFile{plain: plain}
	if !vfs.Replace(tls, file, f, func(m *sqlite3.Tsqlite3_io_methods) {
		m.FxClose = vfs.Function[vfs.CloseFunc](closeFile)
		if flags&sqlite3.SQLITE_OPEN_MAIN_DB != 0 {
			m.FxShmLock = vfs.Function[vfs.ShmLockFunc](lockShared)
			return
		}

		m.FxRead = vfs.Function[vfs.ReadFunc](readLog)
		m.FxWrite = vfs.Function[vfs.WriteFunc](writeLog)
		m.FxTruncate = vfs.Function[vfs.TruncateFunc](truncateLog)
		m.FxSync = vfs.Function[vfs.SyncFunc](syncLog)
		m.FxFileSize = vfs.Function[vfs.SizeFunc](sizeOfLog)
	}) {
		return sqlite3.SQLITE_NOMEM
	}

	openFiles.Lock()
	defer openFiles.Unlock()
	openFiles.byAddress[file] = f
	if database != nil {
		database.log = f
	}
	return result
}

// opened is what openFile has made of a file.
func opened(file uintptr) *openedFile { return vfs.StateOf[openedFile](file) }

func closeFile(tls *libc.TLS, file uintptr) int32 {
	f := opened(file)
	f.drop()

	vfs.Release(tls, file, f.plain)
	openFiles.Lock()
	delete(openFiles.byAddress, file)
	openFiles.Unlock()
	return vfs.Call[vfs.CloseFunc](f.plain.FxClose)(tls, file)
}

// lockShared takes and gives up the locks of connections with a log, of which the first is the right to write into it.
func lockShared(tls *libc.TLS, file uintptr, offset, n, flags int32) int32 {
	f := opened(file)
	if f.log != nil && offset == sqlite3.WAL_WRITE_LOCK && flags == sqlite3.SQLITE_SHM_UNLOCK|sqlite3.SQLITE_SHM_EXCLUSIVE {
		f.log.drop()
	}
	return vfs.Call[vfs.ShmLockFunc](f.plain.FxShmLock)(tls, file, offset, n, flags)
}

// writeLog holds a piece of a frame back, or writes it with all that is held.
//
// Only a header begins what is held, and not one that completes a transaction: its page may not follow. SQLite writes headers again, without
// their pages, when a transaction changed a page that it had written before (walRewriteChecksums). It reads each frame before, which has the one before it
// written, and the last of them completes the transaction.
func writeLog(tls *libc.TLS, file, data uintptr, n int32, at int64) int32 {
	f := opened(file)
	piece := unsafe.Slice(vfs.At[byte](data), n)
	header := n == frameHeader

	if f.held != nil && at != f.held.end() {
		if result := f.flush(tls, file); result != sqlite3.SQLITE_OK {
			return result
		}
	}
	if f.held == nil {
		if !header || completesTransaction(piece) {
			return vfs.Call[vfs.WriteFunc](f.plain.FxWrite)(tls, file, data, n, at)
		}
		f.held = heldPool.Get().(*heldFrames)
		f.held.at, f.held.data, f.held.completes = at, f.held.data[:0], -1
	}

	if header && completesTransaction(piece) {
		f.held.completes = len(f.held.data)
	}
	f.held.data = append(f.held.data, piece...)
	if !header && (f.held.completes >= 0 || len(f.held.data) >= maxHeld) {
		return f.flush(tls, file)
	}
	return sqlite3.SQLITE_OK
}

// completesTransaction reports whether the frame with this header is the last one of its transaction: it says how large the database is then.
func completesTransaction(header []byte) bool { return binary.BigEndian.Uint32(header[4:]) != 0 }

func (h *heldFrames) end() int64 { return h.at + int64(len(h.data)) }

// flush writes what is held. What could not be written stays, to be tried again; but not the end of a transaction, which SQLite takes for failed.
func (f *openedFile) flush(tls *libc.TLS, file uintptr) int32 {
	h := f.held
	if h == nil {
		return sqlite3.SQLITE_OK
	}

	result := vfs.Call[vfs.WriteFunc](f.plain.FxWrite)(tls, file, vfs.Address(unsafe.SliceData(h.data)), int32(len(h.data)), h.at)
	switch {
	case result == sqlite3.SQLITE_OK:
		f.drop()
	case h.completes >= 0:
		h.data, h.completes = h.data[:h.completes], -1
	}
	return result
}

// drop forgets what is held.
func (f *openedFile) drop() {
	if f.held != nil {
		heldPool.Put(f.held)
		f.held = nil
	}
}

func readLog(tls *libc.TLS, file, data uintptr, n int32, at int64) int32 {
	f := opened(file)
	if f.held != nil && at < f.held.end() && at+int64(n) > f.held.at {
		if result := f.flush(tls, file); result != sqlite3.SQLITE_OK {
			return result
		}
	}
	return vfs.Call[vfs.ReadFunc](f.plain.FxRead)(tls, file, data, n, at)
}

func truncateLog(tls *libc.TLS, file uintptr, size int64) int32 {
	f := opened(file)
	if result := f.flush(tls, file); result != sqlite3.SQLITE_OK {
		return result
	}
	return vfs.Call[vfs.TruncateFunc](f.plain.FxTruncate)(tls, file, size)
}

func syncLog(tls *libc.TLS, file uintptr, flags int32) int32 {
	f := opened(file)
	if result := f.flush(tls, file); result != sqlite3.SQLITE_OK {
		return result
	}
	return vfs.Call[vfs.SyncFunc](f.plain.FxSync)(tls, file, flags)
}

func sizeOfLog(tls *libc.TLS, file, size uintptr) int32 {
	f := opened(file)
	if result := f.flush(tls, file); result != sqlite3.SQLITE_OK {
		return result
	}
	return vfs.Call[vfs.SizeFunc](f.plain.FxFileSize)(tls, file, size)
}
