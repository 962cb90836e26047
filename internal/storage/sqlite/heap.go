package sqlite

import (
	"errors"
	"sync"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// maxHeap bounds the memory of SQLite in this process, in bytes: of all files together, because
// SQLite counts no other way. It is better that a statement fails than that the system kills the
// process.
const maxHeap = 512 << 20

// heapLimited is the only state of the package: SQLite's own settings are the process's, too.
var heapLimited sync.Once

// limitHeap sets the bound before the first file is opened. The driver is built without memory
// statistics, which SQLite needs for it.
func limitHeap() (err error) {
	heapLimited.Do(func() {
		const arguments = 8
		tls := libc.NewTLS()
		defer tls.Close()

		at := tls.Alloc(arguments)
		defer tls.Free(arguments)

		// If SQLite was initialized before, it refuses this setting, and there is no bound.
		if sqlite3.Xsqlite3_config(tls, sqlite3.SQLITE_CONFIG_MEMSTATUS, libc.VaList(at, int32(1))) != sqlite3.SQLITE_OK {
			return
		}

		if sqlite3.Xsqlite3_hard_heap_limit64(tls, maxHeap) < 0 {
			err = errors.New("sqlite: the driver takes no bound for its memory")
		}
	})
	return err
}
