package watcher

import (
	"os"
	"slices"
	"testing"
	"time"
)

func ready(path string, st stamp) candidate {
	return candidate{pendingFile: &pendingFile{path: path}, stamp: st}
}

// A batch is due at once when a run can have no more, and otherwise when nothing moves any more or the first of its files
// has waited for long enough; what is held back moves nothing.
func TestBatchDue(t *testing.T) {
	t.Parallel()
	const settle, maxWait = time.Second, time.Minute
	for name, c := range map[string]struct {
		files int
		since func(f *folder)
		want  time.Duration
	}{
		"a quiet folder":                  {1, func(f *folder) {}, settle},
		"one more has not settled":        {1, func(f *folder) { f.debouncer.observe("more", noon, look(1, 0), hintScan) }, maxWait},
		"one more is held back":           {1, func(f *folder) { f.debouncer.observe("more", noon, look(1, 0), hintScan); f.waits["more"] = Wait{} }, settle},
		"a large one is being hashed":     {1, func(f *folder) { f.hashing["more"] = true }, maxWait},
		"a folder that is never quiet":    {1, func(f *folder) { f.debouncer.lastChange = noon.Add(2 * maxWait) }, maxWait},
		"as many as a run may have":       {3, func(f *folder) {}, 0},
		"more than that":                  {4, func(f *folder) {}, 0},
		"could not be recorded":           {1, func(f *folder) { f.batch.retry = noon.Add(5 * time.Second) }, 5 * time.Second},
		"many that could not be recorded": {3, func(f *folder) { f.batch.retry = noon.Add(5 * time.Second) }, 5 * time.Second},
		"recorded at the next try":        {1, func(f *folder) { f.batch.retry = noon.Add(time.Millisecond) }, settle},
	} {
		f := newFolder(&Watcher{}, Watch{MaxFiles: 3, Settle: settle, MaxWait: maxWait})
		f.debouncer.lastChange = noon
		if at := f.batchDue(); !at.IsZero() {
			t.Errorf("%s: a batch without files is due at %s", name, at)
		}
		for i := range c.files {
			f.batch.add(ready(string(rune('a'+i)), look(1, 0)), noon.Add(time.Duration(i)*time.Hour))
		}
		c.since(f)
		if got := f.batchDue().Sub(noon); got != c.want {
			t.Errorf("%s: due after %s, want %s", name, got, c.want)
		}
	}
}

// A run has the files that still are as they were when they became ready; of the others the one that has changed waits again.
func TestBatchHasWhatIsStillReady(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.set(After{})
	f := d.w.folders["in"]
	for _, name := range []string{"d", "same", "gone", "changed", "folder", "a"} {
		path := d.write("inbox/"+name, "1")
		info, err := os.Lstat(path)
		d.must(err)
		f.batch.add(ready(path, stampOf(info)), time.Now())
	}
	d.must(os.Remove(d.path("inbox/gone")))
	d.must(os.Remove(d.path("inbox/folder")))
	d.must(os.Mkdir(d.path("inbox/folder"), 0o755))
	d.write("inbox/changed", "22")

	var got []string
	for _, g := range f.stillReady() {
		got = append(got, g.path)
	}
	if want := []string{d.path("inbox/d"), d.path("inbox/same"), d.path("inbox/a")}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !f.debouncer.has(d.path("inbox/changed")) || f.debouncer.len() != 1 || f.batch.len() != 3 {
		t.Errorf("%d wait, %d are ready", f.debouncer.len(), f.batch.len())
	}

	// Ready once more, it is as it is now.
	for _, text := range []string{"22", "333"} {
		info, err := os.Lstat(d.write("inbox/changed", text))
		d.must(err)
		f.batch.add(ready(d.path("inbox/changed"), stampOf(info)), time.Now())
	}
	if files := f.stillReady(); len(files) != 4 || files[3].path != d.path("inbox/changed") || files[3].stamp.size != 3 {
		t.Errorf("%d files", len(files))
	}
}

// As many files as a run may have become one without a pause; what is over waits from its own first file on.
func TestBatchTakesNoMoreThanARunMayHave(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 0, 2: 1, 3: 1, 4: 2, 5: 2} {
		d := newHarness(t)
		d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Agent: "a", Path: d.path("inbox"), Mode: ModeBatch, MaxFiles: 2, MaxWait: time.Hour, Settle: time.Hour}}))
		f := d.w.folders["in"]
		f.debouncer.lastChange = time.Now()
		began := time.Now()
		for i := range n {
			path := d.write("inbox/"+string(rune('a'+i)), string(rune('a'+i)))
			info, err := os.Lstat(path)
			d.must(err)
			c := ready(path, stampOf(info))
			c.hash = string(rune('a' + i))
			f.batch.add(c, began.Add(time.Duration(i)*time.Millisecond))
		}

		f.enqueueBatch(t.Context())
		if got := d.runs(); got != want || f.batch.len() != n%2 {
			t.Errorf("%d files: %d runs, %d wait, want %d and %d", n, got, f.batch.len(), want, n%2)
		}
		if n%2 == 1 && !f.batch.since.Equal(began.Add(time.Duration(n-1)*time.Millisecond)) {
			t.Errorf("%d files: what is over waits since %s", n, f.batch.since)
		}
	}
}
