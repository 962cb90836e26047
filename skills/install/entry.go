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

	"rouse/skills"
)

// entry is a file or folder in a source.
type entry struct {
	name    string // slash-separated path in the source
	mode    fs.FileMode
	size    int64  // size in the source's metadata; -1 if unknown
	refused string // reason for refusal; "" if the entry is allowed
	open    func() (io.ReadCloser, error)
}

// entries iterates over the entries of a source. It stops after an error.
type entries = iter.Seq2[entry, error]

// fromFolder returns the entries of a folder, sorted by name. It omits a .git at the top level,
// because the owner may develop the skill in a repository.
func fromFolder(root *os.Root) entries {
	return func(yield func(entry, error) bool) {
		for f, err := range skills.Walk(root) {
			if f.Path == ".git" {
				continue
			}
			if !yield(entry{f.Path, f.Mode, f.Bytes, f.Refused, func() (io.ReadCloser, error) { return f.Open() }}, err) || err != nil {
				return
			}
		}
	}
}

// fromArchive returns the entries of a zip, tar or gzipped tar archive. It detects the format from
// the content.
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
		if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // cleanPath checks the names
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
		// Unlike zip, gzip does not record the unpacked size. Allow at least 1 MiB, because a small
		// archive can have a high compression ratio.
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
			if !yield(entry{f.Name, f.Mode(), int64(min(f.UncompressedSize64, maxTotal+1)), "", f.Open}, nil) {
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
				// There is no other format to try, so the source is not an archive.
				if first {
					err = errors.New("the source is neither a zip nor a tar archive")
				} else {
					err = fmt.Errorf("the archive is not whole: %w", err)
				}
				yield(entry{}, err)
				return
			// Git writes a global header with the commit.
			case h.Typeflag == tar.TypeXGlobalHeader:
				continue
			}

			mode := h.FileInfo().Mode()
			if h.Typeflag == tar.TypeLink {
				mode |= fs.ModeSymlink // hard links are refused too
			}
			if !yield(entry{h.Name, mode, h.Size, "", func() (io.ReadCloser, error) { return io.NopCloser(t), nil }}, nil) {
				return
			}
		}
	}
}
