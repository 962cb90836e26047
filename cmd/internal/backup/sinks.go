package backup

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/klauspost/compress/zstd"

	"rouse/internal/atomicfile"
	"rouse/internal/owner"
	"rouse/internal/storage/sqlite"
)

const (
	namePrefix    = "rouse-"
	partialSuffix = ".partial"
	lockName      = ".rouse-backup.lock"
)

// Archive reports whether the file name is that of an archive.
func Archive(path string) bool {
	return strings.HasSuffix(path, ".tar.gz") || strings.HasSuffix(path, ".tgz") || strings.HasSuffix(path, ".tar.zst")
}

// openSink prepares dest for a backup of the given size. It removes the remains of interrupted
// backups there.
func openSink(dest string, at time.Time, bytes int64) (_ sink, err error) {
	folder, archive := dest, Archive(dest)
	if archive {
		folder = filepath.Dir(dest)
		if info, err := os.Lstat(dest); err == nil {
			return nil, refuse("%s exists already and was left as it is (%s); name another file", dest, info.ModTime().Local().Format(time.DateTime+" MST"))
		}
	}

	info, err := os.Stat(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !archive:
		if err := os.Mkdir(folder, 0o700); err != nil {
			return nil, refuse("the folder %s cannot be made: %v", folder, err)
		}
	case err != nil:
		return nil, refuse("there is no folder %s for the backup: %v", folder, err)
	case !info.IsDir():
		return nil, refuse("%s is a file; name a folder for backups, or a new file that ends in .tar.zst or .tar.gz", folder)
	}
	if why := owner.WritableByOthers(folder); why != "" {
		return nil, refuse("%s %s, so that somebody else could change a backup there, which a restore would believe; name a folder that is yours alone", folder, why)
	}

	// Use hidden names derived from the archive's name and remove them afterwards: the directory
	// may hold other files.
	path, partial := filepath.Join(folder, lockName), "."+namePrefix+"*Z"+partialSuffix
	if archive {
		path, partial = archiveTemp(dest, ".lock"), filepath.Base(archiveTemp(dest, ""))+"*"+partialSuffix
	}
	lock := placeLock{flock.New(path, flock.SetPermissions(0o600)), archive}
	switch locked, err := lock.TryLock(); {
	case err != nil:
		return nil, refuse("%s cannot be written: %v", folder, err)
	case !locked:
		return nil, refuse("another backup is being written to %s; wait for its end", folder)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.release())
		}
	}()

	if err := removePartial(folder, partial); err != nil {
		return nil, err
	}
	needs := bytes + bytes/50 + 1<<20
	if err := room(folder, needs); err != nil {
		return nil, err
	}
	if archive {
		return newArchiveSink(dest, lock)
	}
	return newFolderSink(folder, at, lock)
}

// placeLock prevents two backups to the same place at the same time.
type placeLock struct {
	*flock.Flock
	remove bool
}

func (l placeLock) release() (err error) {
	if l.remove {
		if err = os.Remove(l.Path()); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return errors.Join(err, l.Unlock())
}

// removePartial removes the remains of interrupted backups. The caller must hold the lock of the
// directory.
func removePartial(folder, pattern string) error {
	left, err := filepath.Glob(filepath.Join(folder, pattern))
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// folderSink writes a backup as a directory.
type folderSink struct {
	lock       placeLock
	temp, name string
	root       *os.Root
}

func newFolderSink(folder string, at time.Time, lock placeLock) (sink, error) {
	s := &folderSink{lock: lock, name: filepath.Join(folder, namePrefix+stamp(at)), temp: filepath.Join(folder, "."+namePrefix+stamp(at)+partialSuffix)}
	if _, err := os.Lstat(s.name); err == nil {
		return nil, refuse("%s exists already", s.name)
	}
	if err := os.MkdirAll(filepath.Join(s.temp, "home"), 0o700); err != nil {
		return nil, refuse("%s cannot be written: %v", folder, err)
	}
	var err error
	if s.root, err = os.OpenRoot(s.temp); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.temp))
	}
	return s, s.root.MkdirAll("config", 0o700)
}

func (s *folderSink) folder(e Entry) error {
	return s.root.MkdirAll(filepath.FromSlash(e.Path), 0o700)
}

func (s *folderSink) file(e Entry, _ int64, r io.Reader) (int64, error) {
	return writeFile(s.root, e, r)
}

// writeFile creates a file below root. The file must not exist.
func writeFile(root *os.Root, e Entry, r io.Reader) (int64, error) {
	f, err := root.OpenFile(filepath.FromSlash(e.Path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(f, r)
	if err == nil && !syncsAll {
		err = f.Sync()
	}
	return n, errors.Join(err, f.Close())
}

func (s *folderSink) database(ctx context.Context, e Entry, from *sqlite.Snapshot, progress func(int64)) (int64, string, error) {
	to := filepath.Join(s.temp, filepath.FromSlash(e.Path))
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return 0, "", err
	}
	return copySnapshot(ctx, from, to, progress)
}

// copySnapshot copies a database and returns the size and SHA-256 of the copy.
func copySnapshot(ctx context.Context, from *sqlite.Snapshot, to string, progress func(int64)) (int64, string, error) {
	const page = 4096
	if err := from.CopyTo(ctx, to, func(done, _ int) { progress(int64(done) * page) }); err != nil {
		return 0, "", err
	}
	sum, n, err := fileSum(to)
	return n, sum, err
}

func (s *folderSink) finish(ctx context.Context, manifest []byte) (string, error) {
	// All files must be durable before the manifest exists.
	if err := syncAll(s.temp); err != nil {
		return "", err
	}
	if err := atomicfile.Write(filepath.Join(s.temp, manifestName), manifest, 0o600); err != nil {
		return "", err
	}
	if _, err := check(ctx, s.temp, discard); err != nil {
		return "", fmt.Errorf("what was written is not what was read, so the backup was removed: %w", err)
	}
	if err := s.root.Close(); err != nil {
		return "", err
	}
	if err := renameFolder(s.temp, s.name); err != nil {
		return "", err
	}
	return s.name, s.lock.release()
}

func (s *folderSink) abort() error {
	_ = s.root.Close() // the directory is removed
	return errors.Join(os.RemoveAll(s.temp), s.lock.release())
}

// archiveSink writes a backup as an archive.
type archiveSink struct {
	lock       placeLock
	dest, temp string
	dbs        string // directory for temporary copies of databases
	out        *os.File
	packed     io.WriteCloser
	tar        *tar.Writer
	plain      int64 // bytes before compression
}

func newArchiveSink(dest string, lock placeLock) (_ sink, err error) {
	s := &archiveSink{lock: lock, dest: dest, temp: archiveTemp(dest, partialSuffix), dbs: archiveTemp(dest, ".databases"+partialSuffix)}
	defer func() {
		if err != nil {
			err = errors.Join(refuse("%s cannot be written: %v", filepath.Dir(dest), err), s.abort())
		}
	}()

	if err := os.Mkdir(s.dbs, 0o700); err != nil {
		return nil, err
	}
	if s.out, err = os.OpenFile(s.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, err
	}
	if strings.HasSuffix(dest, ".zst") {
		s.packed, err = zstd.NewWriter(s.out, zstd.WithEncoderConcurrency(1))
	} else {
		s.packed = gzip.NewWriter(s.out)
	}
	if err != nil {
		return nil, err
	}
	s.tar = tar.NewWriter(s.packed)
	return s, nil
}

// archiveTemp returns the name of a temporary file next to an archive.
func archiveTemp(dest, end string) string {
	return filepath.Join(filepath.Dir(dest), "."+namePrefix+filepath.Base(dest)+end)
}

func (s *archiveSink) folder(e Entry) error {
	return s.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: e.Path + "/", Mode: 0o700, ModTime: e.ModTime})
}

func (s *archiveSink) file(e Entry, size int64, r io.Reader) (int64, error) {
	if err := s.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e.Path, Size: size, Mode: 0o600, ModTime: e.ModTime}); err != nil {
		return 0, err
	}
	n, err := io.Copy(s.tar, r)
	if err == nil && n < size {
		_, err = io.CopyN(s.tar, zeros{}, size-n)
	}
	s.plain += size
	return n, err
}

func (s *archiveSink) database(ctx context.Context, e Entry, from *sqlite.Snapshot, progress func(int64)) (n int64, sum string, err error) {
	copied := filepath.Join(s.dbs, "copy.sqlite")
	if n, sum, err = copySnapshot(ctx, from, copied, progress); err != nil {
		return 0, "", err
	}
	f, err := os.Open(copied)
	if err != nil {
		return 0, "", err
	}
	_, err = s.file(e, n, f)
	return n, sum, errors.Join(err, f.Close(), os.Remove(copied))
}

func (s *archiveSink) finish(ctx context.Context, manifest []byte) (string, error) {
	_, err := s.file(Entry{Path: manifestName, ModTime: time.Now()}, int64(len(manifest)), strings.NewReader(string(manifest)))
	if err = errors.Join(err, s.tar.Close(), s.packed.Close()); err != nil {
		return "", err
	}
	if err := errors.Join(s.out.Sync(), s.out.Close()); err != nil {
		return "", err
	}

	info, err := os.Stat(s.temp)
	if err != nil {
		return "", err
	}
	// A restore would reject the archive as a decompression bomb.
	if tooDense(s.plain, info.Size()) {
		return "", refuse("what the home holds can be packed more than %d times, which no archive is unpacked that is a stranger's; back it up to a folder", maxRatio)
	}
	if _, err := readArchive(ctx, s.temp, strings.HasSuffix(s.dest, ".zst"), nil, discard); err != nil {
		return "", fmt.Errorf("what was written is not what was read, so the backup was removed: %w", err)
	}
	if err := errors.Join(os.RemoveAll(s.dbs), atomicfile.RenameNew(s.temp, s.dest)); err != nil {
		return "", err
	}
	return s.dest, s.lock.release()
}

func (s *archiveSink) abort() error {
	if s.out != nil {
		_ = s.out.Close() // the file is removed
	}
	err := os.Remove(s.temp)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(s.dbs), s.lock.release())
}

// renameFolder renames a directory. It returns an error if the new name exists.
func renameFolder(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return refuse("%s exists already", to)
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return atomicfile.SyncFolder(filepath.Dir(to))
}
