package watcher

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A few files are read before their windows end; of a burst none is, nor one that is large, or waits for its writer, or for others.
func TestFewAreReadEarly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files int
		size  int64
		late  int // of them are due later
		with  func(f *folder)
		want  int
	}{
		"one":                 {size: 1, files: 1, want: 1},
		"a few":               {size: 1, files: maxEarly, want: maxEarly},
		"a burst":             {size: 1, files: maxEarly + 1, want: 0},
		"a burst behind it":   {size: 1, files: 1, late: 1000, want: 1},
		"a large one":         {files: 1, size: largeFile, want: 0},
		"an empty one":        {files: 1, size: 0, want: 0},
		"almost a large one":  {files: 1, size: largeFile - 1, want: 1},
		"none":                {want: 0},
		"one that waits":      {size: 1, files: 2, with: func(f *folder) { f.waits["0"] = Wait{} }, want: 1},
		"one that was read":   {size: 1, files: 2, with: func(f *folder) { f.debouncer.items["0"].early = &earlyLook{} }, want: 1},
		"of a batch":          {size: 1, files: 1, with: func(f *folder) { f.Mode = ModeBatch }, want: 0},
		"in a missing folder": {size: 1, files: 1, with: func(f *folder) { f.root = "" }, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFolder(&Watcher{}, Watch{Mode: ModePerFile, Settle: time.Second})
			f.root = "/in"
			for i := range c.files {
				f.debouncer.observe(fmt.Sprint(i), noon, stamp{size: c.size}, hintScan)
			}
			for i := range c.late {
				f.debouncer.observe(fmt.Sprint("late", i), noon.Add(earlyBy(largeFile)), stamp{size: 1}, hintScan)
			}
			if c.with != nil {
				c.with(f)
			}

			if got := f.toLookAtEarly(); len(got) != c.want {
				t.Errorf("%d, not %d", len(got), c.want)
			}
			want := time.Time{}
			if c.want > 0 {
				want = noon.Add(time.Second - earlyBy(c.size))
			}
			if at := f.earlyDue(); !at.Equal(want) {
				t.Errorf("it is read at %s, not %s", at, want)
			}
		})
	}
}

// What was read early is forgotten when the window of a file starts over.
func TestReadAgainInANewWindow(t *testing.T) {
	t.Parallel()
	restarts := map[string]func(s *debouncer, it *pendingFile){
		"seen to be changed": func(s *debouncer, it *pendingFile) { s.observe("a", noon, look(2, 0), hintChanged) },
		"changed when due": func(s *debouncer, it *pendingFile) {
			s.dequeueDue(noon.Add(time.Second), 1)
			s.confirm(it, noon, look(2, 0))
		},
	}
	for name, restart := range restarts {
		s := newDebouncer(time.Second)
		s.observe("a", noon, look(1, 0), hintChanged)
		it := s.first()
		it.early = &earlyLook{unclaimed: "hash", tried: true}
		if restart(s, it); s.first() != it || it.early != nil {
			t.Errorf("%s: %+v", name, it)
		}
	}
}

// A transaction waits for the last look at a file, gets the same answer whenever it asks, and does not wait for a file system that hangs.
func TestTransactionWaitsForTheLastLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, want := range []error{nil, errChanged} {
			look, began := &lastLook{over: make(chan struct{})}, time.Now()
			time.AfterFunc(maxConfirm/2, func() { look.end(want) })
			for range 2 {
				if err := look.confirm(); !errors.Is(err, want) || time.Since(began) != maxConfirm/2 {
					t.Errorf("after %s: %v, not %v", time.Since(began), err, want)
				}
			}
		}

		hangs, began := &lastLook{over: make(chan struct{})}, time.Now()
		if err := hangs.confirm(); !errors.Is(err, errLate) || time.Since(began) != maxConfirm {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
