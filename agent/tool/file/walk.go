package file

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"rouse/agent/tool"
	"rouse/internal/text"
)

// maxWalked limits the number of entries that a walk reads.
const maxWalked = 250_000

// walkedFile is a file in an open folder.
type walkedFile struct {
	dir  *os.Root
	name string
	rel  string // path from the start of the walk, with slashes
	walk *walk
}

// walk calls visit for each file below a folder. It skips links, pipes, devices, hidden files,
// generated files and files ignored by .gitignore. It opens every folder as its own os.Root, so
// that a swapped link cannot lead elsewhere.
type walk struct {
	start *os.Root
	depth int // maximum depth of folders; 0 means no limit
	visit func(walkedFile)
	// within is the start of the walk relative to its root. outside is true if the start is not in
	// the workdir. Then a hard link may point to a file that was not granted.
	within   string
	outside  bool
	isHidden func(rel string) bool // reports whether a path in the root is masked

	walked     int
	unread     []string // folders that could not be read
	incomplete bool     // true if the context ended or there were too many entries
}

// folder visits the files of a folder and of its subfolders.
func (w *walk) folder(ctx context.Context, at string, depth int, rules *ignoreRules) {
	folders, rules := w.files(ctx, at, rules)
	if w.depth > 0 && depth >= w.depth {
		return
	}
	for _, name := range folders {
		if w.over(ctx) {
			return
		}
		w.folder(ctx, joinRel(at, name), depth+1, rules)
	}
}

// over reports whether the walk must end early.
func (w *walk) over(ctx context.Context) bool {
	w.incomplete = w.incomplete || ctx.Err() != nil || w.walked > maxWalked
	return w.incomplete
}

// files visits the files of a folder. It returns its subfolders and the rules that apply in them.
func (w *walk) files(ctx context.Context, at string, rules *ignoreRules) ([]string, *ignoreRules) {
	dir, err := w.start.OpenRoot(at)
	if err != nil {
		w.unread = append(w.unread, at)
		return nil, nil
	}
	defer dir.Close()

	// Entries that were read before an error are still visited.
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		w.unread = append(w.unread, at)
	}

	w.walked += len(entries)
	here := func(name string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name })
	}
	if here(".gitignore") {
		rules = readIgnores(dir, at, rules)
	}

	var folders []string
	for _, e := range entries {
		rel := joinRel(at, e.Name())
		switch {
		case alwaysIgnored(e.Name()) || rules.ignored(rel, e.IsDir()):
		case e.IsDir():
			if !generated(e.Name(), here) {
				folders = append(folders, e.Name())
			}
		case e.Type().IsRegular():
			if w.over(ctx) { // checked for each file, because searching one takes time
				return nil, nil
			}
			w.visit(walkedFile{dir, e.Name(), rel, w})
		}
	}
	return folders, rules
}

func joinRel(folder, name string) string {
	if folder == "." {
		return name
	}
	return folder + "/" + name
}

// openToRead opens a file that was listed as regular. It does not block if a pipe has replaced the
// file.
func openToRead(dir *os.Root, name string) (*os.File, error) {
	return dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// unreadWarning returns a warning that names the folders that could not be read.
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

	// Opened only to check the given path for links, hard links, secrets and masks.
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
		visit(walkedFile{w.start, filepath.Base(p.Rel), ".", w})
		return w, nil
	}

	w.folder(ctx, ".", 1, f.parentRules(p))
	slices.Sort(w.unread)
	return w, nil
}

// parentRules returns the rules of the .gitignore files from the root down to the start of a walk.
func (f *files) parentRules(p *tool.FileHandle) *ignoreRules {
	var rules *ignoreRules
	up := filepath.ToSlash(p.Rel)
	if up == "." {
		return nil
	}

	folder := "."
	for _, part := range strings.Split(up, "/") {
		// Folders that cannot be opened have no rules. The walk itself reports unreadable folders.
		if dir, err := p.OpenRoot(folder); err == nil {
			rules = readIgnores(dir, "", rules)
			// An empty base marks the rules that were just read. Rules of higher folders already
			// have a base.
			if rules != nil && rules.base == "" {
				rules.base, rules.prefix = ".", strings.TrimPrefix(strings.TrimPrefix(up, folder), "/")+"/"
			}
			dir.Close()
		}
		folder = path.Join(folder, part)
	}

	return rules
}
