// Package atomicfile writes files whole: whoever reads one sees the old content or the new,
// after a crash too, and never a part.
//
// # Design
//
// The content goes to a hidden file in the same folder, which watches and lists of skills ignore.
// The file is synced and renamed, and the folder is synced too: only then does the name survive a
// power cut. A process that dies on the way leaves the old file, and the hidden one beside it.
//
// StreamNew, CommitNew and RenameNew never replace a file. They check and take the name in one step
// where the file system can do that.
//
// Errors name the file that was to be written, because nobody knows the hidden one:
// "cannot write out.csv: no space left on device".
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

// op begins the text of each *fs.PathError.
const op = "cannot write"

// Unfinished reports whether a name is one of a file that is being written, or was by a dead process.
func Unfinished(name string) bool {
	return strings.HasPrefix(name, prefix) && strings.HasSuffix(name, suffix)
}

// TempName is a new name beside that of a file, for the time until it is whole; Unfinished knows it.
func TempName(name string) string {
	return filepath.Join(filepath.Dir(name), prefix+rand.Text()+suffix)
}

// Write makes or replaces a file. The umask narrows its mode.
func Write(path string, content []byte, mode fs.FileMode) error {
	return stream(path, mode, writing(content), (*File).Commit)
}

// writing returns a function that writes the content.
func writing(content []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}
}

// WriteUnsynced is Write for what is of no use after a power cut, so that the disk is not waited for: such a cut may leave an empty file.
func WriteUnsynced(path string, content []byte, mode fs.FileMode) error {
	return stream(path, mode, writing(content), func(f *File) error {
		f.unsynced = true
		return f.Commit()
	})
}

// Stream is Write for content that comes in parts. An error of write is returned unchanged.
func Stream(path string, mode fs.FileMode, write func(io.Writer) error) error {
	return stream(path, mode, write, (*File).Commit)
}

// StreamNew is Stream for a free name. It returns fs.ErrExist if a file has the name, then or later.
func StreamNew(path string, mode fs.FileMode, write func(io.Writer) error) error {
	// CommitNew decides; this saves writing much in vain.
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
	temp     string // within the root
	name     string // within the root
	unsynced bool   // what was written need not survive a power cut
	closed   bool
	done     bool
}

// Create starts a file. The folder has to exist.
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

// CreateIn starts a file in a root. The caller closes the root after Commit or Abort.
func CreateIn(root *os.Root, name string, mode fs.FileMode) (*File, error) {
	f := &File{root: root, name: name, temp: TempName(name)}

	var err error
	if f.file, err = root.OpenFile(f.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode); err != nil {
		return nil, f.pathError(err)
	}

	return f, nil
}

// Write adds to the content.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.file.Write(p)
	return n, f.pathError(err)
}

// WriteString adds to the content.
func (f *File) WriteString(s string) (int, error) {
	n, err := f.file.WriteString(s)
	return n, f.pathError(err)
}

// Chmod sets the mode of the file, whatever the umask.
func (f *File) Chmod(mode fs.FileMode) error { return f.pathError(f.file.Chmod(mode)) }

// TempName returns the name in the root until Commit. After Close the content can be read there.
func (f *File) TempName() string { return f.temp }

// Close ends the writing and syncs the content to the disk. Commit calls it.
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

// Commit renames the file to its name. After an error the old file stays, unless only a sync failed.
func (f *File) Commit() error {
	return f.commit(func() error { return f.root.Rename(f.temp, f.name) })
}

// CommitNew is Commit for a name that is free. A file that has it by now stays: fs.ErrExist.
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
	if !f.unsynced { // the rename is not durable before its folder is
		err = f.pathError(SyncFolderIn(f.root, filepath.Dir(f.name)))
	}

	return errors.Join(err, f.closeRoot())
}

// Abort deletes the file; what has its name stays. After a commit it does nothing.
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

// pathError names the file in an error as the caller knows it.
func (f *File) pathError(err error) error {
	if err == nil {
		return nil
	}

	return &fs.PathError{Op: op, Path: filepath.Join(f.root.Name(), f.name), Err: bareError(err)}
}

// bareError is an error without the names of files that os put into it.
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
