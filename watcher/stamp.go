package watcher

import (
	"hash/maphash"
	"io/fs"
	"time"
)

// stamp is what a file looks like from outside. As long as it stays the same, the content is
// taken to be the same.
type stamp struct {
	device, inode uint64 // 0 where the system does not tell them without opening the file
	size          int64
	modified      int64 // nanoseconds
	changed       int64 // nanoseconds: content or place, which a rename sets; 0 where there is none
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
	s.device, s.inode, s.changed = identity(info)
	return s
}

// same says that size, modification time and identity are the same.
func (s stamp) same(o stamp) bool {
	return s.device == o.device && s.inode == o.inode && s.size == o.size && s.modified == o.modified
}

// completeBefore says whether a file that is new in its folder was last written a window or more
// before it came: a rename keeps the time of the last write. Both times are by the clock of the
// file system, so they can be compared.
func (s stamp) completeBefore(window time.Duration) bool {
	return s.changed-s.modified >= int64(window)
}

func (s stamp) modTime() time.Time { return time.Unix(0, s.modified).UTC() }

// arrived is when the file came to be here as it is, as far as the file system tells.
func (s stamp) arrived() time.Time { return time.Unix(0, max(s.modified, s.changed)) }

// coarsestStep is the coarsest step of a file system's clock (FAT: 2 s).
const coarsestStep = 2500 * time.Millisecond

// stable says whether another write would show in the stamp. Within one step of the clock
// it would not; a time of whole seconds may come from a coarse clock.
func (s stamp) stable(now time.Time) bool {
	// Above the tick of the kernel's clock, which the times of most file systems come from.
	step := 20 * time.Millisecond
	if s.modified%int64(time.Second) == 0 {
		step = coarsestStep
	}
	return now.UnixNano()-s.modified > int64(step)
}

// stampKey is a short key for a path with its stamp, of 128 bits so that no two collide.
type stampKey [2]uint64

type stampHasher struct{ one, two maphash.Seed }

func newStampHasher() stampHasher { return stampHasher{maphash.MakeSeed(), maphash.MakeSeed()} }

func (p stampHasher) of(path string, s stamp) stampKey {
	v := struct {
		path string
		stamp
	}{path, s}
	return stampKey{maphash.Comparable(p.one, v), maphash.Comparable(p.two, v)}
}

// recent is a map of bounded size that forgets the oldest entries: when the young half is full,
// it becomes the old half, and the old half is dropped.
type recent[V any] struct {
	young, old map[stampKey]V
	limit      int // of each half
}

func newRecent[V any](limit int) *recent[V] {
	return &recent[V]{young: map[stampKey]V{}, limit: limit}
}

func (r *recent[V]) get(k stampKey) (V, bool) {
	v, ok := r.young[k]
	if !ok {
		v, ok = r.old[k]
	}
	return v, ok
}

func (r *recent[V]) put(k stampKey, v V) {
	if len(r.young) >= r.limit {
		r.old, r.young = r.young, map[stampKey]V{}
	}
	r.young[k] = v
}
