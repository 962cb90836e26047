package fsys

import (
	"io/fs"
	"time"
)

// Stamp is the identity, size and times of a file. While they stay the same, its content is assumed
// to be the same.
type Stamp struct {
	Device, Inode uint64 // 0 if the system reports them only for an open file
	Size          int64
	Modified      int64 // nanoseconds
	Changed       int64 // nanoseconds: last change of content or name; 0 if the system has no such time
}

// StampOf returns the stamp of a file.
func StampOf(info fs.FileInfo) Stamp {
	s := Stamp{Size: info.Size(), Modified: info.ModTime().UnixNano()}
	s.Device, s.Inode, s.Changed = identity(info)
	return s
}

// Same reports whether size, modification time and identity are equal.
func (s Stamp) Same(o Stamp) bool {
	return s.Device == o.Device && s.Inode == o.Inode && s.Size == o.Size && s.Modified == o.Modified
}

// CompleteBefore reports whether a file that is new in its folder was last written a window or more
// before it arrived: a rename keeps the time of the last write. Both times come from the clock of the
// file system, so they can be compared.
func (s Stamp) CompleteBefore(window time.Duration) bool {
	return s.Changed-s.Modified >= int64(window)
}

// ModTime returns the modification time.
func (s Stamp) ModTime() time.Time { return time.Unix(0, s.Modified).UTC() }

// Arrived returns the later of the times at which the file was written and at which it got its name.
func (s Stamp) Arrived() time.Time { return time.Unix(0, max(s.Modified, s.Changed)) }

// coarsestStep is the coarsest step of a file system's clock (FAT: 2 s).
const coarsestStep = 2500 * time.Millisecond

// Stable reports whether another write would change the stamp. Within one step of the file system's
// clock it would not. A time of whole seconds may come from a coarse clock.
func (s Stamp) Stable(now time.Time) bool {
	// Above the tick of the kernel's clock, which the times of most file systems come from.
	step := 20 * time.Millisecond
	if s.Modified%int64(time.Second) == 0 {
		step = coarsestStep
	}
	return now.UnixNano()-s.Modified > int64(step)
}
