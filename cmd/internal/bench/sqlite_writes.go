package bench

import (
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteWrites counts what SQLite has the system do in this process, whatever opens the databases: it stands between SQLite and the
// system's files (a VFS of its own, https://sqlite.org/vfs.html). It is made for a process that measures, and that alone.
var sqliteWrites struct {
	install sync.Once
	syncs   atomic.Int64 // fsync and fdatasync
	bytes   atomic.Int64 // written, into logs and into databases

	plain *sqlite3.Tsqlite3_vfs // the system's own
	vfs   *sqlite3.Tsqlite3_vfs // which counts

	mu      sync.Mutex
	counted map[uintptr]*countedMethods // by the methods that they stand for
}

// countedMethods are those of files, of which two count.
type countedMethods struct {
	methods sqlite3.Tsqlite3_io_methods // first: SQLite is given its address
	plain   *sqlite3.Tsqlite3_io_methods
}

// The functions of https://sqlite.org/c3ref/vfs.html and https://sqlite.org/c3ref/io_methods.html that are replaced.
type (
	openFunc  = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32
	syncFunc  = func(tls *libc.TLS, file uintptr, flags int32) int32
	writeFunc = func(tls *libc.TLS, file, data uintptr, n int32, at int64) int32
)

// countSQLiteWrites begins to count; it comes before the first database is opened.
func countSQLiteWrites() (err error) {
	w := &sqliteWrites
	w.install.Do(func() {
		tls := libc.NewTLS()
		defer tls.Close()

		at := sqlite3.Xsqlite3_vfs_find(tls, 0)
		if at == 0 {
			err = errors.New("the SQLite driver has no files to count the writes of")
			return
		}

		w.counted = map[uintptr]*countedMethods{}
		w.plain = valueAt[sqlite3.Tsqlite3_vfs](at)
		own := *w.plain
		own.FpNext, own.FxOpen = 0, cFunction[openFunc](countedOpen)
		w.vfs = &own
		if sqlite3.Xsqlite3_vfs_register(tls, address(w.vfs), 1) != sqlite3.SQLITE_OK {
			err = errors.New("the SQLite driver does not let its writes be counted")
		}
	})
	return err
}

// countedOpen opens a file whose writes count.
func countedOpen(tls *libc.TLS, _, name, file uintptr, flags int32, outFlags uintptr) int32 {
	w := &sqliteWrites
	result := goFunction[openFunc](w.plain.FxOpen)(tls, address(w.plain), name, file, flags, outFlags)

	opened := valueAt[sqlite3.Tsqlite3_file](file)
	if opened.FpMethods == 0 {
		return result
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.counted[opened.FpMethods]
	if c == nil {
		c = &countedMethods{plain: valueAt[sqlite3.Tsqlite3_io_methods](opened.FpMethods)}
		c.methods = *c.plain
		c.methods.FxSync, c.methods.FxWrite = cFunction[syncFunc](countedSync), cFunction[writeFunc](countedWrite)
		w.counted[opened.FpMethods] = c
	}
	opened.FpMethods = address(&c.methods)
	return result
}

func countedSync(tls *libc.TLS, file uintptr, flags int32) int32 {
	sqliteWrites.syncs.Add(1)
	return goFunction[syncFunc](plainMethods(file).FxSync)(tls, file, flags)
}

func countedWrite(tls *libc.TLS, file, data uintptr, n int32, at int64) int32 {
	sqliteWrites.bytes.Add(int64(n))
	return goFunction[writeFunc](plainMethods(file).FxWrite)(tls, file, data, n, at)
}

// plainMethods are the system's own of a file that countedOpen has opened.
func plainMethods(file uintptr) *sqlite3.Tsqlite3_io_methods {
	return valueAt[countedMethods](valueAt[sqlite3.Tsqlite3_file](file).FpMethods).plain
}

// valueAt is what lies at an address of the driver, which is C translated to Go.
func valueAt[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// address is that of a value that stays reachable.
func address[T any](of *T) uintptr { return uintptr(unsafe.Pointer(of)) }

// cFunction is a declared function as the driver calls it, and goFunction one of the driver's as Go calls it.
func cFunction[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

func goFunction[F any](at uintptr) F { return *(*F)(unsafe.Pointer(&at)) }
