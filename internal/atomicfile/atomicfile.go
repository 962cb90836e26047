// Package atomicfile writes files atomically: a reader sees the old or the new content, never a
// part, even after a crash.
//
// The content is written to a hidden file in the same folder, synced and renamed. The folder is
// synced too, because only then does the new name survive a power cut. A process that dies during a
// write leaves the old file and the hidden file. StreamNew, CommitNew and RenameNew never replace a
// file. Errors name the target file instead of the hidden one.
package atomicfile

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	prefix = ".rouse-"
	suffix = ".tmp"
)

// op is the operation in each *fs.PathError.
const op = "cannot write"

// Unfinished reports whether a name belongs to a file that is being written, or was left by a dead
// process.
func Unfinished(name string) bool {
	return strings.HasPrefix(name, prefix) && strings.HasSuffix(name, suffix)
}

// TempName returns a new name for an unfinished file in the same folder. Unfinished recognizes it.
func TempName(name string) string {
	return filepath.Join(filepath.Dir(name), prefix+rand.Text()+suffix)
}

// Write creates or replaces a file. The umask applies to mode.
func Write(path string, content []byte, mode fs.FileMode) error {
	return stream(path, mode, writing(content), (*File).Commit)
}

// writing returns a function that writes content.
func writing(content []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}
}

// WriteUnsynced is like Write, but does not wait for the disk. After a power cut, the file may be
// empty.
func WriteUnsynced(path string, content []byte, mode fs.FileMode) error {
	return stream(path, mode, writing(content), func(f *File) error {
		f.unsynced = true
		return f.Commit()
	})
}

// Stream is like Write, for content that comes in parts. It returns an error of write unchanged.
func Stream(path string, mode fs.FileMode, write func(io.Writer) error) error {
	return stream(path, mode, write, (*File).Commit)
}

// StreamNew is like Stream, but does not replace a file. It returns fs.ErrExist if the name is
// taken before or during the write.
func StreamNew(path string, mode fs.FileMode, write func(io.Writer) error) error {
	// CommitNew makes the final check. This one avoids useless writes.
	if _, err := os.Lstat(path); err == nil {
		return &fs.PathError{Op: op, Path: path, Err: fs.ErrExist}
	}
	return stream(path, mode, write, (*File).CommitNew)
}

func stream(path string, mode fs.FileMode, write func(io.Writer) error, commit func(*File) error) error {
	f, err := Create(path, mode)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		return errors.Join(err, f.Abort())
	}

	return commit(f)
}

// File is a file that is being written. The caller must call Commit, CommitNew or Abort.
type File struct {
	root     *os.Root
	ownsRoot bool // the root was opened for this file
	file     *os.File
	temp     string // relative to root
	name     string // relative to root
	unsynced bool   // the content need not survive a power cut
	closed   bool
	done     bool
}

// Create starts writing a file. The folder must exist.
func Create(path string, mode fs.FileMode) (*File, error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: path, Err: bareError(err)}
	}

	f, err := CreateIn(root, filepath.Base(path), mode)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}

	f.ownsRoot = true

	return f, nil
}

// CreateIn starts writing a file in a root. The caller must close the root after Commit or Abort.
func CreateIn(root *os.Root, name string, mode fs.FileMode) (*File, error) {
	f := &File{root: root, name: name, temp: TempName(name)}

	var err error
	if f.file, err = root.OpenFile(f.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode); err != nil {
		return nil, f.pathError(err)
	}

	return f, nil
}

// Write implements io.Writer.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.file.Write(p)
	return n, f.pathError(err)
}

// WriteString implements io.StringWriter.
func (f *File) WriteString(s string) (int, error) {
	n, err := f.file.WriteString(s)
	return n, f.pathError(err)
}

// Chmod sets the mode of the file. The umask does not apply.
func (f *File) Chmod(mode fs.FileMode) error { return f.pathError(f.file.Chmod(mode)) }

// TempName returns the name of the unfinished file in the root. After Close, its content can be
// read.
func (f *File) TempName() string { return f.temp }

// Close finishes the content and syncs it to the disk. Commit calls it.
func (f *File) Close() error {
	if f.closed {
		return nil
	}
	f.closed = true

	var err error
	if !f.unsynced {
		err = f.file.Sync()
	}
	return f.pathError(errors.Join(err, f.file.Close()))
}

// Commit renames the file to its final name. After an error, the old file is unchanged, unless only
// the sync of the folder failed.
func (f *File) Commit() error {
	return f.commit(func() error { return f.root.Rename(f.temp, f.name) })
}

// CommitNew is like Commit, but returns fs.ErrExist if the name is taken.
func (f *File) CommitNew() error {
	return f.commit(func() error { return renameNew(f.root, f.temp, f.name) })
}

func (f *File) commit(rename func() error) error {
	err := f.Close()
	if err == nil {
		err = f.pathError(rename())
	}
	if err != nil {
		return errors.Join(err, f.Abort())
	}

	f.done = true
	if !f.unsynced { // the rename is durable only after the folder is synced
		err = f.pathError(SyncFolderIn(f.root, filepath.Dir(f.name)))
	}

	return errors.Join(err, f.closeRoot())
}

// Abort deletes the unfinished file. After Commit or CommitNew, it does nothing.
func (f *File) Abort() error {
	if f.done {
		return nil
	}

	f.done = true

	var err error
	if !f.closed {
		f.closed = true
		err = f.file.Close()
	}

	return errors.Join(f.pathError(err), f.pathError(f.root.Remove(f.temp)), f.closeRoot())
}

func (f *File) closeRoot() error {
	if !f.ownsRoot {
		return nil
	}

	return f.root.Close()
}

// pathError returns err with the path that the caller knows.
func (f *File) pathError(err error) error {
	if err == nil {
		return nil
	}

	return &fs.PathError{Op: op, Path: filepath.Join(f.root.Name(), f.name), Err: bareError(err)}
}

// bareError returns the cause of an error without the file names that package os adds.
func bareError(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}

	var link *os.LinkError
	if errors.As(err, &link) {
		return link.Err
	}

	return err
}
