package fsys

import (
	"testing"
)

func TestRecentForgetsTheOldest(t *testing.T) {
	r := NewCache[int](10)
	for i := range 100 {
		r.Put(Key{uint64(i)}, i)
		if _, ok := r.Get(Key{uint64(i)}); !ok || len(r.young)+len(r.old) > 20 {
			t.Fatalf("at %d: %v, %d held", i, ok, len(r.young)+len(r.old))
		}
	}

	for i, want := range map[uint64]bool{79: false, 80: true, 99: true} { // twenty entries: both halves
		if _, ok := r.Get(Key{i}); ok != want {
			t.Errorf("%d is still there: %t", i, ok)
		}
	}
}
