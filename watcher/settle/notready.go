package settle

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"rouse/internal/hardlink"
	"rouse/watcher/fsys"
	"rouse/watcher/match"
)

const (
	// pauseMax is the longest pause between two checks of a file. linkPauseMax applies to hard
	// links, which rarely change.
	pauseMax, linkPauseMax = 10 * time.Second, 5 * time.Minute
	// reportAfter is the wait after which an event is recorded. After problemAfter the file is a
	// problem of its watch.
	reportAfter, problemAfter = time.Minute, 10 * time.Minute
	// linkReportAfter applies to hard links. Some programs use a hard link for a moment to name a
	// file.
	linkReportAfter = 5 * time.Second
)

// WaitingFile is a file that has settled but is held back.
type WaitingFile struct {
	Path  string
	Why   string
	Since time.Time
	// Run failed with the same content. It is 0 if the file waits for another reason.
	Run int64

	kind     notReadyKind
	reported bool // whether an event has been recorded
}

type notReadyKind int

const (
	openForWriting  notReadyKind = iota // a program has the file open for writing
	partialDownload                     // the file is empty, and a partial download is beside it
	hardLink                            // the file has further names
)

// Problem reports whether the owner should be told that the file waits.
func (w WaitingFile) Problem(now time.Time) bool {
	if w.Run != 0 {
		return false // the owner was notified of the failed run
	}
	if w.kind == hardLink {
		return now.Sub(w.Since) >= linkReportAfter
	}
	return now.Sub(w.Since) >= problemAfter
}

// NotReadyError is the reason why a file must not be read yet.
type NotReadyError struct {
	kind notReadyKind
	why  string
}

// Error returns the reason.
func (e *NotReadyError) Error() string { return e.why }

// ErrHardLink means that a file has further names. No run may read it: another user may have chosen
// the file behind the name, and its other names are unknown.
var ErrHardLink = &NotReadyError{hardLink, "it is a hard link, and its other name may lie anywhere, so that no run may read it; copy the file instead"}

// CheckReady returns a NotReadyError if a file must not be read yet, and fsys.ErrChanged if it does
// not have the expected stamp. A file in ownFolder may have further names. takeOpen allows files
// that a program has open for writing.
func CheckReady(file fsys.Handle, expected fsys.Stamp, ownFolder string, takeOpen bool) error {
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
	switch _, own := fsys.RelInside(ownFolder, file.Path()); {
	case err != nil:
		return err
	case names > 1 && !own:
		return ErrHardLink
	}
	if !takeOpen && fsys.OpenForWriting(f) {
		return &NotReadyError{openForWriting, "a program has it open for writing"}
	}
	return nil
}

// PartialNames caches the names of unfinished downloads by folder.
type PartialNames map[string]partialList

type partialList struct {
	folder fsys.Stamp // stamp of the folder before it was read
	names  []string
}

// namesAtOnce is the number of names read from a folder at a time.
const namesAtOnce = 512

// maxPartialLists is the maximum number of folders in the cache.
const maxPartialLists = 1000

// beside returns the name of the unfinished download beside an empty file, or "". Firefox creates
// x.tar.gz and writes x.tar.gz.part or, since version 98, x.RANDOM.tar.gz.part.
func (p PartialNames) beside(file fsys.Handle) (string, error) {
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

// in returns the names of the unfinished downloads in a folder. It reads the folder only if it has
// changed.
func (p PartialNames) in(folder fsys.Handle) ([]string, error) {
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
		names, err := dir.Readdirnames(namesAtOnce)
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

// WaitingFiles holds the files of a folder that are not ready. It has no clock: callers pass the
// time.
type WaitingFiles struct {
	files   map[string]WaitingFile
	writers fsys.Writers
}

// NewWaitingFiles returns an empty set.
func NewWaitingFiles() WaitingFiles { return WaitingFiles{files: map[string]WaitingFile{}} }

// Note records that a file is not ready. It reports whether to record an event: once for each
// reason, after the file has waited for a while.
func (w *WaitingFiles) Note(path string, reason *NotReadyError, now time.Time) (f WaitingFile, report bool) {
	f, known := w.files[path]
	if !known || f.kind != reason.kind {
		f = WaitingFile{Path: path, Since: now, Why: reason.why, kind: reason.kind}
		if reason.kind == openForWriting {
			f.Why += w.writers.Of(path, now)
		}
	}

	if !f.reported && (f.Problem(now) || now.Sub(f.Since) >= reportAfter) {
		f.reported, report = true, true
	}
	w.files[path] = f
	return f, report
}

// Keep drops the files that no longer wait.
func (w *WaitingFiles) Keep(waits func(path string) bool) {
	maps.DeleteFunc(w.files, func(path string, _ WaitingFile) bool { return !waits(path) })
}

// Len returns the number of files.
func (w *WaitingFiles) Len() int { return len(w.files) }

// List returns the files in no particular order.
func (w *WaitingFiles) List() []WaitingFile { return slices.Collect(maps.Values(w.files)) }

// Pause returns the time until the next check, which grows with the wait.
func (w WaitingFile) Pause(now time.Time, settle time.Duration) time.Duration {
	longest := pauseMax
	if w.kind == hardLink {
		longest = linkPauseMax
	}
	return max(settle, min(now.Sub(w.Since)/8, longest))
}

// CheckEmpty returns a NotReadyError if an unfinished download is beside an empty file.
func CheckEmpty(file fsys.Handle, known PartialNames) error {
	switch name, err := known.beside(file); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case name != "":
		return &NotReadyError{partialDownload, "it is empty, and its download goes on beside it as " + name}
	}
	return nil
}
