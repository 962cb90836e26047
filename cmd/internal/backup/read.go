package backup

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"rouse/internal/nofollow"
	"rouse/internal/text"
)

const (
	// maxRatio is the maximum compression ratio of an archive larger than denseFrom. It is high
	// because databases with much free space compress well.
	maxRatio  = 1000
	denseFrom = 1 << 30 // bytes

	maxEntries = 20_000_000
	maxWindow  = 64 << 20 // maximum window of a zstd archive, in bytes
)

func tooDense(plain, packed int64) bool { return plain > denseFrom && plain/max(packed, 1) > maxRatio }

// Find returns the path of the backup src refers to. That is src itself, or the newest backup in
// the directory src. Unfinished backups are ignored.
func Find(src string) (path string, err error) {
	info, err := os.Stat(src)
	switch {
	case err != nil:
		return "", refuse("there is no backup %s: %v", src, err)
	case !info.IsDir():
		return src, nil
	}
	if _, err := os.Lstat(filepath.Join(src, manifestName)); err == nil {
		return src, nil
	}
	if _, err := os.Lstat(filepath.Join(src, "ledger.db")); err == nil {
		return "", refuse("%s is a home and no backup", src)
	}

	found, err := filepath.Glob(filepath.Join(src, namePrefix+"*", manifestName))
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", refuse("there is no backup in %s: it has no %s, and no folder of it has one. What begins with a dot was cut off", src, manifestName)
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}

// visitor processes a file of a backup. It must read r to the end. The entry's name and size are
// already validated.
type visitor func(e Entry, r io.Reader) error

// discard is a visitor that reads a file and drops its contents.
func discard(_ Entry, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// check reads a directory backup and compares it with its manifest. It passes each file to visit.
func check(ctx context.Context, dir string, visit visitor) (Manifest, error) {
	within := nofollow.NewBoundary(dir)
	f, err := within.Open(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return Manifest{}, errors.New("it has no " + manifestName + ", so it was cut off, or is no backup")
	}
	if err != nil {
		return Manifest{}, err
	}
	m, err := readManifest(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return m, err
	}

	for _, e := range m.Entries {
		if ctx.Err() != nil {
			return m, context.Cause(ctx)
		}
		if e.Folder {
			continue
		}
		if err := checkFile(within, dir, e, visit); err != nil {
			return m, err
		}
	}
	return m, nil
}

func checkFile(within nofollow.UntrustedDirs, dir string, e Entry, visit visitor) error {
	f, err := within.Open(filepath.Join(dir, filepath.FromSlash(e.Path)))
	if err != nil {
		return fmt.Errorf("%s of it cannot be read: %w", e.Path, err)
	}
	defer f.Close()

	read, err := readSummed(e, io.LimitReader(f, e.Bytes+1), visit)
	if err != nil {
		return err
	}
	return read.compare(e)
}

// summed holds the size and SHA-256 of data that was read.
type summed struct {
	bytes int64
	sum   string
}

func readSummed(e Entry, r io.Reader, visit visitor) (summed, error) {
	sum := sha256.New()
	n := &counter{r: io.TeeReader(r, sum)}
	err := visit(e, n)
	return summed{n.n, hex.EncodeToString(sum.Sum(nil))}, err
}

func (s summed) compare(e Entry) error {
	if s.bytes != e.Bytes || s.sum != e.SHA256 {
		return fmt.Errorf("%s of it is damaged: it is not what was backed up", e.Path)
	}
	return nil
}

// counter is a reader that counts the bytes read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// readArchive reads an archive and passes each file to visit. The archive is untrusted: every entry
// must be a file or directory with a valid, unique name. An entry that is missing from the manifest
// or follows it is an error.
//
// announce is called with the size of each file before the file is read, and can reject it.
// Optional.
func readArchive(ctx context.Context, path string, zst bool, announce func(bytes int64) error, visit visitor) (m Manifest, err error) {
	f, err := os.Open(path)
	if err != nil {
		return m, refuse("%v", err)
	}
	defer f.Close()

	packed := &counter{r: f}
	plain, err := unpacked(packed, zst)
	if err != nil {
		return m, fmt.Errorf("it is no archive of its kind: %w", err)
	}
	unpackedBytes := &counter{r: plain}
	t := tar.NewReader(unpackedBytes)

	found := map[string]summed{}
	for {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return m, errors.New("it has no " + manifestName + ", so it was cut off, or is no backup")
		case err != nil && !errors.Is(err, tar.ErrInsecurePath):
			return m, fmt.Errorf("the archive is not whole: %w", err)
		case ctx.Err() != nil:
			return m, context.Cause(ctx)
		}
		if h.Name == manifestName && h.Typeflag == tar.TypeReg {
			if m, err = readManifest(t); err != nil {
				return m, err
			}
			if _, err := t.Next(); !errors.Is(err, io.EOF) {
				return m, errors.New("something follows its " + manifestName)
			}
			return m, compareAll(m, found)
		}

		if err := admit(h, found); err != nil {
			return m, err
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if announce != nil {
			if err := announce(h.Size); err != nil {
				return m, err
			}
		}
		guarded := &dense{r: t, plain: unpackedBytes, packed: packed}
		read, err := readSummed(Entry{Path: h.Name, Bytes: h.Size}, guarded, visit)
		if err != nil {
			return m, fmt.Errorf("%q of it cannot be read: %w", text.Truncate(h.Name, 200), err)
		}
		found[h.Name] = read
	}
}

// dense is a reader that fails if the archive's compression ratio exceeds the limit.
type dense struct {
	r             io.Reader
	plain, packed *counter
}

func (d *dense) Read(p []byte) (int, error) {
	if tooDense(d.plain.n, d.packed.n) {
		return 0, errors.New("it unpacks to more than any backup does")
	}
	return d.r.Read(p)
}

// admit returns an error for archive entries that cannot be part of a backup, such as links.
func admit(h *tar.Header, found map[string]summed) error {
	said := text.Truncate(h.Name, 200)
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir:
	case tar.TypeSymlink, tar.TypeLink:
		return fmt.Errorf("%q of it is a link, which no backup holds", said)
	default:
		return fmt.Errorf("%q of it is neither a file nor a folder", said)
	}
	if err := checkPath(strings.TrimSuffix(h.Name, "/")); err != nil {
		return err
	}
	if _, twice := found[h.Name]; twice {
		return fmt.Errorf("%q stands twice in it", said)
	}
	if len(found) >= maxEntries {
		return fmt.Errorf("it holds more than %d files", maxEntries)
	}
	return nil
}

// compareAll compares the files that were read with the manifest.
func compareAll(m Manifest, found map[string]summed) error {
	for _, e := range m.Entries {
		if e.Folder {
			continue
		}
		read, ok := found[e.Path]
		if !ok {
			return fmt.Errorf("%s of it is missing", e.Path)
		}
		if err := read.compare(e); err != nil {
			return err
		}
		delete(found, e.Path)
	}
	for name := range found {
		return fmt.Errorf("%q is in it, and not in its %s", text.Truncate(name, 200), manifestName)
	}
	return nil
}

func unpacked(r io.Reader, zst bool) (io.Reader, error) {
	if !zst {
		return gzip.NewReader(r)
	}
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}
