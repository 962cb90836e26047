package fsys

import (
	"hash/maphash"
)

// Key is a short key for a path and its stamp. It has 128 bits to avoid collisions.
type Key [2]uint64

// Keyer computes keys that are valid only in this process.
type Keyer struct{ one, two maphash.Seed }

// NewKeyer returns a Keyer with random seeds.
func NewKeyer() Keyer { return Keyer{maphash.MakeSeed(), maphash.MakeSeed()} }

// Of returns the key of a path with a stamp.
func (p Keyer) Of(path string, s Stamp) Key {
	v := struct {
		path string
		Stamp
	}{path, s}
	return Key{maphash.Comparable(p.one, v), maphash.Comparable(p.two, v)}
}

// Cache is a map of bounded size that forgets the oldest entries: when the young half is full,
// it becomes the old half, and the old half is dropped.
type Cache[V any] struct {
	young, old map[Key]V
	limit      int // maximum entries of each half
}

// NewCache returns a cache with up to limit entries in each half.
func NewCache[V any](limit int) *Cache[V] {
	return &Cache[V]{young: map[Key]V{}, limit: limit}
}

// Get returns the value of a key, and reports whether the cache has one.
func (r *Cache[V]) Get(k Key) (V, bool) {
	v, ok := r.young[k]
	if !ok {
		v, ok = r.old[k]
	}
	return v, ok
}

// Put stores a value.
func (r *Cache[V]) Put(k Key, v V) {
	if len(r.young) >= r.limit {
		r.old, r.young = r.young, map[Key]V{}
	}
	r.young[k] = v
}
