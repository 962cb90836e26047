package install

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
)

// entry is one thing that a source holds.
type entry struct {
	name string // as the source has it, with slashes
	mode fs.FileMode
	size int64 // as it says; -1 when it does not
	open func() (io.ReadCloser, error)
}

// entries of a source. A second value that is not nil ends them.
type entries = iter.Seq2[entry, error]

// fromFolder gives what lies in a folder, which is read as it is now.
func fromFolder(root *os.Root) entries {
	return func(yield func(entry, error) bool) {
		err := fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case name == ".":
				return nil
			case e.IsDir() && (e.Name() == ".git" || e.Name() == "node_modules"):
				return fs.SkipDir
			}

			info, err := e.Info()
			if err != nil {
				return err
			}

			open := func() (io.ReadCloser, error) { return root.Open(filepath.FromSlash(name)) }
			if !yield(entry{name, info.Mode(), info.Size(), open}, nil) {
				return fs.SkipAll
			}

			return nil
		})
		if err != nil {
			yield(entry{}, err)
		}
	}
}

// fromArchive gives what an archive holds: zip, tar, or tar within gzip, told by its content.
func fromArchive(f *os.File) (entries, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(f, head); err != nil {
		return nil, fmt.Errorf("%s is too short to be an archive", f.Name())
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}

	switch {
	case bytes.HasPrefix(head, []byte("PK")):
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}

		z, err := zip.NewReader(f, info.Size())
		if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // the names are looked at below
			return nil, fmt.Errorf("%s is not a whole zip archive: %w", f.Name(), err)
		}
		return fromZip(z), nil
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		g, err := gzip.NewReader(bufio.NewReader(f))
		if err != nil {
			return nil, fmt.Errorf("%s is not a whole gzip archive: %w", f.Name(), err)
		}

		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		return fromTar(io.LimitReader(g, max(info.Size()*maxRatio, 1<<20))), nil
	}

	return fromTar(f), nil
}

func fromZip(z *zip.Reader) entries {
	return func(yield func(entry, error) bool) {
		for _, f := range z.File {
			if f.CompressedSize64 > 0 && f.UncompressedSize64/f.CompressedSize64 > maxRatio {
				yield(entry{}, entryError(f.Name, "it unpacks to more than %d times its size", maxRatio))
				return
			}
			if !yield(entry{f.Name, f.Mode(), int64(min(f.UncompressedSize64, maxTotal+1)), f.Open}, nil) {
				return
			}
		}
	}
}

func fromTar(r io.Reader) entries {
	return func(yield func(entry, error) bool) {
		t := tar.NewReader(r)
		for first := true; ; first = false {
			h, err := t.Next()
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil && !errors.Is(err, tar.ErrInsecurePath):
				if first {
					err = errors.New("the source is neither a zip nor a tar archive")
				} else {
					err = fmt.Errorf("the archive is not whole: %w", err)
				}
				yield(entry{}, err)
				return
			case h.Typeflag == tar.TypeXGlobalHeader: // git's, with the commit
				continue
			}

			mode := h.FileInfo().Mode()
			if h.Typeflag == tar.TypeLink {
				mode |= fs.ModeSymlink // a hard link is one too
			}
			if !yield(entry{h.Name, mode, h.Size, func() (io.ReadCloser, error) { return io.NopCloser(t), nil }}, nil) {
				return
			}
		}
	}
}
