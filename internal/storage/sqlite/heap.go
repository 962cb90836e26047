package sqlite

import (
	"errors"
	"sync"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// maxHeap limits SQLite's memory for all files of this process together, in bytes. SQLite has no
// limit per file. With the limit a statement fails; without it, the system may kill the process.
const maxHeap = 512 << 20

// heapLimited is package state because SQLite's memory limit applies to the whole process.
var heapLimited sync.Once

// limitHeap sets the memory limit before the first file is opened. It enables SQLite's memory
// statistics, which the limit needs and the driver disables.
func limitHeap() (err error) {
	heapLimited.Do(func() {
		const arguments = 8
		tls := libc.NewTLS()
		defer tls.Close()

		at := tls.Alloc(arguments)
		defer tls.Free(arguments)

		// If SQLite is already initialized, it refuses this setting. There is no limit then.
		if sqlite3.Xsqlite3_config(tls, sqlite3.SQLITE_CONFIG_MEMSTATUS, libc.VaList(at, int32(1))) != sqlite3.SQLITE_OK {
			return
		}

		if sqlite3.Xsqlite3_hard_heap_limit64(tls, maxHeap) < 0 {
			err = errors.New("sqlite: the driver takes no bound for its memory")
		}
	})
	return err
}
