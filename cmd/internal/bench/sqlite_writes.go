package bench

import (
	"sync"
	"sync/atomic"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"rouse/agentdb/sqlite/vfs"
)

// sqliteWrites counts what SQLite has the system do in this process, whatever opens the databases: it stands between SQLite and the
// system's files. It is made for a process that measures, and that alone.
var sqliteWrites struct {
	install sync.Once
	syncs   atomic.Int64 // fsync and fdatasync
	bytes   atomic.Int64 // written, into logs and into databases

	layer *vfs.Layer

	mu    sync.RWMutex
	plain map[uintptr]*sqlite3.Tsqlite3_io_methods // the system's own of each file, by its address
}

// countSQLiteWrites begins to count; it comes before the first database is opened.
func countSQLiteWrites() (err error) {
	w := &sqliteWrites
	w.install.Do(func() {
		w.plain = map[uintptr]*sqlite3.Tsqlite3_io_methods{}
		w.layer, err = vfs.NewLayer("rouse-bench-counts", true, countedOpen)
	})
	return err
}

// countedOpen opens a file whose writes count.
func countedOpen(tls *libc.TLS, _, name, file uintptr, flags int32, outFlags uintptr) int32 {
	w := &sqliteWrites
	result := w.layer.Open(tls, name, file, flags, outFlags)

	plain := vfs.Methods(file)
	if plain == nil {
		return result
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	w.plain[file] = plain
	if !vfs.Replace(tls, file, w, func(m *sqlite3.Tsqlite3_io_methods) {
		m.FxSync, m.FxWrite = vfs.Function[vfs.SyncFunc](countedSync), vfs.Function[vfs.WriteFunc](countedWrite)
		m.FxClose = vfs.Function[vfs.CloseFunc](countedClose)
	}) {
		return sqlite3.SQLITE_NOMEM
	}
	return result
}

func countedClose(tls *libc.TLS, file uintptr) int32 {
	plain := plainMethods(file)
	vfs.Release(tls, file, plain)
	return vfs.Call[vfs.CloseFunc](plain.FxClose)(tls, file)
}

func countedSync(tls *libc.TLS, file uintptr, flags int32) int32 {
	sqliteWrites.syncs.Add(1)
	return vfs.Call[vfs.SyncFunc](plainMethods(file).FxSync)(tls, file, flags)
}

func countedWrite(tls *libc.TLS, file, data uintptr, n int32, at int64) int32 {
	sqliteWrites.bytes.Add(int64(n))
	return vfs.Call[vfs.WriteFunc](plainMethods(file).FxWrite)(tls, file, data, n, at)
}

// plainMethods are the system's own of a file that countedOpen has opened. The file does not say: another layer may stand above.
func plainMethods(file uintptr) *sqlite3.Tsqlite3_io_methods {
	w := &sqliteWrites
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.plain[file]
}
