// Package atomicfile writes files whole: whoever reads one sees the old content or the new,
// after a crash too, and never a part.
//
// # Design
//
// The content goes to a hidden file in the same folder, which no watch and no list of skills
// takes for anything. It is forced to the disk, gets its name by a rename, and the folder is
// forced to the disk too: only then is the name there after a power cut. A process that dies on
// the way leaves the old file, and the hidden one beside it.
//
// What has its name already is not written over by StreamNew, CommitNew and RenameNew, which look
// and take the name in one step where the file system can.
//
// Errors name the file that was to be written, for nobody knows the hidden one:
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

// Unfinished says whether a name is one that a file has until it is whole. What has one and does
// not change any more was left by a process that died.
func Unfinished(name string) bool {
	return strings.HasPrefix(name, prefix) && strings.HasSuffix(name, suffix)
}

// Write makes or replaces a file. Its mode is narrowed by the umask of the process, whatever that
// of the old one was.
func Write(path string, content []byte, mode fs.FileMode) error {
	return Stream(path, mode, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// Stream is Write for content that comes in parts. An error of write is returned as it is, and
// leaves the file as it was.
func Stream(path string, mode fs.FileMode, write func(io.Writer) error) error {
	return stream(path, mode, write, (*File).Commit)
}

// StreamNew is Stream for a name that is free; what has it, or gets it meanwhile, stays:
// fs.ErrExist.
func StreamNew(path string, mode fs.FileMode, write func(io.Writer) error) error {
	if _, err := os.Lstat(path); err == nil { // before much is written in vain
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

// File is a file on its way to its name: written, and then given it by Commit or CommitNew, or
// thrown away by Abort. One of these has to be called.
type File struct {
	root     *os.Root
	ownsRoot bool // the root was opened for this file
	file     *os.File
	temp     string // within the root
	name     string // within the root
	closed   bool
	done     bool
}

// Create begins a file. The folder has to be there.
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

// CreateIn begins a file in a root, out of which no link leads; name is relative to it. The root
// stays the caller's, and open until the file is done.
func CreateIn(root *os.Root, name string, mode fs.FileMode) (*File, error) {
	f := &File{root: root, name: name, temp: filepath.Join(filepath.Dir(name), prefix+rand.Text()+suffix)}

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

// Chmod gives the file a mode that no umask narrows.
func (f *File) Chmod(mode fs.FileMode) error { return f.pathError(f.file.Chmod(mode)) }

// Temp is the name that the file has until it is committed, relative to its root: what is to know
// the content before others see it reads it there, after Close.
func (f *File) Temp() string { return f.temp }

// Close ends the writing and forces the content to the disk. Commit does so by itself.
func (f *File) Close() error {
	if f.closed {
		return nil
	}
	f.closed = true

	return f.pathError(errors.Join(f.file.Sync(), f.file.Close()))
}

// Commit gives the file its name, in the place of what has that. When it fails, what was there
// stays, unless only the folder could not be forced to the disk.
func (f *File) Commit() error {
	return f.commit(func() error { return f.root.Rename(f.temp, f.name) })
}

// CommitNew is Commit where the name is free; what has it meanwhile stays: fs.ErrExist.
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
	err = f.pathError(SyncIn(f.root, filepath.Dir(f.name)))

	return errors.Join(err, f.closeRoot())
}

// Abort throws the file away; what has its name stays. After a commit it does nothing.
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

// pathError is an error about the file by the name that it is known by.
func (f *File) pathError(err error) error {
	if err == nil {
		return nil
	}

	return &fs.PathError{Op: op, Path: filepath.Join(f.root.Name(), f.name), Err: bareError(err)}
}

// bareError is an error without the names of files in it.
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
