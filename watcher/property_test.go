package watcher_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/runs"
	"rouse/watcher"
	"rouse/watcher/after"
)

// TestExactlyOnceProperty changes files and stops the watcher at random. Each content that stays
// must have exactly one claim and one run, and no run may have read an incomplete file.
func TestExactlyOnceProperty(t *testing.T) { exactlyOnce(t, watcher.Watch{}) }

// TestExactlyOnceInBatchesProperty checks the same in mode batch.
func TestExactlyOnceInBatchesProperty(t *testing.T) {
	exactlyOnce(t, watcher.Watch{Mode: watcher.ModeBatch, Existing: watcher.ExistingProcess, MaxFiles: 2, MaxWait: 200 * time.Millisecond})
}

func exactlyOnce(t *testing.T, like watcher.Watch) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(t)
		defer m.stop()

		m.watch.Mode, m.watch.Existing, m.watch.MaxFiles, m.watch.MaxWait = like.Mode, like.Existing, like.MaxFiles, like.MaxWait
		m.start(m.watch)
		for range rapid.IntRange(5, 40).Draw(rt, "steps") {
			m.step(rt)
		}

		if m.halt == nil {
			m.start(m.watch)
		}

		m.what = "every file that stays has its claim"
		m.until(func() bool { return m.unclaimed() == "" })
		m.check(rt)
	})
}

// model records every content that each path has ever had.
type model struct {
	*bench
	watch watcher.Watch
	had   map[string]map[string]bool // contents by path
	pause *time.Timer
}

func newModel(t *testing.T) *model {
	m := &model{bench: newBench(t), had: map[string]map[string]bool{}, pause: time.NewTimer(0)}
	m.watch = m.inbox()
	m.watch.Recursive, m.watch.Settle = true, 30*time.Millisecond
	return m
}

func (m *model) step(t *rapid.T) {
	name := rapid.SampledFrom([]string{"a.csv", "b.csv", "s/a.csv", "s/t/a.csv", "u/a.csv"})
	text := rapid.SampledFrom([]string{"1", "22", "333"})
	path := m.path("inbox/" + name.Draw(t, "file"))
	switch rapid.SampledFrom([]string{"write", "write", "append", "rename", "renameDir", "remove", "removeDir", "restart", "kill", "stop", "wait", "finish"}).Draw(t, "do") {
	case "write":
		// A truncated file is empty until it is written. On a busy machine this can last longer
		// than the settle window, and the watcher then takes the empty file for complete.
		m.hold(path, nil)
		m.put(path, text.Draw(t, "text"), os.O_TRUNC)
	case "append":
		m.put(path, text.Draw(t, "text"), os.O_APPEND)
	case "rename":
		to := m.path("inbox/" + name.Draw(t, "to"))
		m.must(os.MkdirAll(filepath.Dir(to), 0o755))
		m.ignore(os.Rename(path, to))
	case "renameDir":
		m.ignore(os.Rename(m.path("inbox/s"), m.path("inbox/u")))
	case "remove":
		m.ignore(os.Remove(path))
	case "removeDir":
		m.ignore(os.RemoveAll(m.path("inbox/s")))
	case "restart":
		m.stop()
		m.start(m.watch)
	case "kill":
		// Two watchers at once agree only on claims. The state of a folder in mode converge belongs
		// to one watcher, and the process of that watcher ends before the next one starts.
		if m.watch.Mode == watcher.ModeConverge {
			m.stop()
		}
		m.kill()
		m.start(m.watch)
	case "stop":
		m.stop()
	case "wait":
		m.pause.Reset(time.Duration(rapid.IntRange(0, 50).Draw(t, "ms")) * time.Millisecond)
		<-m.pause.C
	case "finish":
		m.outcome = domain.OutcomeSuccess
		m.finish()
		m.outcome = ""
	}

	m.note()
}

// kill lets a watcher end while the next one is already running.
func (m *model) kill() {
	if halt := m.halt; halt != nil {
		m.halt = nil
		over := make(chan struct{})
		m.t.Cleanup(func() { <-over })
		go func() {
			defer close(over)
			halt()
		}()
	}
}

// ignore accepts errors of operations on missing files.
func (m *model) ignore(error) {}

func (m *model) put(path, text string, how int) {
	m.must(os.MkdirAll(filepath.Dir(path), 0o755))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|how, 0o644)
	m.must(err)
	m.note() // the watcher may see this state if the machine stalls here
	_, err = f.WriteString(text)
	m.must(err)
	m.must(f.Close())
}

// note records the current contents.
func (m *model) note() {
	for path, text := range m.files() {
		m.hold(path, text)
	}
}

func (m *model) hold(path string, text []byte) {
	if m.had[path] == nil {
		m.had[path] = map[string]bool{}
	}
	m.had[path][hashOf(text)] = true
}

func (m *model) files() map[string][]byte {
	out := map[string][]byte{}
	err := filepath.WalkDir(m.path("inbox"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		text, err := os.ReadFile(path)
		if err == nil {
			out[path] = text
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) { // the file is being moved
		m.t.Fatal(err)
	}

	return out
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// unclaimed returns a file without a claim, or "" if there is none.
func (m *model) unclaimed() string {
	for path, text := range m.files() {
		_, ok, err := m.ledger.Claims.Of(m.t.Context(), "in", filepath.ToSlash(path), hashOf(text))
		m.must(err)
		if !ok {
			return path
		}
	}
	return ""
}

func (m *model) check(t *rapid.T) {
	runs, err := m.ledger.Runs.List(m.t.Context(), runs.Filter{Limit: 10_000})
	m.must(err)
	seen := map[string]bool{}
	for _, r := range runs {
		var d ledger.TriggerDetail
		m.must(json.Unmarshal(r.Detail, &d))
		files := d.Files
		if d.File != nil {
			files = append(files, *d.File)
		}
		if len(files) == 0 || m.watch.MaxFiles > 0 && len(files) > m.watch.MaxFiles {
			t.Fatalf("a run of %d files", len(files))
		}

		for _, f := range files {
			content := f.Path + " " + f.Hash
			if seen[content] {
				t.Fatalf("two runs of %s", content)
			}

			seen[content] = true
			if !m.had[f.Path][f.Hash] {
				t.Fatalf("a run of what %s never held whole", f.Path)
			}
		}
	}
}

// TestNothingIsLostProperty checks that a dropped file is always in one place: at its original path
// or at its destination. In the end all files have been moved. An unchanged file that is dropped
// again gets no second copy.
func TestNothingIsLostProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(t)
		defer m.stop()

		m.watch.OnSuccess = after.Rule{Action: "move", Dir: m.path("inbox/done")}
		m.start(m.watch)
		dropped := map[string]string{} // contents by place and content
		for range rapid.IntRange(5, 30).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"drop", "drop", "move in", "success", "error", "restart", "wait"}).Draw(rt, "do") {
			case "drop", "move in":
				m.drop(rt, dropped)
			case "success":
				m.outcome = domain.OutcomeSuccess
			case "error":
				m.outcome = domain.OutcomeError
			case "restart":
				m.stop()
				m.start(m.watch)
			case "wait":
				m.pause.Reset(time.Duration(rapid.IntRange(0, 50).Draw(rt, "ms")) * time.Millisecond)
				<-m.pause.C
			}

			m.finish()
			m.what = "every file is there"
			m.until(func() bool { return m.holds(dropped) }) // a file that is being moved may be missed
		}

		m.outcome = domain.OutcomeSuccess
		m.what = "every file is moved"
		m.until(func() bool {
			m.retryFailed()
			done, err := os.ReadDir(m.path("inbox/done"))
			return (err == nil || os.IsNotExist(err)) && len(done) == len(dropped) && len(m.files()) == len(done)
		})
		if !m.holds(dropped) {
			rt.Fatalf("dropped %v, left %v", dropped, m.files())
		}
	})
}

// holds reports whether each content exists in at least as many files as there were places where it
// was dropped.
func (m *model) holds(dropped map[string]string) bool {
	left := map[string]int{}
	for _, text := range m.files() {
		left[string(text)]++
	}
	for _, text := range dropped {
		left[text]--
	}
	for _, n := range left {
		if n < 0 {
			return false
		}
	}
	return true
}

// drop creates a file atomically where there is none, and records it.
func (m *model) drop(t *rapid.T, dropped map[string]string) {
	path := m.path("inbox/" + rapid.SampledFrom([]string{"a.csv", "b.csv", "s/a.csv"}).Draw(t, "file"))
	m.must(os.MkdirAll(filepath.Dir(path), 0o755))
	whole := m.path("whole")
	text := rapid.SampledFrom([]string{"1", "22"}).Draw(t, "text")
	m.must(os.WriteFile(whole, []byte(text), 0o644))
	linked := os.Link(whole, path) // unlike a rename, it never replaces a file
	m.must(os.Remove(whole))

	switch {
	case linked == nil:
		dropped[path+" "+text] = text
	case !os.IsExist(linked):
		m.t.Fatal(linked)
	}
}

func (m *model) retryFailed() {
	runs, err := m.ledger.Runs.List(m.t.Context(), runs.Filter{Outcome: domain.OutcomeError, Limit: 1000})
	m.must(err)
	for _, r := range runs {
		_, err := m.ledger.Retry(m.t.Context(), r.ID)
		m.must(err)
	}
}
