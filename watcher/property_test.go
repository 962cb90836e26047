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

// Whatever happens to the files, and however often the watcher is stopped meanwhile, each
// content that stays has exactly one claim and one run, and no run saw half a file.
func TestExactlyOnceProperty(t *testing.T) { exactlyOnce(t, watcher.Watch{}) }

// The same of batches, whatever is ready when the watcher is stopped.
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

// model knows every content that every path has ever had.
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
		// Truncated and not yet written it is empty, on a busy machine for longer than the
		// settle window: to the watcher that is a file which somebody finished.
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
		// Of two that are there at once only claims are the truth: what is known of a folder
		// that converges is one watcher's, whose process is over before there is another.
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

// kill leaves a watcher to its end, which comes while another is there already.
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

// ignore is for what may fail because there is nothing to do it to.
func (m *model) ignore(error) {}

func (m *model) put(path, text string, how int) {
	m.must(os.MkdirAll(filepath.Dir(path), 0o755))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|how, 0o644)
	m.must(err)
	m.note() // it may be seen like this, if this machine stalls here
	_, err = f.WriteString(text)
	m.must(err)
	m.must(f.Close())
}

// note remembers what is there.
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
	if err != nil && !os.IsNotExist(err) { // one that is being moved
		m.t.Fatal(err)
	}

	return out
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// unclaimed is a file that nobody has taken, "" when there is none.
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

// However runs end, and whenever the watcher is stopped, a file that was dropped is in one
// place: where it was dropped or where it was moved to. In the end all have been moved. What is dropped
// again as it was has no second copy there.
func TestNothingIsLostProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(t)
		defer m.stop()

		m.watch.OnSuccess = after.Rule{Action: "move", Dir: m.path("inbox/done")}
		m.start(m.watch)
		dropped := map[string]string{} // texts by place and text
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
			m.until(func() bool { return m.holds(dropped) }) // one that is being moved may be missed
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

// holds says whether each text lies in as many files, at least, as places it was dropped at.
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

// drop puts a file where none is, in one go, and notes it.
func (m *model) drop(t *rapid.T, dropped map[string]string) {
	path := m.path("inbox/" + rapid.SampledFrom([]string{"a.csv", "b.csv", "s/a.csv"}).Draw(t, "file"))
	m.must(os.MkdirAll(filepath.Dir(path), 0o755))
	whole := m.path("whole")
	text := rapid.SampledFrom([]string{"1", "22"}).Draw(t, "text")
	m.must(os.WriteFile(whole, []byte(text), 0o644))
	linked := os.Link(whole, path) // unlike a rename, it replaces nothing
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
