package watcher

import (
	"os"
	"slices"
	"testing"
	"time"

	"rouse/watcher/after"
	"rouse/watcher/fsys"
	"rouse/watcher/settle"
)

func ready(path string, st fsys.Stamp) candidate {
	return candidate{Pending: &settle.Pending{Path: path}, stamp: st}
}

// TestBatchDue checks that a full batch is due at once. Another batch is due when the folder is
// quiet or its first file has waited long enough. Files that are held back do not count as changes.
func TestBatchDue(t *testing.T) {
	t.Parallel()
	const window, maxWait = time.Second, time.Minute
	for name, c := range map[string]struct {
		files int
		since func(f *folder)
		want  time.Duration
	}{
		"a quiet folder":           {1, func(f *folder) {}, window},
		"one more has not settled": {1, func(f *folder) { f.files.debouncer.Observe("more", noon, look(1, 0), settle.Scanned) }, maxWait},
		"one more is held back": {1, func(f *folder) {
			f.files.debouncer.Observe("more", noon, look(1, 0), settle.Scanned)
			f.files.waiting.Note("more", settle.ErrHardLink, noon)
		}, window},
		"a large one is being hashed":     {1, func(f *folder) { f.files.hashing["more"] = true }, maxWait},
		"a folder that is never quiet":    {1, func(f *folder) { f.files.debouncer.LastChange = noon.Add(2 * maxWait) }, maxWait},
		"as many as a run may have":       {3, func(f *folder) {}, 0},
		"more than that":                  {4, func(f *folder) {}, 0},
		"could not be recorded":           {1, func(f *folder) { f.files.batch.retry = noon.Add(5 * time.Second) }, 5 * time.Second},
		"many that could not be recorded": {3, func(f *folder) { f.files.batch.retry = noon.Add(5 * time.Second) }, 5 * time.Second},
		"recorded at the next try":        {1, func(f *folder) { f.files.batch.retry = noon.Add(time.Millisecond) }, window},
	} {
		f := newFolder(&Watcher{}, Watch{MaxFiles: 3, Settle: window, MaxWait: maxWait})
		f.files.debouncer.LastChange = noon
		if at := f.files.batchDue(); !at.IsZero() {
			t.Errorf("%s: a batch without files is due at %s", name, at)
		}
		for i := range c.files {
			f.files.batch.add(ready(string(rune('a'+i)), look(1, 0)), noon.Add(time.Duration(i)*time.Hour))
		}
		c.since(f)
		if got := f.files.batchDue().Sub(noon); got != c.want {
			t.Errorf("%s: due after %s, want %s", name, got, c.want)
		}
	}
}

// TestBatchHasWhatIsStillReady checks that a run gets the files that have not changed since they
// were ready. A changed file waits again.
func TestBatchHasWhatIsStillReady(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.set(after.Rule{})
	f := d.w.folders["in"]
	for _, name := range []string{"d", "same", "gone", "changed", "folder", "a"} {
		path := d.write("inbox/"+name, "1")
		info, err := os.Lstat(path)
		d.must(err)
		f.files.batch.add(ready(path, fsys.StampOf(info)), time.Now())
	}
	d.must(os.Remove(d.path("inbox/gone")))
	d.must(os.Remove(d.path("inbox/folder")))
	d.must(os.Mkdir(d.path("inbox/folder"), 0o755))
	d.write("inbox/changed", "22")

	var got []string
	for _, g := range f.files.stillReady() {
		got = append(got, g.path)
	}
	if want := []string{d.path("inbox/d"), d.path("inbox/same"), d.path("inbox/a")}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !f.files.debouncer.Has(d.path("inbox/changed")) || f.files.debouncer.Len() != 1 || len(f.files.batch.files) != 3 {
		t.Errorf("%d wait, %d are ready", f.files.debouncer.Len(), len(f.files.batch.files))
	}

	// The file is ready again with its new content.
	for _, text := range []string{"22", "333"} {
		info, err := os.Lstat(d.write("inbox/changed", text))
		d.must(err)
		f.files.batch.add(ready(d.path("inbox/changed"), fsys.StampOf(info)), time.Now())
	}
	if files := f.files.stillReady(); len(files) != 4 || files[3].path != d.path("inbox/changed") || files[3].stamp.Size != 3 {
		t.Errorf("%d files", len(files))
	}
}

// TestBatchTakesNoMoreThanARunMayHave checks that a full batch becomes a run at once. The wait of
// the remaining files begins with the first of them.
func TestBatchTakesNoMoreThanARunMayHave(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		files       int
		quiet       bool
		retry       time.Duration // time until which no run can be recorded
		runs, waits int
	}{
		{1, false, 0, 0, 1}, {2, false, 0, 1, 0}, {3, false, 0, 1, 1}, {4, false, 0, 2, 0}, {5, false, 0, 2, 1},
		{1, true, 0, 1, 0}, {2, true, 0, 1, 0}, {3, true, 0, 2, 0}, {4, false, time.Hour, 0, 4}, {4, true, time.Hour, 0, 4},
	} {
		d := newHarness(t)
		d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Agent: "a", Path: d.path("inbox"), Mode: ModeBatch, MaxFiles: 2, MaxWait: 3 * time.Hour, Settle: time.Hour}}))
		f := d.w.folders["in"]
		began := time.Now()
		f.files.debouncer.LastChange, f.files.batch.retry = began, began.Add(c.retry)
		if c.quiet {
			f.files.debouncer.LastChange = began.Add(-2 * time.Hour)
		}
		for i := range c.files {
			path := d.write("inbox/"+string(rune('a'+i)), string(rune('a'+i)))
			info, err := os.Lstat(path)
			d.must(err)
			one := ready(path, fsys.StampOf(info))
			one.hash = string(rune('a' + i))
			f.files.batch.add(one, began.Add(time.Duration(i)*time.Millisecond))
		}

		f.files.enqueueBatch(t.Context())
		if got := d.runs(); got != c.runs || len(f.files.batch.files) != c.waits {
			t.Errorf("%+v: %d runs, %d wait", c, got, len(f.files.batch.files))
		}
		if want := began.Add(time.Duration(c.files-c.waits) * time.Millisecond); c.waits > 0 && !f.files.batch.since.Equal(want) {
			t.Errorf("%+v: what is over waits since %s, want %s", c, f.files.batch.since, want)
		}
	}
}
