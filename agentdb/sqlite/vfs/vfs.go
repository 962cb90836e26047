// Package vfs lets functions of this program stand between SQLite and the system's files (https://sqlite.org/vfs.html).
//
// The driver is C translated to Go: its structures lie outside of Go's memory, at addresses that are numbers, and its pointers to functions
// are Go's own function values. What depends on that is here.
package vfs

import (
	"errors"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// The functions of https://sqlite.org/c3ref/vfs.html and https://sqlite.org/c3ref/io_methods.html that can be replaced. Each returns a result
// code of SQLite.
type (
	OpenFunc     = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32
	CloseFunc    = func(tls *libc.TLS, file uintptr) int32
	ReadFunc     = func(tls *libc.TLS, file, data uintptr, n int32, at int64) int32
	WriteFunc    = func(tls *libc.TLS, file, data uintptr, n int32, at int64) int32
	TruncateFunc = func(tls *libc.TLS, file uintptr, size int64) int32
	SyncFunc     = func(tls *libc.TLS, file uintptr, flags int32) int32
	SizeFunc     = func(tls *libc.TLS, file, size uintptr) int32
	ShmLockFunc  = func(tls *libc.TLS, file uintptr, offset, n, flags int32) int32
)

// Layer is a VFS that opens files in its own way, and is otherwise the one that was the default when it was made.
type Layer struct {
	plain     *sqlite3.Tsqlite3_vfs
	byDefault bool
}

// NewLayer makes a layer known to SQLite for as long as the process lives, by its name or as the new default. Open is called for each file; it
// is a declared function.
func NewLayer(name string, byDefault bool, open OpenFunc) (*Layer, error) {
	tls := libc.NewTLS()
	defer tls.Close()

	at := sqlite3.Xsqlite3_vfs_find(tls, 0)
	if at == 0 {
		return nil, errors.New("the SQLite driver knows no files of the system")
	}
	l := &Layer{plain: At[sqlite3.Tsqlite3_vfs](at), byDefault: byDefault}

	// Where SQLite finds the other ones: it calculates addresses within them, which the race detector refuses for memory of Go.
	own := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(*l.plain)))
	cName, err := libc.CString(name)
	if own == 0 || err != nil {
		return nil, errors.New("there is no memory for the files of SQLite")
	}

	layer := At[sqlite3.Tsqlite3_vfs](own)
	*layer = *l.plain
	layer.FpNext, layer.FzName, layer.FxOpen = 0, cName, Function[OpenFunc](open)

	first := int32(0)
	if byDefault {
		first = 1
	}
	if sqlite3.Xsqlite3_vfs_register(tls, own, first) != sqlite3.SQLITE_OK {
		return nil, errors.New("the SQLite driver takes no layer over the files of the system")
	}
	return l, nil
}

// Open opens a file as the present default does; a layer that is the default itself, as the one that was it before. Where it reports no
// error, or has opened the file all the same, the file has methods.
func (l *Layer) Open(tls *libc.TLS, name, file uintptr, flags int32, outFlags uintptr) int32 {
	beneath := l.plain
	if !l.byDefault {
		beneath = At[sqlite3.Tsqlite3_vfs](sqlite3.Xsqlite3_vfs_find(tls, 0))
	}
	return Call[OpenFunc](beneath.FxOpen)(tls, Address(beneath), name, file, flags, outFlags)
}

// Methods are those of an open file; nil for one that is not open.
func Methods(file uintptr) *sqlite3.Tsqlite3_io_methods {
	return At[sqlite3.Tsqlite3_io_methods](At[sqlite3.Tsqlite3_file](file).FpMethods)
}

// ownMethods lie where SQLite finds those of other files: it calculates addresses within them, which the race detector refuses for memory of Go.
type ownMethods struct {
	methods sqlite3.Tsqlite3_io_methods // first: SQLite is given its address
	state   uintptr
}

// Replace gives an open file methods of its own, of which change may replace some. State is what StateOf finds again; it must stay reachable
// until the file is closed, and Release be called then. It reports whether there was memory for it.
func Replace[State any](tls *libc.TLS, file uintptr, state *State, change func(*sqlite3.Tsqlite3_io_methods)) bool {
	at := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(ownMethods{})))
	if at == 0 {
		return false
	}

	own := At[ownMethods](at)
	own.methods, own.state = *Methods(file), Address(state)
	change(&own.methods)
	At[sqlite3.Tsqlite3_file](file).FpMethods = at
	return true
}

// StateOf is the state that Replace was given for a file whose methods nobody has replaced since.
func StateOf[State any](file uintptr) *State {
	return At[State](At[ownMethods](At[sqlite3.Tsqlite3_file](file).FpMethods).state)
}

// Release gives the memory of a file's methods back, which are the plain ones again.
func Release(tls *libc.TLS, file uintptr, plain *sqlite3.Tsqlite3_io_methods) {
	opened := At[sqlite3.Tsqlite3_file](file)
	libc.Xfree(tls, opened.FpMethods)
	opened.FpMethods = Address(plain)
}

// At is what lies at an address of the driver.
func At[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// Address is that of a value that stays reachable.
func Address[T any](of *T) uintptr { return uintptr(unsafe.Pointer(of)) }

// Function is a declared function as the driver calls it.
func Function[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

// Call is a function of the driver as Go calls it.
func Call[F any](at uintptr) F { return *(*F)(unsafe.Pointer(&at)) }
