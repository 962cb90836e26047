package settle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/watcher/fsys"
)

func (s *Debouncer) paths(at time.Duration) []string {
	var out []string
	for _, it := range s.Dequeue(noon.Add(at), 1000) {
		out = append(out, it.Path)
	}
	return out
}

func movedAt(s fsys.Stamp, at time.Time) fsys.Stamp {
	s.Changed = at.UnixNano()
	return s
}

func TestDebouncerWaitsForTheWindow(t *testing.T) {
	s := NewDebouncer(time.Second)
	s.Observe("a", noon, look(1, 0), Arrived)
	if got := s.paths(999 * time.Millisecond); got != nil {
		t.Errorf("ready before its window: %v", got)
	}

	due := s.Dequeue(noon.Add(time.Second), 1)
	if len(due) != 1 || !s.Confirm(due[0], noon.Add(time.Second), look(1, 0)) {
		t.Errorf("not ready after its window: %v", due)
	}
	if s.Len() != 0 || !s.NextDue().IsZero() {
		t.Errorf("%d left, next %s", s.Len(), s.NextDue())
	}
}

// TestDebouncerWaitsForAFileThatGrows checks that each change restarts the window, whether an event
// or the check at its end finds it (OSA-91).
func TestDebouncerWaitsForAFileThatGrows(t *testing.T) {
	s := NewDebouncer(time.Second)
	for i := range 100 {
		at := time.Duration(i) * 900 * time.Millisecond
		s.Observe("a", noon.Add(at), look(int64(i), at), Changed)
		if got := s.paths(at + 899*time.Millisecond); got != nil {
			t.Fatalf("ready while it grows, at %s", at)
		}
	}

	end := 99*900*time.Millisecond + time.Second
	due := s.Dequeue(noon.Add(end), 1)
	if len(due) != 1 || s.Confirm(due[0], noon.Add(end), look(1000, end)) {
		t.Fatalf("it changed without an event, and is ready: %v", due)
	}
	if s.NextDue() != noon.Add(end+time.Second) {
		t.Errorf("next look at %s", s.NextDue())
	}
}

// TestDebouncerIgnoresWhatChangesNothing checks that an event without a change, such as a chmod,
// does not restart the window.
func TestDebouncerIgnoresWhatChangesNothing(t *testing.T) {
	s := NewDebouncer(time.Second)
	s.Observe("a", noon, look(1, 0), Changed)
	s.Observe("a", noon.Add(900*time.Millisecond), look(1, 0), Changed)
	if got := s.paths(time.Second); !slices.Equal(got, []string{"a"}) {
		t.Errorf("due: %v", got)
	}
}

// TestDebouncerRename checks that a file that was complete before it was renamed into the folder
// needs only one recheck. That does not apply to a file that is being written, or to one that a
// scan found.
func TestDebouncerRename(t *testing.T) {
	old := look(5, -time.Hour)
	old.Changed = noon.UnixNano() // time of the rename
	fresh := look(5, 0)
	for _, c := range []struct {
		name  string
		stamp fsys.Stamp
		how   Hint
		want  time.Duration
	}{
		{"renamed", old, Arrived, 50 * time.Millisecond},
		{"written", fresh, Arrived, time.Second},
		{"written less than a window before", movedAt(look(5, -time.Second+1), noon), Arrived, time.Second},
		{"written a window before", movedAt(look(5, -time.Second), noon), Arrived, 50 * time.Millisecond},
		{"no news", old, Changed, time.Second},
		{"scanned", old, Scanned, time.Second},
		{"a file system without a time of change", fsys.Stamp{Size: 5, Modified: old.Modified}, Arrived, time.Second},
	} {
		s := NewDebouncer(time.Second)
		s.Observe("a", noon, c.stamp, c.how)
		if got := s.NextDue().Sub(noon); got != c.want {
			t.Errorf("%s: looked at again after %s, want %s", c.name, got, c.want)
		}

		due := s.Dequeue(s.NextDue(), 1)
		other := c.stamp
		other.Size++
		if s.Confirm(due[0], noon.Add(c.want), other) || s.NextDue().Sub(noon) != c.want+time.Second {
			t.Errorf("%s: a change at the recheck does not need the whole window", c.name)
		}
	}
}

// TestDebouncerRecheckOfAShortWindow checks that the recheck of a renamed file takes only a part of
// a short window.
func TestDebouncerRecheckOfAShortWindow(t *testing.T) {
	for window, want := range map[time.Duration]time.Duration{40 * time.Millisecond: 10 * time.Millisecond, 200 * time.Millisecond: 50 * time.Millisecond, time.Minute: 50 * time.Millisecond} {
		if got := NewDebouncer(window).recheckDelay(); got != want {
			t.Errorf("of %s: %s, want %s", window, got, want)
		}
	}
}

// TestDebouncerKnowsWhatAnEventNamed checks that a file with an event is distinguished from files
// that only scans found, regardless of the order.
func TestDebouncerKnowsWhatAnEventNamed(t *testing.T) {
	for _, c := range []struct {
		hints []Hint
		want  bool
	}{
		{[]Hint{Scanned}, false}, {[]Hint{Scanned, Scanned}, false}, {[]Hint{Changed}, true}, {[]Hint{Arrived, Scanned}, true},
		{[]Hint{Scanned, Changed}, true}, {[]Hint{Scanned, Arrived}, true},
	} {
		s := NewDebouncer(time.Second)
		for _, h := range c.hints {
			s.Observe("a", noon, look(1, 0), h)
		}
		if got := s.Dequeue(noon.Add(time.Second), 1)[0].FromEvent; got != c.want {
			t.Errorf("%v: %t", c.hints, got)
		}
	}
}

// TestDebouncerTakesNoMoreThanAsked checks that Dequeue returns at most the requested number of
// files, the earliest first, and none before the end of its window.
func TestDebouncerTakesNoMoreThanAsked(t *testing.T) {
	s := NewDebouncer(time.Second)
	for i := range 10 {
		s.Observe(fmt.Sprint(9-i), noon.Add(time.Duration(9-i)*time.Millisecond), look(1, 0), Scanned)
	}

	var got []string
	for range 5 {
		due := s.Dequeue(noon.Add(time.Second+6*time.Millisecond), 3)
		got = append(got, fmt.Sprint(len(due)))
		for _, it := range due {
			got = append(got, it.Path)
		}
	}
	if want := strings.Fields("3 0 1 2 3 3 4 5 1 6 0 0"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestDebouncerOrder checks that files that settle at the same time are returned in the order of
// their arrival.
func TestDebouncerOrder(t *testing.T) {
	s := NewDebouncer(time.Second)
	var want []string
	for i := range 1000 {
		path := fmt.Sprint((i * 7919) % 1000)
		s.Observe(path, noon, look(1, 0), Scanned)
		want = append(want, path)
	}

	s.Remove(want[10])
	want = slices.Delete(want, 10, 11)
	if got := s.paths(time.Second); !slices.Equal(got, want) {
		t.Errorf("another order")
	}
}

// TestDebouncerProperty checks that a file is never ready before it was unchanged for a whole
// window, and is ready afterwards.
func TestDebouncerProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewDebouncer(time.Second)
		now := noon
		files, since, seen := map[string]int64{}, map[string]time.Time{}, map[string]bool{}
		step := rapid.IntRange(0, 700)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(step.Draw(t, "ms")) * time.Millisecond)
			path := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "path")
			if rapid.Bool().Draw(t, "changes") {
				files[path]++
				since[path] = now
			}

			if rapid.Bool().Draw(t, "told") || !seen[path] {
				s.Observe(path, now, look(files[path], 0), Changed)
				seen[path] = true
			}

			for _, it := range s.Dequeue(now, 10) {
				if s.Confirm(it, now, look(files[it.Path], 0)) && now.Sub(since[it.Path]) < time.Second && files[it.Path] > 0 {
					t.Fatalf("%s is ready %s after it changed", it.Path, now.Sub(since[it.Path]))
				}
			}

			if len(s.items) != len(s.queue) {
				t.Fatalf("%d files, %d deadlines", len(s.items), len(s.queue))
			}
		}

		for round := range 3 {
			now = now.Add(time.Second)
			for _, it := range s.Dequeue(now, 10) {
				s.Confirm(it, now, look(files[it.Path], 0))
			}
			if round == 1 && s.Len() > 0 {
				t.Fatalf("%d files never settle", s.Len())
			}
		}
	})
}
