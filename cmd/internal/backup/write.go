package backup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"rouse/cmd/internal/layout"
	"rouse/internal/atomicfile"
	"rouse/internal/diskspace"
	"rouse/internal/fspath"
	"rouse/internal/gitlayout"
	"rouse/internal/nofollow"
	"rouse/internal/storage/sqlite"
	"rouse/internal/text"
)

// Options holds the options of a backup.
type Options struct {
	Dest      string // absolute path of a directory for backups, or of a .tar.gz or .tar.zst file
	Home      string // absolute
	Info      Info
	Databases []Database
	// Unusable lists databases that no process opens, as paths relative to the home. They are
	// copied as plain files.
	Unusable []string
	Configs  []Config
	Secrets  bool // include secrets, logins and the dashboard's credentials
	NoWork   bool // exclude the agents' files
	Progress func(done, of int64)
}

// Database is a database snapshot taken at the instant of the backup.
type Database struct {
	Path     string // relative to the home, with slashes
	Snapshot *sqlite.Snapshot
}

// Config holds the contents of a configuration file. If the file is in the home, Content replaces
// it in the backup.
type Config struct {
	Path     string // absolute
	Content  []byte
	Redacted bool // secret values were replaced
}

// Made describes a completed backup.
type Made struct {
	Path    string    `json:"path"`
	Bytes   int64     `json:"bytes"` // total size of the contents
	Files   int       `json:"files"`
	LeftOut []LeftOut `json:"left_out"`
	Info
}

// Reasons for leaving something out of every backup. The owner need not be told about these.
const (
	WhySecret = "it holds secrets; --with-secrets copies them"
	WhyLogins = "agent programs keep their logins there; --with-secrets copies it"
	WhyCopies = "it holds copies of databases"
)

// TargetError is returned if a place cannot hold a backup or does not contain a usable one.
type TargetError struct{ Message string }

func (e *TargetError) Error() string { return e.Message }

func refuse(format string, args ...any) error {
	return &TargetError{fmt.Sprintf(format, args...)}
}

// sink receives the contents of a backup.
type sink interface {
	folder(e Entry) error
	// file copies at most size bytes and returns the number of bytes copied.
	file(e Entry, size int64, r io.Reader) (int64, error)
	database(ctx context.Context, e Entry, s *sqlite.Snapshot, progress func(done int64)) (int64, string, error)
	finish(ctx context.Context, manifest []byte) (path string, err error)
	abort() error
}

// writer creates one backup.
type writer struct {
	Options
	to       sink
	within   nofollow.UntrustedDirs
	manifest Manifest
	configs  map[string]Config // configuration files in the home, by relative path
	done, of int64
}

// Write creates a backup. If it fails, it removes the files it created and leaves everything else
// unchanged.
func Write(ctx context.Context, o Options) (made Made, err error) {
	w := &writer{Options: o, within: nofollow.NewBoundary(o.Home), manifest: Manifest{Format: format, Info: o.Info, LeftOut: []LeftOut{}}, configs: map[string]Config{}}
	w.manifest.Secrets = o.Secrets
	for _, c := range o.Configs {
		if rel, ok := w.below(c.Path); ok {
			w.configs[rel] = c
		}
	}

	if err := w.measure(ctx); err != nil {
		return Made{}, err
	}
	if w.to, err = openSink(o.Dest, o.Info.At, w.of); err != nil {
		return Made{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(w.explain(err), w.to.abort())
		}
	}()

	if err := w.copyAll(ctx); err != nil {
		return Made{}, err
	}
	manifest, err := json.MarshalIndent(w.manifest, "", " ")
	if err != nil {
		return Made{}, err
	}

	made = Made{Bytes: w.manifest.Bytes(), Files: w.manifest.Files(), LeftOut: w.manifest.LeftOut, Info: w.manifest.Info}
	made.Path, err = w.to.finish(ctx, manifest)
	return made, err
}

// below returns a path relative to the home, with slashes. It returns false if the path is outside
// the home.
func (w *writer) below(path string) (string, bool) {
	rel, ok := fspath.Rel(w.Home, path)
	return filepath.ToSlash(rel), ok
}

// explain adds advice to an error caused by a full disk.
func (w *writer) explain(err error) error {
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) || sqlite.StorageFailed(err)
	if !full {
		return err
	}
	return refuse("the backup does not fit: %s has no more room (%s of %s were written). What was written is removed, and the backups before are as they were; free some space, or name another place: %v",
		filepath.Dir(w.Dest), text.Size(w.done), text.Size(w.of), err)
}

// measure computes the number of bytes to copy.
func (w *writer) measure(ctx context.Context) error {
	for _, d := range w.Databases {
		n, err := d.Snapshot.Bytes(ctx)
		if err != nil {
			return fmt.Errorf("%s cannot be read: %w", d.Path, err)
		}
		w.of += n
	}
	return w.walk(ctx, "", "", func(_, _ string, e fs.DirEntry) error {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			w.of += info.Size()
		}
		return nil
	}, func(string, string) {})
}

func (w *writer) copyAll(ctx context.Context) error {
	for _, d := range w.Databases {
		if err := w.copyDatabase(ctx, d); err != nil {
			return err
		}
	}

	err := w.walk(ctx, "", "", w.copyEntry, func(rel, why string) {
		w.manifest.LeftOut = append(w.manifest.LeftOut, LeftOut{rel, why})
	})
	if err != nil {
		return err
	}

	n := 0
	for _, c := range w.Configs {
		if _, ok := w.below(c.Path); ok {
			continue // copied with the home
		}
		n++
		name := configName(n, c.Path)
		if err := w.put(Entry{Path: name, Mode: 0o600, ModTime: w.Info.At, Of: c.Path, Redact: c.Redacted}, int64(len(c.Content)), strings.NewReader(string(c.Content))); err != nil {
			return err
		}
	}
	return nil
}

// configName returns the name in the backup of the n-th configuration file from outside the home.
func configName(n int, path string) string {
	return fmt.Sprintf("%s%d-%s", configPrefix, n, filepath.Base(path))
}

func (w *writer) copyDatabase(ctx context.Context, d Database) error {
	before := w.done
	e := Entry{Path: homePrefix + d.Path, Mode: 0o600, ModTime: w.Info.At}
	n, sum, err := w.to.database(ctx, e, d.Snapshot, func(done int64) { w.progress(before + done) })
	if err != nil {
		return fmt.Errorf("%s cannot be copied: %w", d.Path, err)
	}

	e.Bytes, e.SHA256 = n, sum
	w.manifest.Entries = append(w.manifest.Entries, e)
	w.progress(before + n)
	return nil
}

// walk visits everything below rel in the home except databases and excluded files. skipped is
// called for excluded files the owner should know about. Symbolic links are not followed.
//
// as is the path in the backup. It differs from rel if git would recognize a repository: after a
// restore, nothing shows whether an agent created it.
func (w *writer) walk(ctx context.Context, rel, as string, visit func(rel, as string, e fs.DirEntry) error, skipped func(rel, why string)) error {
	entries, err := w.within.ReadDir(filepath.Join(w.Home, filepath.FromSlash(rel)))
	if errors.Is(err, fs.ErrNotExist) && rel != "" {
		return nil // removed in the meantime
	}
	if err != nil {
		return err
	}

	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	renamed := gitlayout.Disarm(names)
	for _, e := range entries {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at, to := path.Join(rel, e.Name()), path.Join(as, cmp.Or(renamed[e.Name()], e.Name()))
		if copied, why := w.copied(at, e); !copied {
			if why != "" {
				skipped(at, why)
			}
			continue
		}
		if err := visit(at, to, e); err != nil {
			return err
		}
		if e.IsDir() {
			if err := w.walk(ctx, at, to, visit, skipped); err != nil {
				return err
			}
		}
	}
	return nil
}

// copied reports whether a file or directory of the home is copied. If not, why is the reason, or
// "" if the owner need not know.
func (w *writer) copied(rel string, e fs.DirEntry) (copied bool, why string) {
	part, kept := layout.Of(rel)
	work := layout.Work(rel)
	if _, config := w.configs[rel]; config {
		return true, "" // with the content in w.configs
	}
	switch {
	case kept && part.Kind == layout.Made, strings.HasPrefix(rel, "doctor-") && strings.HasSuffix(rel, ".tmp"):
		return false, ""
	case kept && part.Kind == layout.Database:
		return false, "" // its snapshot is copied
	case kept && part.Kind == layout.Copies:
		return false, WhyCopies
	case kept && part.Kind == layout.Secret && !w.Secrets:
		return false, WhySecret
	case layout.ProgramHome(rel) && !w.Secrets:
		return false, WhyLogins
	case work && w.NoWork:
		return false, "it holds an agent's files, which were not wanted"
	case e.Type()&fs.ModeSymlink != 0:
		return false, "it is a link, and nothing is followed"
	case !e.IsDir() && !e.Type().IsRegular():
		return false, "it is neither a file nor a folder"
	case !utf8.ValidString(rel):
		return false, "its name is not UTF-8"
	case kept && !work && atomicfile.Unfinished(e.Name()):
		return false, ""
	}

	if !kept || work || e.IsDir() && part.Kind != layout.Agents {
		return true, ""
	}
	elements := strings.Split(rel, "/")
	switch {
	case part.Kind == layout.Agents && len(elements) == 3 && e.IsDir() && (elements[2] == "backups" || elements[2] == "replaced"):
		return false, WhyCopies
	case part.Kind == layout.Agents && len(elements) == 3, part.Kind == layout.Storage:
		return !w.ofDatabase(rel), ""
	}
	return true, ""
}

// ofDatabase reports whether a file belongs to a database. Such files are not copied: the snapshot
// replaces them, or they are newer than the backup. Files of unusable databases are copied.
func (w *writer) ofDatabase(rel string) bool {
	for _, end := range []string{"", "-wal", "-shm", "-seal", "-journal"} {
		base, ok := strings.CutSuffix(rel, end)
		if ok && (path.Base(base) == "db.sqlite" || strings.HasSuffix(base, ".db")) {
			return !slices.Contains(w.Unusable, base)
		}
	}
	return false
}

// was returns the original name of a renamed entry, or "" if the name is unchanged.
func was(as, name string) string {
	if path.Base(as) == name {
		return ""
	}
	return name
}

// copyEntry copies an entry found by walk.
func (w *writer) copyEntry(rel, as string, e fs.DirEntry) error {
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}

	entry := Entry{Path: homePrefix + as, Mode: info.Mode().Perm(), ModTime: info.ModTime().UTC(), Was: was(as, e.Name())}
	if e.IsDir() {
		entry.Folder = true
		w.manifest.Entries = append(w.manifest.Entries, entry)
		return w.to.folder(entry)
	}
	if c, ok := w.configs[rel]; ok {
		entry.Of, entry.Redact = c.Path, c.Redacted
		return w.put(entry, int64(len(c.Content)), strings.NewReader(string(c.Content)))
	}

	f, err := w.within.Open(filepath.Join(w.Home, filepath.FromSlash(rel)))
	var link *nofollow.LinkError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.As(err, &link), errors.Is(err, fs.ErrPermission) && layout.Work(rel):
		w.manifest.LeftOut = append(w.manifest.LeftOut, LeftOut{rel, err.Error()})
		return nil
	case err != nil:
		return err
	}
	defer f.Close()

	// Use the size of the opened file: the name may refer to another file by now.
	if info, err = f.Stat(); err != nil {
		return err
	}
	return w.put(entry, info.Size(), f)
}

// put copies a file and adds it to the manifest.
func (w *writer) put(e Entry, size int64, r io.Reader) error {
	sum := sha256.New()
	n, err := w.to.file(e, size, &counted{io.TeeReader(io.LimitReader(r, size), sum), w})
	if err != nil {
		return fmt.Errorf("%s cannot be copied: %w", e.Path, err)
	}
	if n < size {
		e.Changed = true
		n = w.pad(sum, n, size)
	}
	e.Bytes, e.SHA256 = n, hex.EncodeToString(sum.Sum(nil))
	w.manifest.Entries = append(w.manifest.Entries, e)
	return nil
}

// pad returns the final size of a file that shrank while it was copied. In an archive, the file
// keeps its announced size and the rest is zeros.
func (w *writer) pad(sum hash.Hash, n, size int64) int64 {
	if _, archive := w.to.(*archiveSink); !archive {
		return n
	}
	_, _ = io.CopyN(sum, zeros{}, size-n) // writing to a hash cannot fail
	return size
}

// zeros is an infinite reader of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// counted is a reader that reports progress.
type counted struct {
	io.Reader
	w *writer
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.w.progress(c.w.done + int64(n))
	return n, err
}

func (w *writer) progress(done int64) {
	w.done = done
	if w.Progress != nil {
		w.Progress(done, max(w.of, done))
	}
}

// room returns an error if the file system of a directory has too little free space.
func room(folder string, needs int64) error {
	left, err := diskspace.Free(folder)
	if err != nil {
		return nil //nolint:nilerr // free space is unknown; writing to a full disk fails anyway
	}
	if left.Bytes < needs {
		return refuse("it takes %s, and %s has %s left; free some space, or name another place", text.Size(needs), folder, text.Size(left.Bytes))
	}
	return nil
}

// stamp formats the time in a backup's name. Names sort in order of time.
func stamp(at time.Time) string { return at.UTC().Format("20060102T150405.000Z") }

// fileSum returns the SHA-256 and the size of a file.
func fileSum(path string) (string, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), n, err
}

// File is a file or directory of a home, other than a database, that a backup contains.
type File struct {
	Entry // SHA256 is empty; Bytes is the current size
	Open  func() (io.ReadCloser, error)
}

// Files visits the contents of a backup of a home, except databases, secrets and the agents'
// workdirs. Open returns fs.ErrNotExist if the file has been removed.
func Files(ctx context.Context, home string, configs []Config, visit func(File) error) error {
	w := &writer{Options: Options{Home: home, NoWork: true}, within: nofollow.NewBoundary(home), configs: map[string]Config{}}
	opened := func(c Config) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.Content)), nil }
	}
	n := 0
	for _, c := range configs {
		if rel, ok := w.below(c.Path); ok {
			w.configs[rel] = c
			continue
		}
		n++
		if err := visit(File{Entry{Path: configName(n, c.Path), Mode: 0o600, Bytes: int64(len(c.Content)), Of: c.Path, Redact: c.Redacted}, opened(c)}); err != nil {
			return err
		}
	}

	return w.walk(ctx, "", "", func(rel, as string, e fs.DirEntry) error {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		entry := Entry{Path: homePrefix + as, Folder: e.IsDir(), Mode: info.Mode().Perm(), ModTime: info.ModTime().UTC(), Was: was(as, e.Name())}
		if c, ok := w.configs[rel]; ok {
			entry.Of, entry.Redact, entry.Bytes = c.Path, c.Redacted, int64(len(c.Content))
			return visit(File{entry, opened(c)})
		}
		if !e.IsDir() {
			entry.Bytes = info.Size()
		}
		return visit(File{entry, func() (io.ReadCloser, error) { return w.within.Open(filepath.Join(home, filepath.FromSlash(rel))) }})
	}, func(string, string) {})
}

// Place returns the path of an entry in a directory backup. It returns an error if the entry's path
// is not valid.
func Place(dir string, e Entry) (string, error) {
	if err := checkPath(e.Path); err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.FromSlash(e.Path)), nil
}

// HomeEntry returns the path in a backup of a path relative to the home.
func HomeEntry(rel string) string { return homePrefix + rel }

// Finish completes a backup in a directory that already contains all entries. It computes missing
// checksums and writes the manifest.
func Finish(dir string, m Manifest) error {
	m.Format = format
	if m.LeftOut == nil {
		m.LeftOut = []LeftOut{}
	}
	for i, e := range m.Entries {
		if e.Folder || e.SHA256 != "" {
			continue
		}
		sum, n, err := fileSum(filepath.Join(dir, filepath.FromSlash(e.Path)))
		if err != nil {
			return err
		}
		m.Entries[i].SHA256, m.Entries[i].Bytes = sum, n
	}
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, manifestName), text, os.FileMode(0o600))
}
