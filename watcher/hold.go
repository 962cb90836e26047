package watcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"rouse/internal/hardlink"
	"rouse/watcher/fsys"
	"rouse/watcher/match"
)

const (
	// heldPause bounds the pause between two looks at a file that its writer has open, or whose download goes on;
	// heldLinkPause that of a hard link, which changes rarely.
	heldPause, heldLinkPause = 10 * time.Second, 5 * time.Minute
	// heldEvent is how long a file waits until that is on record, heldProblem until it counts as a problem of its watch.
	heldEvent, heldProblem = time.Minute, 10 * time.Minute
	// heldLinkEvent is the same of a hard link: programs make one for a moment to give a file its name.
	heldLinkEvent = 5 * time.Second
	// WaitsEvent is the kind of the event of a file that waits.
	WaitsEvent = "file.waits"
)

// Wait is a file that looks complete and is not taken: why, and since when.
type Wait struct {
	Path  string
	Why   string
	Since time.Time
	Run   int64 // that failed with the same bytes; 0 where the file waits for something else

	kind holdKind
	told bool // it is on record
}

type holdKind int

const (
	heldOpen   holdKind = iota // a program has it open for writing
	heldByPart                 // it is empty, and a download beside it goes on
	heldLink                   // it has another name
)

// problem says whether its owner should hear of it without asking.
func (w Wait) problem(now time.Time) bool {
	if w.Run != 0 {
		return false // of the run that failed its owner was told
	}
	if w.kind == heldLink {
		return now.Sub(w.Since) >= heldLinkEvent
	}
	return now.Sub(w.Since) >= heldProblem
}

// heldError is why a file is not read yet.
type heldError struct {
	kind holdKind
	why  string
}

func (e *heldError) Error() string { return e.why }

// errHardLink is of a file that no run may read: whoever made the name chose the file behind it, and nothing tells
// where the other names are.
var errHardLink = &heldError{heldLink, "it is a hard link, and its other name may lie anywhere, so that no run may read it; copy the file instead"}

// held says what keeps a file from being taken that looks like expected: a *heldError, or what else came of looking.
func (w *Watch) held(file fsys.Handle, expected fsys.Stamp) error {
	f, err := file.Open()
	if err != nil {
		return err
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || !fsys.StampOf(info).Same(expected) {
		return fsys.ErrChanged
	}

	names, err := hardlink.Count(f)
	switch _, own := fsys.RelInside(w.OwnFolder, file.Path()); {
	case err != nil:
		return err
	case names > 1 && !own:
		return errHardLink
	}
	if !w.TakeOpen && fsys.OpenForWriting(f) {
		return &heldError{heldOpen, "a program has it open for writing"}
	}
	return nil
}

// partialNames are the names of unfinished downloads in folders.
type partialNames map[string]partialList

type partialList struct {
	folder fsys.Stamp // as it looked before it was read
	names  []string
}

// maxPartialLists bounds the folders of which names are remembered.
const maxPartialLists = 1000

// beside is the unfinished download beside an empty file, "" where there is none. Firefox makes x.tar.gz and
// writes x.tar.gz.part, or since version 98 x.RANDOM.tar.gz.part.
func (p partialNames) beside(file fsys.Handle) (string, error) {
	names, err := p.in(fsys.Handle{Root: file.Root, Name: filepath.Dir(file.Name)})
	if err != nil {
		return "", err
	}

	base := filepath.Base(file.Name)
	for _, name := range names {
		if match.IsPartialOf(name, base) {
			return name, nil
		}
	}
	return "", nil
}

// in reads a folder, unless it looks as it did when that was done before: of thousands of empty files not each reads it.
func (p partialNames) in(folder fsys.Handle) ([]string, error) {
	info, err := folder.Lstat()
	if err != nil {
		return nil, err
	}
	now := fsys.StampOf(info)
	if known, ok := p[folder.Path()]; ok && known.folder == now && now.Stable(time.Now()) {
		return known.names, nil
	}

	dir, err := folder.Open()
	if err != nil {
		return nil, err
	}
	defer dir.Close()

	list := partialList{folder: now}
	for {
		names, err := dir.Readdirnames(page)
		for _, name := range names {
			if match.IsUnfinished(name) {
				list.names = append(list.names, name)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}

	if len(p) >= maxPartialLists {
		clear(p)
	}
	p[folder.Path()] = list
	return list.names, nil
}

// isHeldBack notes that a file waits, where an error says so: it is looked at again after a while.
func (f *folder) isHeldBack(ctx context.Context, c candidate, err error) bool {
	held, ok := errors.AsType[*heldError](err)
	if !ok {
		return false
	}

	now := time.Now()
	w, known := f.waits[c.path]
	if !known || w.kind != held.kind {
		w = Wait{Path: c.path, Since: now, Why: held.why, kind: held.kind}
		if held.kind == heldOpen {
			w.Why += f.writers.Of(c.path, now)
		}
	}

	if !w.told && (w.problem(now) || now.Sub(w.Since) >= heldEvent) {
		w.told = true
		f.w.log.Info("a file waits", "job", f.Job, "path", c.path, "reason", w.Why, "since", w.Since)
		f.event(ctx, WaitsEvent, 0, map[string]any{"path": c.path, "why": w.Why, "since": w.Since})
	}
	f.waits[c.path] = w

	// An event may have put it back already, while a large file was being looked at.
	if !f.debouncer.has(c.path) {
		f.debouncer.requeue(c.pendingFile, now.Add(w.pause(now, f.Settle)-f.Settle), c.stamp)
	}
	return true
}

// pause is how long a file waits until it is looked at again: the longer it has waited, the longer.
func (w Wait) pause(now time.Time, settle time.Duration) time.Duration {
	longest := heldPause
	if w.kind == heldLink {
		longest = heldLinkPause
	}
	return max(settle, min(now.Sub(w.Since)/8, longest))
}

// publishWaits drops the files that wait no more and copies the others to where Status reads them. The caller holds mu.
func (f *folder) publishWaits() {
	for path := range f.waits {
		if !f.debouncer.has(path) && !f.hashing[path] {
			delete(f.waits, path)
		}
	}

	f.status.Waits = f.status.Waits[:0:0]
	for _, w := range f.waits {
		f.status.Waits = append(f.status.Waits, w)
	}
	for _, b := range f.back {
		f.status.Waits = append(f.status.Waits, b.Wait)
	}
}

// heldChange is what keeps one of the changed files of a folder that converges from being complete; nil where nothing
// does, or that cannot be told: the run is about the folder, and reads what it can.
func (f *folder) heldChange(names ...[]string) error {
	root, err := f.openRoot()
	if err != nil {
		return nil
	}
	defer root.Close()

	left := maxHeldChanges
	for _, list := range names {
		for _, name := range list[:min(left, len(list))] {
			left--
			file := fsys.Handle{Root: root, Name: filepath.FromSlash(name)}
			info, err := file.Lstat()
			if err != nil || !info.Mode().IsRegular() {
				continue
			}

			held, ok := errors.AsType[*heldError](f.held(file, fsys.StampOf(info)))
			if !ok && info.Size() == 0 {
				held, ok = errors.AsType[*heldError](placeholder(file, f.partials))
			}
			if ok && held.kind != heldLink {
				return fmt.Errorf("%s: %w", file.Path(), held)
			}
		}
	}
	return nil
}

// maxHeldChanges is how many changed files of a folder are looked at.
const maxHeldChanges = 100

// placeholder is a *heldError for an empty file beside which its download is written.
func placeholder(file fsys.Handle, known partialNames) error {
	switch name, err := known.beside(file); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case name != "":
		return &heldError{heldByPart, "it is empty, and its download goes on beside it as " + name}
	}
	return nil
}
