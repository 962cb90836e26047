package db

import (
	"os"

	"rouse/agent/tool"
)

// lazyFile is a file that is opened by its first Read, which also reports errors of opening. A
// repeated call returns its stored result without reading, even if the file no longer exists.
type lazyFile struct {
	roots *tool.Roots
	path  string
	file  *os.File
}

func (f *lazyFile) Read(p []byte) (int, error) {
	if err := f.open(); err != nil {
		return 0, err
	}

	// Operating systems return different errors for reading a folder, so replace them.
	n, err := f.file.Read(p)
	if err != nil && n == 0 && isFolder(f.file) {
		return 0, tool.RefusePath(tool.KindInvalidArgs, "%s is a folder; name a file in it", f.path)
	}
	return n, err
}

func (f *lazyFile) open() (err error) {
	if f.file == nil {
		f.file, err = f.roots.Open(f.path)
	}
	return err
}

// size returns the size of the file, or 0 if it is unknown. Read reports the error, if there is
// one.
func (f *lazyFile) size() int64 {
	if f.open() != nil {
		return 0
	}

	info, err := f.file.Stat()
	if err != nil || info.IsDir() {
		return 0
	}
	return info.Size()
}

func (f *lazyFile) close() {
	if f.file != nil {
		f.file.Close()
	}
}

func isFolder(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.IsDir()
}
