package db

import (
	"os"

	"rouse/agent/tool"
)

// lateFile is a file that is opened by its first read. A call that was made already never
// reads, so its replay works although the file was moved away meanwhile.
type lateFile struct {
	roots *tool.Roots
	path  string
	file  *os.File
}

func (f *lateFile) Read(p []byte) (int, error) {
	if f.file == nil {
		file, err := f.roots.Open(f.path)
		if err != nil {
			return 0, err
		}
		f.file = file
	}
	n, err := f.file.Read(p)
	if err != nil && n == 0 && isFolder(f.file) {
		return 0, &tool.PathError{Kind: tool.KindInvalidArgs, Message: f.path + " is a folder; name a file in it"}
	}
	return n, err
}

func (f *lateFile) close() {
	if f.file != nil {
		f.file.Close()
	}
}

func isFolder(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.IsDir()
}
