package file

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"rouse/agent/tool"
	"rouse/internal/atomicfile"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/fileop"
	"rouse/internal/owner"
)

// maxUndoBytes limits the content stored for undo per run. Changes beyond the limit cannot be
// undone.
const maxUndoBytes = 256 << 20

// binaryExtensions has the extensions of binary formats.
var binaryExtensions = map[string]bool{".xlsx": true, ".xls": true, ".xlsm": true, ".ods": true, ".pdf": true, ".pptx": true, ".ppt": true, ".odp": true,
	".docx": true, ".doc": true, ".odt": true, ".zip": true, ".gz": true, ".png": true, ".jpg": true, ".jpeg": true, ".gif": true, ".db": true, ".sqlite": true}

// pendingChange is a file that is about to be replaced as a whole.
type pendingChange struct {
	place       *tool.FileHandle
	shown       string // path as the caller wrote it
	old         fileState
	notUndoable string // reason why it cannot be undone, or ""
	release     func() // releases the lock of the path
}

func (c pendingChange) close() {
	c.place.Close()
	c.release()
}

// prepare locks the path, opens the file, and reads its content. The caller must close the change.
func (f *files) prepare(ctx context.Context, in tool.Invocation, path string) (c pendingChange, err error) {
	if ext := strings.ToLower(filepath.Ext(path)); binaryExtensions[ext] {
		return c, tool.RefusePath(tool.KindRejected, "a %s file is not text; write .txt, .md or .csv instead", ext)
	}

	place, err := f.roots.Resolve(path, true)
	if err != nil {
		return c, err
	}
	release, err := f.locks.Acquire(ctx, f.roots.Canonical(path))
	if err != nil {
		return c, errors.Join(err, place.Close())
	}

	c = pendingChange{place: place, shown: path, release: release}
	if c.old, err = readCurrent(place, path); err != nil {
		c.close()
		return c, err
	}

	// Checked before the change, so that a dry run also reports it.
	kept, err := f.log.SavedBytes(ctx, in.Run)
	if err != nil {
		c.close()
		return c, &hostError{err}
	}
	if c.old.info != nil && kept+int64(len(c.old.text)) > maxUndoBytes {
		c.notUndoable = overUndoBytes
	}
	return c, nil
}

// overUndoBytes is the reason recorded for changes beyond maxUndoBytes.
var overUndoBytes = fmt.Sprintf("this run has changed files of more than %d MiB, and no more is kept of them", maxUndoBytes>>20)

// hostError is a fault of the host, not of the call. It ends the run.
type hostError struct{ error }

func (e *hostError) Unwrap() error { return e.error }

// notAnnounced returns the error for a change that could not be announced. If the file's folder is
// at fault, only the call fails.
func notAnnounced(p *tool.FileHandle, err error) error {
	if domain.IsFileFault(err) {
		return p.Explain(err)
	}
	return &hostError{err}
}

// failureOf converts the error of a call to a failed result, or returns an error of the host.
func failureOf(path string, err error) (tool.Envelope, error) {
	if host, ok := errors.AsType[*hostError](err); ok {
		return tool.Envelope{}, host.error
	}
	if !errors.As(err, new(*tool.Refusal)) {
		err = tool.RefusePath(tool.KindExecutionError, "%s cannot be used: %v", path, err)
	}
	return tool.Answered(tool.Envelope{}, err)
}

// apply replaces or creates the file. It returns the id of the change. The id is the key of its
// call, so it is the same if the run is resumed.
func (f *files) apply(ctx context.Context, in tool.Invocation, c pendingChange, kind fileop.Type, text string) (string, error) {
	p := c.place
	op := fileop.Op{Agent: in.Agent, Batch: in.Key, Type: kind, Root: p.Name(), Path: filepath.Join(p.Name(), p.Rel), CreatedFolder: firstMissingFolder(p), AfterHash: hashOf(text), NoUndoReason: c.notUndoable}
	var mode fs.FileMode
	if c.old.info != nil {
		mode = c.old.info.Mode().Perm()
		op.Mode, op.Size, op.BeforeHash = uint32(mode), int64(len(c.old.text)), hashOf(c.old.text)
	}

	if c.holds(text) {
		return f.confirm(ctx, in, c, op)
	}

	// The order of the steps makes a crash harmless: temporary file, announcement to the watches,
	// record with the old content, rename. After a crash, the record may describe a change that was
	// not made. Undo recognizes such records.
	file, err := writeTemp(p, text, mode)
	if err != nil {
		return "", p.Explain(err)
	}

	err = p.Announce(ctx, file.TempName())
	if err == nil {
		op, err = f.log.Add(ctx, ledger.Attempt{Run: in.Run, Number: in.Attempt}, op, []byte(c.old.text))
	}
	if err != nil {
		return "", errors.Join(notAnnounced(p, err), file.Abort())
	}

	// The record is deleted even if the run was cancelled meanwhile, because there was no change.
	if err := commit(p, c.shown, file, c.old); err != nil {
		if dropped := f.log.Delete(context.WithoutCancel(ctx), op.ID); dropped != nil {
			return "", errors.Join(err, &hostError{dropped})
		}
		return "", p.Explain(err)
	}

	return op.Batch, nil
}

// holds reports whether the file already has this content.
func (c pendingChange) holds(text string) bool { return c.old.info != nil && c.old.text == text }

// confirm records a write whose content equals the file's current content. It does not touch the
// file, so that no watch reports a change.
func (f *files) confirm(ctx context.Context, in tool.Invocation, c pendingChange, op fileop.Op) (string, error) {
	if err := c.place.CheckWrite(); err != nil {
		return "", c.place.Explain(err)
	}
	if !c.old.unchanged(c.place) {
		return "", changedMeanwhile(c.shown)
	}
	if _, err := f.log.Add(ctx, ledger.Attempt{Run: in.Run, Number: in.Attempt}, op, []byte(c.old.text)); err != nil {
		return "", &hostError{err}
	}
	return op.Batch, nil
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// firstMissingFolder returns the topmost folder that must be created for a file, or "". From that
// folder on, undo removes empty folders.
func firstMissingFolder(p *tool.FileHandle) string {
	first := ""
	for folder := filepath.Dir(p.Rel); folder != "."; folder = filepath.Dir(folder) {
		if _, err := p.Lstat(folder); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		first = filepath.Join(p.Name(), folder)
	}

	return first
}

// risk rates how much content a change may destroy. It returns low, medium or high.
func (c pendingChange) risk(text string) string {
	switch {
	case c.old.info == nil || strings.HasPrefix(text, c.old.text):
		return "low" // no content is lost
	case c.notUndoable != "" || 2*len(text) < len(c.old.text): // more than half of the content is lost
		return "high"
	}
	return "medium"
}

// warnings returns a warning if the change cannot be undone.
func (c pendingChange) warnings() []string {
	if c.notUndoable == "" {
		return nil
	}
	return []string{"the change of " + c.shown + " cannot be undone: " + c.notUndoable}
}

// fileState is the state of a file at one moment. info is nil if the file did not exist.
type fileState struct {
	info fs.FileInfo
	text string
	sum  string // hash of the content, if text is not set
}

// unchanged reports whether the file is unchanged since then, according to stat.
func (b fileState) unchanged(p *tool.FileHandle) bool {
	now, err := p.Lstat(p.Rel)
	if b.info == nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return err == nil && os.SameFile(now, b.info) && now.Size() == b.info.Size() && now.ModTime().Equal(b.info.ModTime())
}

// readState opens a file and reads it with read. It returns the zero state if the file does not
// exist.
func readState(p *tool.FileHandle, read func(*os.File, fs.FileInfo) (fileState, error)) (fileState, error) {
	file, err := p.OpenChecked()
	if isNotFound(err) {
		return fileState{}, nil
	}
	if err != nil {
		return fileState{}, err
	}
	defer file.Close()

	info, err := file.Stat()
	if err != nil {
		return fileState{}, err
	}
	return read(file, info)
}

// isNotFound reports whether err is a refusal because the path does not exist.
func isNotFound(err error) bool {
	refusal, ok := errors.AsType[*tool.Refusal](err)
	return ok && refusal.Kind == tool.KindNotFound
}

// readCurrent reads the current text file. It returns a refusal if the file must not be replaced.
func readCurrent(p *tool.FileHandle, shown string) (fileState, error) {
	return readState(p, func(file *os.File, info fs.FileInfo) (fileState, error) {
		switch {
		case info.IsDir():
			return fileState{}, tool.RefusePath(tool.KindInvalidArgs, "%s is a folder", shown)
		case info.Mode().Perm()&0o200 == 0: // a rename would succeed, but the owner marked the file
			return fileState{}, tool.RefusePath(tool.KindRejected, "%s is marked read-only", shown)
		}
		text, err := decodeText(file, shown)
		return fileState{info: info, text: text}, err
	})
}

// readAny reads a text or binary file, or the state of a folder.
func readAny(p *tool.FileHandle, shown string) (fileState, error) {
	return readState(p, func(file *os.File, info fs.FileInfo) (fileState, error) {
		if info.IsDir() {
			return fileState{info: info}, nil
		}
		all, err := io.ReadAll(io.LimitReader(file, maxRaw+1))
		if err == nil && len(all) > maxRaw {
			err = tool.RefusePath(tool.KindRejected, "%s has more than the %d MiB that are kept of a file", shown, maxRaw>>20)
		}
		return fileState{info: info, text: string(all)}, err
	})
}

// hashAny hashes the current content, of any size, without storing it.
func hashAny(ctx context.Context, p *tool.FileHandle) (fileState, error) {
	return readState(p, func(file *os.File, info fs.FileInfo) (fileState, error) {
		if info.IsDir() {
			return fileState{info: info, sum: folderHash}, nil
		}
		sum, err := copyHashed(ctx, io.Discard, file)
		return fileState{info: info, sum: sum}, err
	})
}

// copyHashed copies the content and returns its hash. It stops if ctx ends.
func copyHashed(ctx context.Context, to io.Writer, from io.Reader) (string, error) {
	sum := sha256.New()
	_, err := io.Copy(io.MultiWriter(sum, to), readerFunc(func(b []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return from.Read(b)
	}))
	return hex.EncodeToString(sum.Sum(nil)), err
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// writeTemp writes the whole content to a temporary file, so that readers never see half of it. A
// mode of 0 means the default mode of a new file.
func writeTemp(p *tool.FileHandle, text string, mode fs.FileMode) (*atomicfile.File, error) {
	file, err := p.Create()
	if err != nil {
		return nil, err
	}

	if mode == 0 {
		mode = owner.ApplyUmask(0o644)
	}

	// Chmod is needed because the umask reduces the mode given at creation.
	if err = file.Chmod(mode); err == nil {
		_, err = file.WriteString(text)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, errors.Join(err, file.Abort())
	}

	return file, nil
}

// commit renames the temporary file to its final name. It fails if the file was changed meanwhile.
func commit(p *tool.FileHandle, shown string, file *atomicfile.File, old fileState) error {
	// Programs and people change files without taking the lock.
	if !old.unchanged(p) {
		return errors.Join(changedMeanwhile(shown), file.Abort())
	}

	return file.Commit()
}
