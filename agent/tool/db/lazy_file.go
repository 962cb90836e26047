package db

import (
	"os"

	"rouse/agent/tool"
)

// lazyFile is a file whose errors are reported by its first Read. A call that a former attempt made never
// reads, so its stored result is returned even if the file was moved away meanwhile.
type lazyFile struct {
	roots *tool.Roots
	path  string
	file  *os.File
}

func (f *lazyFile) Read(p []byte) (int, error) {
	if err := f.open(); err != nil {
		return 0, err
	}

	// Systems differ in the error for reading a folder, so it is replaced by a clear one.
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

// size is that of the file, 0 when it is unknown. It is for Read to report what is wrong, if it comes to
// that.
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
