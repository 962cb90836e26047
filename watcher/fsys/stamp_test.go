package fsys

import (
	"testing"
	"time"
)

// TestStampSame checks that stamps are compared by identity, size and modification time, but not by
// the time of arrival.
func TestStampSame(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *Stamp)
		same   bool
	}{
		"nothing": {func(s *Stamp) {}, true}, "place": {func(s *Stamp) { s.Changed++ }, true},
		"device": {func(s *Stamp) { s.Device++ }, false}, "inode": {func(s *Stamp) { s.Inode++ }, false},
		"size": {func(s *Stamp) { s.Size++ }, false}, "time": {func(s *Stamp) { s.Modified++ }, false},
	} {
		one := Stamp{Device: 1, Inode: 2, Size: 3, Modified: 4, Changed: 5}
		other := one
		if c.change(&other); one.Same(other) != c.same {
			t.Errorf("another %s: the same: %t", name, one.Same(other))
		}
	}
}

// TestStampStable checks that a stamp is stable only if another write would change it.
func TestStampStable(t *testing.T) {
	second := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		modified time.Duration
		now      time.Duration
		want     bool
	}{
		{1 * time.Millisecond, 10 * time.Millisecond, false},
		{1 * time.Millisecond, 100 * time.Millisecond, true},
		{1 * time.Millisecond, 21 * time.Millisecond, false}, {1 * time.Millisecond, 21*time.Millisecond + 1, true},
		{0, 2 * time.Second, false}, // whole seconds: FAT has steps of two seconds
		{0, coarsestStep, false}, {0, coarsestStep + 1, true}, {1, 2 * time.Second, true},
		{0, 3 * time.Second, true},
	} {
		if got := (Stamp{Modified: second.Add(c.modified).UnixNano()}).Stable(second.Add(c.now)); got != c.want {
			t.Errorf("modified %s, now %s: %v", c.modified, c.now, got)
		}
	}
}
