// Package folderzip stores a folder as a reproducible ZIP archive: the same files always produce
// the same bytes.
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

// MaxFiles is the maximum number of files that Files lists, and that an archive should contain.
const MaxFiles = 2_000

// epoch is the timestamp of every file, so that archives are reproducible. It is the earliest time
// that the format supports.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// Writer creates an archive. The caller adds the files in the order of the listing.
type Writer struct {
	out bytes.Buffer
	zip *zip.Writer
}

// NewWriter starts an archive.
func NewWriter() *Writer {
	w := &Writer{}
	w.zip = zip.NewWriter(&w.out)
	return w
}

// Add adds a file. name is its path within the folder, with slashes.
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

// Bytes finishes the archive and returns it.
func (w *Writer) Bytes() ([]byte, error) {
	if err := w.zip.Close(); err != nil {
		return nil, err
	}
	return w.out.Bytes(), nil
}

// File is an entry of an archive.
type File struct {
	// Path is the path within the archive, with slashes. It is untrusted, because anyone may have
	// made the archive.
	Path string `json:"path"`
	Size int64  `json:"size"` // size in bytes, as declared by the archive
}

// Files lists up to MaxFiles files of an archive, without unpacking it. more is the number of
// further files. Files returns an error if content is not an archive.
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

// Tree prints files as a tree of folders, each with its size, in the given order. name and size
// format the values of an untrusted archive.
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
