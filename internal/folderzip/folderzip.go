// Package folderzip keeps a folder as one file: a ZIP archive that is the same for the same files, whenever it is made.
package folderzip

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// MaxFiles is how many files of an archive are listed, and the most that are worth keeping in one.
const MaxFiles = 2_000

// epoch is the time of every file: the earliest that the format knows, so that the same files make the same archive.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// Writer makes an archive. The caller adds files in the order in which they are to be listed.
type Writer struct {
	out bytes.Buffer
	zip *zip.Writer
}

// NewWriter begins an archive.
func NewWriter() *Writer {
	w := &Writer{}
	w.zip = zip.NewWriter(&w.out)
	return w
}

// Add adds a file by its path within the folder, with slashes.
func (w *Writer) Add(name string, content []byte) error {
	h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: epoch}
	h.SetMode(0o644)
	into, err := w.zip.CreateHeader(h)
	if err != nil {
		return err
	}
	_, err = into.Write(content)
	return err
}

// Bytes ends the archive, and is what it holds.
func (w *Writer) Bytes() ([]byte, error) {
	if err := w.zip.Close(); err != nil {
		return nil, err
	}
	return w.out.Bytes(), nil
}

// File is one file of an archive.
type File struct {
	Path string `json:"path"` // within it, with slashes, as the archive says: it may have been made by anybody
	Size int64  `json:"size"` // bytes, as the archive says
}

// Files lists an archive, up to MaxFiles, without unpacking anything; more is how many it has beyond. What is no archive gives
// an error.
func Files(content []byte) (files []File, more int, err error) {
	r, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, 0, err
	}

	for _, f := range r.File {
		switch {
		case strings.HasSuffix(f.Name, "/"):
		case len(files) == MaxFiles:
			more++
		default:
			files = append(files, File{f.Name, int64(min(f.UncompressedSize64, 1<<62))})
		}
	}
	return files, more, nil
}

// Tree shows files by their folders, each line with its size, in the order in which they come. name and size word what
// an archive of strangers says.
func Tree(to io.Writer, files []File, more int, name func(string) string, size func(int64) string) error {
	var at []string
	for _, f := range files {
		folders := strings.Split(path.Dir(f.Path), "/")
		if path.Dir(f.Path) == "." {
			folders = nil
		}

		common := 0
		for common < min(len(at), len(folders)) && at[common] == folders[common] {
			common++
		}
		for i := common; i < len(folders); i++ {
			if _, err := fmt.Fprintf(to, "%s%s/\n", strings.Repeat("  ", i), name(folders[i])); err != nil {
				return err
			}
		}
		at = folders

		if _, err := fmt.Fprintf(to, "%s%s  %s\n", strings.Repeat("  ", len(folders)), name(path.Base(f.Path)), size(f.Size)); err != nil {
			return err
		}
	}

	if more > 0 {
		_, err := fmt.Fprintf(to, "… and more files: %d\n", more)
		return err
	}
	return nil
}
