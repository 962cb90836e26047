package file

import (
	"io/fs"
	"os"
)

// nonBlocking is not needed: folders hold no pipes here.
const nonBlocking = 0

// readDir lists the entries of a folder in no order.
func readDir(dir *os.Root) ([]fs.DirEntry, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}
