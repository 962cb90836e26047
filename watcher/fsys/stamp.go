package fsys

import (
	"io/fs"
	"time"
)

// Stamp holds the identity, size and times of a file. While they stay the same, the content is
// assumed to be the same.
type Stamp struct {
	Device, Inode uint64 // 0 if the system reports them only for an open file
	Size          int64
	Modified      int64 // nanoseconds
	// Changed is the time of the last change of content or name, in nanoseconds. It is 0 if the
	// system has no such time.
	Changed int64
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

// CompleteBefore reports whether a file that is new in its folder was last written at least a
// window before it arrived. A rename keeps the time of the last write. Both times come from the
// file system's clock, so they can be compared.
func (s Stamp) CompleteBefore(window time.Duration) bool {
	return s.Changed-s.Modified >= int64(window)
}

// ModTime returns the modification time.
func (s Stamp) ModTime() time.Time { return time.Unix(0, s.Modified).UTC() }

// Arrived returns the time of the last write or the time at which the file got its name, whichever
// is later.
func (s Stamp) Arrived() time.Time { return time.Unix(0, max(s.Modified, s.Changed)) }

// coarsestStep is the coarsest step of a file system's clock (FAT: 2 s).
const coarsestStep = 2500 * time.Millisecond

// Stable reports whether another write would change the stamp. It would not change within one step
// of the file system's clock. A time of whole seconds may come from a coarse clock.
func (s Stamp) Stable(now time.Time) bool {
	// The step is longer than a tick of the kernel's clock, which sets the times on most file
	// systems.
	step := 20 * time.Millisecond
	if s.Modified%int64(time.Second) == 0 {
		step = coarsestStep
	}
	return now.UnixNano()-s.Modified > int64(step)
}
