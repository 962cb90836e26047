package watcher

import (
	"time"

	"rouse/watcher/fsys"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func look(size int64, modified time.Duration) fsys.Stamp {
	return fsys.Stamp{Device: 1, Inode: 2, Size: size, Modified: noon.Add(modified).UnixNano(), Changed: noon.Add(modified).UnixNano()}
}
