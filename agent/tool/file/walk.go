package file

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"rouse/agent/tool"
	"rouse/internal/text"
)

// Limits of a walk.
const (
	maxWalked  = 250_000 // entries
	maxWalkers = 8
	perBatch   = 64 // files of one folder that one walker handles at once
)

// walkedFile is a file in an open folder.
type walkedFile struct {
	dir    *os.Root
	folder *os.File // the same one, of a file that was listed; nil for one that a call names itself
	name   string
	rel    string // from where the walk began, with slashes
	walk   *walk
}

// walk calls visit with each file below a folder, from several goroutines at once and in no order.
// Links, pipes and devices are left out, as are hidden files, what .gitignore names and what programs
// generate. Every folder is opened as an os.Root of its own: a swapped link leads nowhere else.
type walk struct {
	start *os.Root
	depth int // of folders; 0 has no limit
	visit func(walkedFile)
	// within is where the walk begins in its root; outside says that this is not in the workdir, so
	// that a hard link may be a file that was not granted.
	within   string
	outside  bool
	isHidden func(rel string) bool // masked paths in the root

	mu         sync.Mutex
	more       sync.Cond
	waiting    []walkItem
	busy       int
	walked     atomic.Int64
	unread     []string // folders that could not be read
	incomplete atomic.Bool
}

// walkItem is a unit of work: a folder to read, or some files of one.
type walkItem struct {
	rel   string
	depth int
	rules *ignoreRules
	files []string
	dir   *sharedDir
}

// sharedDir is a folder that several items use; the last one closes it.
type sharedDir struct {
	root   *os.Root
	folder *os.File
	uses   atomic.Int64
}

func (s *sharedDir) release() {
	if s.uses.Add(-1) == 0 {
		s.folder.Close()
		s.root.Close()
	}
}

// run ends when everything was visited, when the context ends, or with too many entries; in the last
// two cases incomplete is set.
func (w *walk) run(ctx context.Context, rules *ignoreRules) {
	w.more.L = &w.mu
	w.waiting = []walkItem{{rel: ".", depth: 1, rules: rules}}
	var all sync.WaitGroup
	// Two at least: one can wait for the disk while the other searches.
	for range min(max(runtime.GOMAXPROCS(0), 2), maxWalkers) {
		all.Go(func() { w.work(ctx) })
	}

	all.Wait()
	slices.Sort(w.unread)
}

func (w *walk) work(ctx context.Context) {
	for {
		p, ok := w.dequeue()
		if !ok {
			return
		}

		over := func() bool { return ctx.Err() != nil || w.walked.Load() > maxWalked }
		switch {
		case p.dir != nil:
			for _, name := range p.files {
				if over() { // asked for each file: to search one takes a while
					w.incomplete.Store(true)
					break
				}
				w.visit(walkedFile{p.dir.root, p.dir.folder, name, joinRel(p.rel, name), w})
			}
			p.dir.release()
		case over():
			w.incomplete.Store(true)
		default:
			w.readFolder(p)
		}

		// The last worker wakes the others: nothing will be enqueued any more, and they end.
		w.mu.Lock()
		if w.busy--; w.busy == 0 && len(w.waiting) == 0 {
			w.more.Broadcast()
		}
		w.mu.Unlock()
	}
}

// dequeue waits for an item; false when there will be none.
func (w *walk) dequeue() (walkItem, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	for len(w.waiting) == 0 {
		if w.busy == 0 {
			return walkItem{}, false
		}
		w.more.Wait()
	}

	last := len(w.waiting) - 1 // depth first, so that few folders wait, and few are open
	p := w.waiting[last]
	w.waiting = w.waiting[:last]
	w.busy++

	return p, true
}

func (w *walk) enqueue(parts []walkItem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = append(w.waiting, parts...)
	w.more.Broadcast()
}

// readFolder reads a folder, and enqueues its files and folders.
func (w *walk) readFolder(p walkItem) {
	dir, err := w.start.OpenRoot(p.rel)
	if err != nil {
		w.markUnread(p.rel)
		return
	}

	folder, err := plainFolder(dir)
	if err != nil {
		dir.Close()
		w.markUnread(p.rel)
		return
	}

	in := &sharedDir{root: dir, folder: folder}
	in.uses.Add(1)
	defer in.release()

	// What was read before an error is visited all the same.
	entries, err := folder.ReadDir(-1)
	if err != nil {
		w.markUnread(p.rel)
	}

	w.walked.Add(int64(len(entries)))
	here := func(name string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name })
	}
	rules := p.rules
	if here(".gitignore") {
		rules = readIgnores(dir, p.rel, rules)
	}

	var parts []walkItem
	var files []string
	for _, e := range entries {
		rel := joinRel(p.rel, e.Name())
		switch {
		case alwaysIgnored(e.Name()) || rules.ignored(rel, e.IsDir()):
		case e.IsDir():
			if !generated(e.Name(), here) && (w.depth == 0 || p.depth < w.depth) {
				parts = append(parts, walkItem{rel: rel, depth: p.depth + 1, rules: rules})
			}
		case e.Type().IsRegular():
			files = append(files, e.Name())
		}
	}

	for some := range slices.Chunk(files, perBatch) {
		in.uses.Add(1)
		parts = append(parts, walkItem{rel: p.rel, files: some, dir: in})
	}

	w.enqueue(parts)
}

// joinRel is the path of an entry of a folder.
func joinRel(folder, name string) string {
	if folder == "." {
		return name
	}
	return folder + "/" + name
}

func (w *walk) markUnread(rel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unread = append(w.unread, rel)
}

// openToRead opens a file that somebody named or listed as regular. Should it have been swapped for a pipe since,
// opening does not block.
func openToRead(dir *os.Root, name string) (*os.File, error) {
	return dir.OpenFile(name, os.O_RDONLY|nonBlocking, 0)
}

// unreadWarning names folders that could not be read.
func (w *walk) unreadWarning() []string {
	if len(w.unread) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s could not be read: %s", text.Plural(len(w.unread), "folder"), text.List(w.unread, maxSkipped))}
}

// walkPath walks a folder, or visits the single file at a path.
func (f *files) walkPath(ctx context.Context, at string, depth int, visit func(walkedFile)) (*walk, error) {
	p, err := f.roots.Resolve(at, false)
	if err != nil {
		return nil, err
	}
	defer p.Close()

	// Opened only for the checks: links, hard links, secrets and masks of the path that was given.
	file, err := p.OpenChecked()
	if err != nil {
		return nil, err
	}
	defer file.Close()

	info, err := file.Stat()
	if err != nil {
		return nil, err
	}

	w := &walk{depth: depth, visit: visit, within: filepath.ToSlash(p.Rel), outside: !p.InWorkdir(), isHidden: p.IsHidden}
	folder := p.Rel
	if !info.IsDir() {
		folder = filepath.Dir(p.Rel)
	}
	if w.start, err = p.OpenRoot(folder); err != nil {
		return nil, p.Explain(err)
	}
	defer w.start.Close()

	if !info.IsDir() {
		visit(walkedFile{w.start, nil, filepath.Base(p.Rel), ".", w})
		return w, nil
	}

	w.run(ctx, f.parentRules(p))
	return w, nil
}

// parentRules are the rules of the .gitignore files from the root down to where a walk begins.
func (f *files) parentRules(p *tool.FileHandle) *ignoreRules {
	var rules *ignoreRules
	up := filepath.ToSlash(p.Rel)
	if up == "." {
		return nil
	}

	folder := "."
	for _, part := range strings.Split(up, "/") {
		// A folder that cannot be opened has no rules; the walk itself says what cannot be read.
		if dir, err := p.OpenRoot(folder); err == nil {
			rules = readIgnores(dir, "", rules)
			// The empty base marks rules that were just read; those of folders further up are set.
			if rules != nil && rules.base == "" {
				rules.base, rules.prefix = ".", strings.TrimPrefix(strings.TrimPrefix(up, folder), "/")+"/"
			}
			dir.Close()
		}
		folder = path.Join(folder, part)
	}

	return rules
}
