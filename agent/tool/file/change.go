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
	"rouse/agentdb/ledger"
	"rouse/internal/atomicfile"
	"rouse/internal/domain"
	"rouse/internal/owner"
)

// maxUndoBytes bounds what is stored of a run's changed files. Changes beyond it cannot be undone, and
// their answers say so.
const maxUndoBytes = 256 << 20

// binaryExtensions are of formats that are not text: a text under such a name would be a broken file.
var binaryExtensions = map[string]bool{".xlsx": true, ".xls": true, ".xlsm": true, ".ods": true, ".pdf": true, ".pptx": true, ".ppt": true, ".odp": true,
	".docx": true, ".doc": true, ".odt": true, ".zip": true, ".gz": true, ".png": true, ".jpg": true, ".jpeg": true, ".gif": true, ".db": true, ".sqlite": true}

// pendingChange is a file that is about to be replaced as a whole.
type pendingChange struct {
	place       *tool.FileHandle
	shown       string // its path as the caller wrote it
	old         fileState
	notUndoable string // why it cannot be undone; "" when it can
	release     func() // ends its turn, in which nobody else changes the file
}

func (c pendingChange) close() {
	c.place.Close()
	c.release()
}

// prepare waits for the turn to change a file, opens it, and reads what it holds. Close the change.
func (f *files) prepare(ctx context.Context, in tool.Invocation, path string) (pendingChange, error) {
	if ext := strings.ToLower(filepath.Ext(path)); binaryExtensions[ext] {
		return pendingChange{}, &tool.PathError{Kind: tool.KindRejected, Message: fmt.Sprintf("a %s file is not text; write .txt, .md or .csv instead", ext)}
	}

	place, err := f.roots.Resolve(path, true)
	if err != nil {
		return pendingChange{}, err
	}

	release, err := f.locks.Acquire(ctx, f.roots.Canonical(path))
	if err != nil {
		return pendingChange{}, errors.Join(err, place.Close())
	}

	c := pendingChange{place: place, shown: path, release: release}
	if c.old, err = readCurrent(place, path); err != nil {
		c.close()
		return c, err
	}

	// Said before the change, so that a dry run shows it, too.
	kept, err := f.log.SavedFileBytes(ctx, in.Run)
	if err != nil {
		c.close()
		return c, &hostError{err}
	}

	if c.old.info != nil && kept+int64(len(c.old.text)) > maxUndoBytes {
		c.notUndoable = fmt.Sprintf("this run has changed files of more than %d MiB, and no more is kept of them", maxUndoBytes>>20)
	}

	return c, nil
}

// hostError is a fault of the host, not of the call: it ends the run.
type hostError struct{ error }

func (e *hostError) Unwrap() error { return e.error }

// notAnnounced returns the error of a change that could not be recorded in advance. If the folder of the file is at fault, only
// the call fails.
func notAnnounced(p *tool.FileHandle, err error) error {
	if domain.IsFileFault(err) {
		return p.Explain(err)
	}
	return &hostError{err}
}

// failureOf turns the error of a change that was not made into an envelope, or a host's error.
func failureOf(path string, err error) (tool.Envelope, error) {
	var host *hostError
	if errors.As(err, &host) {
		return tool.Envelope{}, host.error
	}
	return pathFailure(path, err), nil
}

// apply replaces or creates the file. It returns the id of the change: the key of its call, which is the
// same when the run is resumed.
func (f *files) apply(ctx context.Context, in tool.Invocation, c pendingChange, kind ledger.FileOpType, text string) (string, error) {
	p := c.place
	op := ledger.FileOp{Agent: in.Agent, Batch: in.Key, Type: kind, Root: p.Name(), Path: filepath.Join(p.Name(), p.Rel), CreatedFolder: firstMissingFolder(p), AfterHash: hashOf(text), NoUndoReason: c.notUndoable}
	if c.old.info != nil {
		op.Mode, op.Size, op.BeforeHash = uint32(c.old.info.Mode().Perm()), int64(len(c.old.text)), hashOf(c.old.text)
	}

	var mode fs.FileMode
	if c.old.info != nil {
		mode = c.old.info.Mode().Perm()
	}

	if c.holds(text) {
		return f.confirm(ctx, in, c, op)
	}

	// The order is what makes a crash harmless: first the temporary file, which nobody sees; then the
	// announcement to the watches; then the record with the old content; last the rename. After a
	// crash the record may be of a change that never came about, which undo recognizes.
	file, err := writeTemp(p, text, mode)
	if err != nil {
		return "", p.Explain(err)
	}

	err = p.Announce(ctx, file.TempName())
	if err == nil {
		op, err = f.log.AddFileOp(ctx, ledger.Attempt{Run: in.Run, Number: in.Attempt}, op, []byte(c.old.text))
	}
	if err != nil {
		return "", errors.Join(notAnnounced(p, err), file.Abort())
	}

	// The record is dropped even if the run was cancelled meanwhile: there was no change.
	if err := commit(p, c.shown, file, c.old); err != nil {
		if dropped := f.log.DeleteFileOp(context.WithoutCancel(ctx), op.ID); dropped != nil {
			return "", errors.Join(err, &hostError{dropped})
		}
		return "", p.Explain(err)
	}

	return op.Batch, nil
}

// holds says whether a file holds a text already.
func (c pendingChange) holds(text string) bool { return c.old.info != nil && c.old.text == text }

// confirm records that a run wrote what the file holds already. The file stays as it is, with its time, so
// that no watch takes it for changed.
func (f *files) confirm(ctx context.Context, in tool.Invocation, c pendingChange, op ledger.FileOp) (string, error) {
	if err := c.place.CheckWrite(); err != nil {
		return "", c.place.Explain(err)
	}
	if !c.old.unchanged(c.place) {
		return "", changedMeanwhile(c.shown)
	}
	if _, err := f.log.AddFileOp(ctx, ledger.Attempt{Run: in.Run, Number: in.Attempt}, op, []byte(c.old.text)); err != nil {
		return "", &hostError{err}
	}
	return op.Batch, nil
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// firstMissingFolder is the topmost of the folders that have to be made for a file, "" for none. Undo
// removes what is empty from there on.
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

// risk rates what a change may destroy: low, medium or high.
func (c pendingChange) risk(text string) string {
	switch {
	case c.old.info == nil || strings.HasPrefix(text, c.old.text):
		return "low" // nothing is lost
	case c.notUndoable != "" || 2*len(text) < len(c.old.text): // more than half of it is gone
		return "high"
	}
	return "medium"
}

// warnings says what cannot be undone.
func (c pendingChange) warnings() []string {
	if c.notUndoable == "" {
		return nil
	}
	return []string{"the change of " + c.shown + " cannot be undone: " + c.notUndoable}
}

// fileState is what a file was at a moment; info is nil when there was none.
type fileState struct {
	info fs.FileInfo
	text string
	sum  string // hash of the content, if the text is not kept
}

// unchanged reports whether nobody changed the file meanwhile. It compares what stat
// tells, and does not read the file again.
func (b fileState) unchanged(p *tool.FileHandle) bool {
	now, err := p.Lstat(p.Rel)
	if b.info == nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return err == nil && os.SameFile(now, b.info) && now.Size() == b.info.Size() && now.ModTime().Equal(b.info.ModTime())
}

// readState opens what is there now and reads it. If nothing is there, it returns the zero state.
func readState(p *tool.FileHandle, read func(*os.File, fs.FileInfo) (fileState, error)) (fileState, error) {
	file, err := p.OpenChecked()
	var bad *tool.PathError
	if errors.As(err, &bad) && bad.Kind == tool.KindNotFound {
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

// readCurrent reads the text file that is there now, and refuses what may not be replaced.
func readCurrent(p *tool.FileHandle, shown string) (fileState, error) {
	return readState(p, func(file *os.File, info fs.FileInfo) (fileState, error) {
		switch {
		case info.IsDir():
			return fileState{}, &tool.PathError{Kind: tool.KindInvalidArgs, Message: shown + " is a folder"}
		// The rename would succeed, for it needs only the folder: the mark is its owner's wish.
		case info.Mode().Perm()&0o200 == 0:
			return fileState{}, &tool.PathError{Kind: tool.KindRejected, Message: shown + " is marked read-only"}
		}
		text, err := decodeText(file, shown)
		return fileState{info: info, text: text}, err
	})
}

// readAny reads what is there now, text or not: a file with its bytes, or a folder.
func readAny(p *tool.FileHandle, shown string) (fileState, error) {
	return readState(p, func(file *os.File, info fs.FileInfo) (fileState, error) {
		if info.IsDir() {
			return fileState{info: info}, nil
		}
		all, err := io.ReadAll(io.LimitReader(file, maxRaw+1))
		if err == nil && len(all) > maxRaw {
			err = &tool.PathError{Kind: tool.KindRejected, Message: fmt.Sprintf("%s has more than the %d MiB that are kept of a file", shown, maxRaw>>20)}
		}
		return fileState{info: info, text: string(all)}, err
	})
}

// hashAny hashes the current content, of any size, without keeping it.
func hashAny(ctx context.Context, p *tool.FileHandle) (fileState, error) {
	return readState(p, func(file *os.File, info fs.FileInfo) (fileState, error) {
		if info.IsDir() {
			return fileState{info: info, sum: folderHash}, nil
		}
		sum, err := copyHashed(ctx, io.Discard, file)
		return fileState{info: info, sum: sum}, err
	})
}

// copyHashed copies the content and returns its hash. It stops when ctx ends.
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

// writeTemp writes the whole content to a temporary file, so that no reader sees half of it. Without a
// mode it gets that of a new file.
func writeTemp(p *tool.FileHandle, text string, mode fs.FileMode) (*atomicfile.File, error) {
	file, err := p.Create()
	if err != nil {
		return nil, err
	}

	if mode == 0 {
		mode = owner.Usual(0o644)
	}

	// Chmod, for the mode given at creation is cut by the umask.
	if err = file.Chmod(mode); err == nil {
		_, err = file.WriteString(text)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, errors.Join(err, file.Abort())
	}

	return file, nil
}

// commit renames the temporary file to its name, unless the file was changed meanwhile.
func commit(p *tool.FileHandle, shown string, file *atomicfile.File, old fileState) error {
	// What a program or a person wrote meanwhile, who know no locks, is not lost. The caller may read the
	// file again and retry.
	if !old.unchanged(p) {
		return errors.Join(changedMeanwhile(shown), file.Abort())
	}

	return file.Commit()
}
