package replicate

import (
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
	"time"

	"rouse/cmd/internal/backup"
	"rouse/internal/storage/replica"
	"rouse/internal/text"
)

// Fetch creates a backup in the directory dir from the copy of a home at a given time. A zero time
// means the newest copy.
func Fetch(ctx context.Context, store replica.Store, at time.Time, dir string) error {
	_, err := readMarker(ctx, store)
	if errors.Is(err, fs.ErrNotExist) {
		return refuse("there is no copy of a home in it: it has no %s", markerName)
	}
	if err != nil {
		return err
	}
	ledger := replica.NewClient(store, "ledger")
	versions, err := replica.Versions(ctx, ledger)
	if err != nil {
		return err
	}
	version, ok := until(versions, at)
	switch {
	case len(versions) == 0:
		return refuse("the home was never copied there as a whole")
	case !ok:
		return refuse("what is there begins at %s; name a later time", versions[0].At.Local().Format(time.DateTime+" MST"))
	}

	// The ledger's version also holds for later rounds in which the ledger did not change.
	instants, _, err := noted(ctx, store)
	if err != nil {
		return err
	}
	next := slices.IndexFunc(versions, func(v replica.Version) bool { return v.TX > version.TX })
	for _, one := range instants {
		later := time.UnixMilli(one)
		if later.After(version.At) && (at.IsZero() || !later.After(at)) && (next < 0 || later.Before(versions[next].At)) {
			version.At = later
		}
	}

	m := backup.Manifest{}
	if err := fetchFiles(ctx, store, version.At, dir, &m); err != nil {
		return err
	}
	m.At = version.At
	put := func(client *replica.Client, v replica.Version, rel string) error {
		e := backup.Entry{Path: backup.HomeEntry(rel), Mode: 0o600, ModTime: v.At}
		to, err := backup.Place(dir, e)
		if err != nil {
			return err
		}
		if err := replica.Restore(ctx, client, v.TX, to); err != nil {
			return fmt.Errorf("%s cannot be brought back: %w", rel, err)
		}
		m.Entries = append(m.Entries, e)
		return nil
	}
	if err := put(ledger, version, "ledger.db"); err != nil {
		return err
	}
	agents, err := databases(ctx, store)
	if err != nil {
		return err
	}
	for _, agent := range agents {
		client := replica.NewClient(store, "db/"+agent)
		versions, err := replica.Versions(ctx, client)
		if err != nil {
			return err
		}
		if v, ok := until(versions, version.At); ok {
			if err := put(client, v, "agents/"+agent+"/db.sqlite"); err != nil {
				return err
			}
		}
	}
	return backup.Finish(dir, m)
}

// until returns the last version that is not later than at. A zero time means the newest version.
func until(versions []replica.Version, at time.Time) (v replica.Version, ok bool) {
	for _, one := range versions {
		if at.IsZero() || !one.At.After(at) {
			v, ok = one, true
		}
	}
	return v, ok
}

// databases returns the agents with a database in the place.
func databases(ctx context.Context, store replica.Store) (out []string, err error) {
	objects, err := store.List(ctx, "db/", "")
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		elements := strings.Split(o.Name, "/")
		if len(elements) == 4 && !slices.Contains(out[max(0, len(out)-1):], elements[1]) {
			out = append(out, elements[1])
		}
	}
	return out, nil
}

// fetchFiles writes the files of the home as of the given time and adds them to the manifest.
func fetchFiles(ctx context.Context, store replica.Store, at time.Time, dir string, m *backup.Manifest) error {
	lists, err := store.List(ctx, indexPrefix, "")
	if err != nil {
		return err
	}
	from, to := -1, -1
	for i, o := range lists {
		when, full, ok := parseIndexName(o.Name)
		if !ok || when > at.UnixMilli() {
			continue
		}
		if to = i; full {
			from = i
		}
	}
	if from < 0 {
		return refuse("what is there of %s has no list of its files", at.Local().Format(time.DateTime+" MST"))
	}

	entries := map[string]backup.Entry{}
	for _, o := range lists[from : to+1] {
		x, err := readIndex(ctx, store, o.Name)
		if err != nil {
			return fmt.Errorf("%s cannot be read: %w", o.Name, err)
		}
		m.Info = x.Info
		for _, e := range x.Entries {
			entries[e.Path] = e
		}
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := fetchFile(ctx, store, e, dir); err != nil {
			return fmt.Errorf("%s cannot be brought back: %w", text.Truncate(e.Path, 200), err)
		}
		m.Entries = append(m.Entries, e)
	}
	slices.SortFunc(m.Entries, func(a, b backup.Entry) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

func fetchFile(ctx context.Context, store replica.Store, e backup.Entry, dir string) error {
	to, err := backup.Place(dir, e)
	if err != nil {
		return err
	}
	if e.Folder {
		return os.MkdirAll(to, 0o700)
	}
	if len(e.SHA256) != sha256.Size*2 {
		return errors.New("its list has no sum of it")
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	r, err := store.Get(ctx, contentName(e.SHA256), 0, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(r, e.Bytes+1))
	if err == nil && (n != e.Bytes || hex.EncodeToString(sum.Sum(nil)) != e.SHA256) {
		err = errors.New("it is not what was copied")
	}
	return errors.Join(err, f.Close())
}
