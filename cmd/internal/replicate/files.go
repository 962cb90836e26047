package replicate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"rouse/cmd/internal/backup"
	"rouse/internal/storage/replica"
	"rouse/internal/storage/sqlite"
)

const (
	// roundPrefix is the prefix of the notes of rounds in which the ledger did not change. The
	// ledger's version is valid at these instants too.
	roundPrefix = "rounds/"
	filesPrefix = "files/"
	indexPrefix = "index/"
	// lookEvery is the minimum time between two scans of all files, while something is written.
	lookEvery = 30 * time.Second
	// fullEvery is the number of incremental indexes after which a full index is written.
	fullEvery = 100
)

// index lists the files of a home at an instant: all files, or those that changed since the
// previous index.
type index struct {
	At   int64 `json:"at"` // milliseconds
	Full bool  `json:"full"`
	backup.Info
	Entries []backup.Entry `json:"entries"`
}

func indexName(at int64, full bool) string {
	kind := "changes"
	if full {
		kind = "full"
	}
	return fmt.Sprintf("%s%016d-%s.json", indexPrefix, at, kind)
}

func parseIndexName(name string) (at int64, full, ok bool) {
	number, kind, found := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(name, indexPrefix), ".json"), "-")
	at, err := strconv.ParseInt(number, 10, 64)
	return at, kind == "full", found && err == nil
}

func contentName(sum string) string { return filesPrefix + sum[:2] + "/" + sum }

// files copies the files of a home other than the ledger and the agents' databases.
type files struct {
	store   replica.Store
	home    string
	configs func() ([]backup.Config, error)

	known    map[string]backup.Entry // by path
	sent     map[string]bool         // SHA-256 of the contents in the place
	blobs    map[string]time.Time    // modification times of the directories of large values
	storage  map[string]string       // signatures of skill databases when they were copied
	lookedAt time.Time
	changes  int // incremental indexes since the last full one
}

// stored is a skill database that has changed.
type stored struct {
	rel      string
	was      string
	snapshot *sqlite.Snapshot
}

// prepare opens the skill databases that have changed.
func (f *files) prepare(ctx context.Context) (out []stored, err error) {
	found, err := filepath.Glob(filepath.Join(f.home, "storage", "*", "*.db"))
	if err != nil {
		return nil, err
	}
	for _, path := range found {
		rel, err := filepath.Rel(f.home, path)
		if err != nil {
			return out, err
		}
		was := looks(path) + looks(path+"-wal")
		if f.storage[rel] == was || looks(path) == "" {
			continue
		}
		s, err := sqlite.OpenSnapshot(ctx, path)
		if sqlite.Corrupt(err) {
			continue // the last intact copy remains
		}
		if err != nil {
			return out, err
		}
		out = append(out, stored{filepath.ToSlash(rel), was, s})
	}
	return out, nil
}

// looks returns a signature of a file that changes if the file changes, or "" if the file is empty
// or not regular.
func looks(path string) string {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return ""
	}
	return fmt.Sprintf("%d %d ", info.Size(), info.ModTime().UnixNano())
}

// ship copies the files that have changed. If there are any, it writes an index for the given
// instant.
func (f *files) ship(ctx context.Context, at int64, info backup.Info, databases []stored) (noted bool, err error) {
	full := f.known == nil
	defer func() {
		if err != nil {
			f.known = nil // changes not yet in an index must be found again
		}
	}()
	if full {
		if err := f.resume(ctx); err != nil {
			return false, err
		}
	}
	var changed []backup.Entry
	ship := func(file backup.File) error {
		e, err := f.shipFile(ctx, file)
		if err == nil && e.Path != "" {
			changed = append(changed, e)
		}
		return err
	}
	all := map[string]backup.Entry{}
	looked := full || time.Since(f.lookedAt) > lookEvery
	if looked {
		configs, err := f.configs()
		if err != nil {
			return false, err
		}
		err = backup.Files(ctx, f.home, configs, func(file backup.File) error {
			if err := ship(file); err != nil {
				return err
			}
			if e, ok := f.known[file.Path]; ok {
				all[e.Path] = e
			}
			return nil
		})
		if err != nil {
			return false, err
		}
	} else if err := f.newBlobs(ctx, ship); err != nil {
		return false, err
	}

	for _, d := range databases {
		e, err := f.shipStorage(ctx, d)
		if err != nil {
			return false, err
		}
		changed = append(changed, e)
	}
	for path, e := range f.known {
		if strings.HasPrefix(path, backup.HomeEntry("storage/")) && !e.Folder {
			all[path] = e
		}
	}

	gone := looked && len(all) < len(f.known)
	if len(changed) == 0 && !gone && !full {
		if looked {
			f.lookedAt = time.Now()
		}
		return false, nil
	}
	x := index{At: at, Info: info, Entries: changed, Full: full || gone || looked && f.changes >= fullEvery}
	if x.Full {
		x.Entries = nil
		for _, e := range all {
			x.Entries = append(x.Entries, e)
		}
	}
	content, err := json.Marshal(x)
	if err != nil {
		return false, err
	}
	if err := f.store.Put(ctx, indexName(at, x.Full), bytes.NewReader(content), int64(len(content))); err != nil {
		return false, err
	}

	if f.changes++; x.Full {
		f.known, f.changes = all, 0
	}
	if looked {
		f.lookedAt = time.Now()
	}
	for _, d := range databases {
		f.storage[filepath.FromSlash(d.rel)] = d.was
	}
	return true, nil
}

// resume reads which contents are already in the place.
func (f *files) resume(ctx context.Context) error {
	there, err := f.store.List(ctx, filesPrefix, "")
	if err != nil {
		return err
	}
	f.known, f.sent, f.blobs, f.storage = map[string]backup.Entry{}, map[string]bool{}, map[string]time.Time{}, map[string]string{}
	for _, o := range there {
		f.sent[o.Name[strings.LastIndexByte(o.Name, '/')+1:]] = true
	}
	return nil
}

// shipFile copies a file if it has changed. It returns an empty entry if the file is unchanged or
// gone.
func (f *files) shipFile(ctx context.Context, file backup.File) (backup.Entry, error) {
	before, ok := f.known[file.Path]
	if ok && before.Folder == file.Folder && before.Bytes == file.Bytes && before.ModTime.Equal(file.ModTime) && before.Mode == file.Mode && file.Of == "" {
		return backup.Entry{}, nil
	}
	e := file.Entry
	if !file.Folder {
		r, err := file.Open()
		if errors.Is(err, fs.ErrNotExist) {
			return backup.Entry{}, nil
		}
		if err != nil {
			return backup.Entry{}, err
		}
		sum, n, err := f.content(ctx, r)
		if err := errors.Join(err, r.Close()); err != nil {
			return backup.Entry{}, fmt.Errorf("%s cannot be copied: %w", file.Path, err)
		}
		e.SHA256, e.Bytes = sum, n
	}
	f.known[file.Path] = e
	if ok && before.SHA256 == e.SHA256 && file.Of != "" {
		return backup.Entry{}, nil // the configuration is unchanged
	}
	return e, nil
}

// content copies the data of r under its SHA-256. The data goes to a temporary file first because
// it may change while it is read.
func (f *files) content(ctx context.Context, r io.Reader) (sum string, n int64, err error) {
	temp, err := os.CreateTemp(filepath.Join(f.home, "replica"), "file-")
	if err != nil {
		return "", 0, err
	}
	defer func() {
		_ = temp.Close() // the file is temporary
		_ = os.Remove(temp.Name())
	}()
	h := sha256.New()
	if n, err = io.Copy(io.MultiWriter(temp, h), r); err != nil {
		return "", 0, err
	}
	sum = hex.EncodeToString(h.Sum(nil))
	if f.sent[sum] {
		return sum, n, nil
	}
	if _, err := temp.Seek(0, io.SeekStart); err != nil {
		return "", 0, err
	}
	if err := f.store.Put(ctx, contentName(sum), temp, n); err != nil {
		return "", 0, err
	}
	f.sent[sum] = true
	return sum, n, nil
}

// newBlobs copies new large values, because the ledger of the round may refer to them.
func (f *files) newBlobs(ctx context.Context, ship func(backup.File) error) error {
	folders, err := os.ReadDir(filepath.Join(f.home, "blobs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	for _, folder := range folders {
		info, err := folder.Info()
		if err != nil || !info.IsDir() || f.blobs[folder.Name()].Equal(info.ModTime()) || ctx.Err() != nil {
			continue
		}
		values, err := os.ReadDir(filepath.Join(f.home, "blobs", folder.Name()))
		if err != nil {
			return err
		}
		for _, value := range values {
			at := filepath.Join(f.home, "blobs", folder.Name(), value.Name())
			rel := backup.HomeEntry("blobs/" + folder.Name() + "/" + value.Name())
			if _, ok := f.known[rel]; ok || !value.Type().IsRegular() || len(value.Name()) != sha256.Size*2 {
				continue
			}
			i, err := value.Info()
			if err != nil {
				continue // removed in the meantime
			}
			e := backup.Entry{Path: rel, Mode: 0o600, ModTime: i.ModTime().UTC(), Bytes: i.Size()}
			if err := ship(backup.File{Entry: e, Open: func() (io.ReadCloser, error) { return os.Open(at) }}); err != nil {
				return err
			}
		}
		f.blobs[folder.Name()] = info.ModTime()
	}

	return context.Cause(ctx)
}

func (f *files) shipStorage(ctx context.Context, d stored) (e backup.Entry, err error) {
	dir, err := os.MkdirTemp(filepath.Join(f.home, "replica"), "storage-")
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	copied := filepath.Join(dir, "copy")
	if err := d.snapshot.CopyTo(ctx, copied, nil); err != nil {
		return e, err
	}
	r, err := os.Open(copied)
	if err != nil {
		return e, err
	}
	defer r.Close()
	e = backup.Entry{Path: backup.HomeEntry(d.rel), Mode: 0o600, ModTime: time.Now().UTC()}
	if e.SHA256, e.Bytes, err = f.content(ctx, r); err == nil {
		f.known[e.Path] = e
	}
	return e, err
}

// note records that the ledger did not change up to the given instant.
func note(ctx context.Context, store replica.Store, at int64) error {
	return store.Put(ctx, fmt.Sprintf("%s%016d", roundPrefix, at), strings.NewReader("\n"), 1)
}

// noted returns the instants recorded by note, oldest first, and the names of their objects.
func noted(ctx context.Context, store replica.Store) (instants []int64, names []string, err error) {
	objects, err := store.List(ctx, roundPrefix, "")
	for _, o := range objects {
		if at, err := strconv.ParseInt(strings.TrimPrefix(o.Name, roundPrefix), 10, 64); err == nil {
			instants, names = append(instants, at), append(names, o.Name)
		}
	}
	return instants, names, err
}

// pruneFiles removes indexes that are only needed for times before the given one, and contents that
// no remaining index refers to.
func pruneFiles(ctx context.Context, store replica.Store, before time.Time) error {
	lists, err := store.List(ctx, indexPrefix, "")
	if err != nil {
		return err
	}

	first := -1 // first index needed for the restores to be kept
	for i, o := range lists {
		if at, full, ok := parseIndexName(o.Name); ok && full && at <= before.UnixMilli() {
			first = i
		}
	}

	var gone []string
	instants, names, err := noted(ctx, store)
	if err != nil {
		return err
	}

	for i, at := range instants[:max(0, len(instants)-1)] { // keep the newest: it may be the newest instant of the home
		if at < before.UnixMilli() {
			gone = append(gone, names[i])
		}
	}

	if first <= 0 {
		return store.Delete(ctx, gone...)
	}

	for _, o := range lists[:first] {
		gone = append(gone, o.Name)
	}

	named := map[string]bool{}
	for _, o := range lists[first:] {
		x, err := readIndex(ctx, store, o.Name)
		if err != nil {
			return err
		}
		for _, e := range x.Entries {
			named[e.SHA256] = true
		}
	}

	contents, err := store.List(ctx, filesPrefix, "")
	if err != nil {
		return err
	}

	for _, o := range contents {
		if !named[o.Name[strings.LastIndexByte(o.Name, '/')+1:]] {
			gone = append(gone, o.Name)
		}
	}

	return store.Delete(ctx, gone...)
}

// maxIndex is the maximum size of an index, in bytes.
const maxIndex = 1 << 30

func readIndex(ctx context.Context, store replica.Store, name string) (x index, err error) {
	r, err := store.Get(ctx, name, 0, 0)
	if err != nil {
		return x, err
	}
	defer r.Close()
	return x, json.NewDecoder(io.LimitReader(r, maxIndex)).Decode(&x)
}
