// Package blob keeps the large values of the ledger outside of its database, by their content: in files beside it, or in a bucket that
// all nodes reach. A row refers to a value by its name. A value is removed after the last row that refers to it.
package blob

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"rouse/internal/atomicfile"
	"rouse/internal/ledger/store"
)

// maxInline is the largest value, in bytes, that stays in the database.
const maxInline = 64 << 10

// Mark begins the text that refers to a value beside the database. No JSON text begins like it.
const Mark = "blob:sha256:"

// blobStore is where values over maxInline are: beside the database, each under a name that begins with the hash of its content.
type blobStore interface {
	// put keeps a value durably, before a row refers to it. The name "" says that it stays in the database for now.
	put(ctx context.Context, text string) (name string, err error)
	// get reads a value, and proves that it is what was put.
	get(ctx context.Context, name string) (json.RawMessage, error)
	// fault says what is wrong with a value; "" for nothing.
	fault(ctx context.Context, name string) string
	// hold keeps what is put from being removed until a row refers to it.
	hold() (release func())
	// exclude waits until nobody holds, and keeps others from it.
	exclude() (release func())
	// remove removes values that no row refers to any more.
	remove(names []string) error
}

// Blobs are the large values of a ledger.
type Blobs struct {
	DB     *store.DB
	values blobStore // nil: they are in the database
}

// New returns the large values of a ledger.
func New(db *store.DB, o store.Options) *Blobs {
	l := &Blobs{DB: db}
	switch {
	case o.Blobs != "":
		l.values = &fileBlobs{dir: o.Blobs, roomFor: func(write func() error) error { return store.RoomFor(db, write) }}
	case o.Values != nil:
		v := &bucketBlobs{store: o.Values, now: db.Now, log: db.Logger}
		v.mine = func(ctx context.Context) error { return l.checkClaim(ctx, v) }
		l.values = v
	}
	return l
}

// Hold keeps what pack moves away from being taken for an orphan until a row refers to it.
func (l *Blobs) Hold() (release func()) {
	if l.values == nil {
		return func() {}
	}
	return l.values.hold()
}

// Exclude waits until no value is being stored, and keeps others from storing any until release.
func (l *Blobs) Exclude() (release func()) {
	if l.values == nil {
		return func() {}
	}
	return l.values.exclude()
}

// Remove removes values that no row refers to any more.
func (l *Blobs) Remove(names []string) error {
	if l.values == nil {
		return nil
	}
	return l.values.remove(names)
}

// Fault returns what is wrong with a value, or "". It is "" for all values if they are in the database.
func (l *Blobs) Fault(ctx context.Context, name string) string {
	if l.values == nil {
		return ""
	}
	return l.values.fault(ctx, name)
}

// Pack moves a large value out of the database, where it is before the row that refers to it. It returns the text to store,
// and the name to refer to it by, "" where there is none.
func (l *Blobs) Pack(ctx context.Context, text string) (stored, name string, err error) {
	if len(text) <= maxInline || l.values == nil {
		return text, "", nil
	}

	name, err = l.values.put(ctx, text)
	if err != nil {
		return "", "", store.HostFault(fmt.Errorf("cannot keep a large value of the record: %w", err))
	}
	if name == "" {
		return text, "", nil
	}
	return Mark + name, name, nil
}

func (l *Blobs) Unpack(ctx context.Context, stored string) (json.RawMessage, error) {
	name, ok := strings.CutPrefix(stored, Mark)
	if !ok {
		return json.RawMessage(stored), nil
	}
	if l.values == nil {
		return nil, errNoValues
	}
	text, err := l.values.get(ctx, name)
	return text, store.HostFault(err)
}

// UnpackBytes unpacks a value that is stored in Base64, because a file may hold any bytes and columns have the type text.
func (l *Blobs) UnpackBytes(ctx context.Context, stored string) ([]byte, error) {
	text, err := l.Unpack(ctx, stored)
	if err != nil {
		return nil, err
	}
	content, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		err = fmt.Errorf("damaged: %w; restore the home from a backup", err)
	}
	return content, err
}

// UnpackColumn unpacks a value in its place.
func (l *Blobs) UnpackColumn(ctx context.Context, v *json.RawMessage) (err error) {
	*v, err = l.Unpack(ctx, string(*v))
	return err
}

// Keep keeps a large value for a run. Retention finds out from these rows when no run needs the value any more.
func Keep(tx *store.Tx, hash string, run int64) {
	if hash != "" {
		tx.Run(`insert into blobs (hash, run) values ($1, $2) on conflict do nothing`, hash, run)
	}
}

// sumOf is the hash of a value, as names begin with it.
func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// fileBlobs are large values in the folder of a home, each in a file whose name is the hash of its content.
type fileBlobs struct {
	dir     string
	roomFor func(write func() error) error // has a write repeated for which there was no room
	inUse   sync.RWMutex                   // held for reading from the write of a file to the row that refers to it
}

// put implements blobStore.
func (v *fileBlobs) put(_ context.Context, text string) (string, error) {
	hash := sumOf([]byte(text))
	path := v.path(hash)
	// The size is enough: a file that was cut off is shorter, and is written again.
	// That it has its name does not say that the name is on disk: another call may be about to sync the folder, or was
	// killed before it did.
	if info, err := os.Stat(path); err == nil && info.Size() == int64(len(text)) {
		return hash, errors.Join(atomicfile.SyncFolder(filepath.Dir(path)), atomicfile.SyncFolder(v.dir))
	}
	return hash, v.roomFor(func() error { return writeBlob(path, text) })
}

func (v *fileBlobs) path(hash string) string { return filepath.Join(v.dir, hash[:2], hash) }

// writeBlob makes the file and its name durable before a row refers to it, and the name of its
// folder too, which may be new.
func writeBlob(path, text string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}

	err := atomicfile.Stream(path, 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if err != nil {
		return err
	}

	return atomicfile.SyncFolder(filepath.Dir(dir))
}

// get implements blobStore.
func (v *fileBlobs) get(_ context.Context, hash string) (json.RawMessage, error) {
	text, err := os.ReadFile(v.path(hash))
	if err != nil {
		return nil, fmt.Errorf("a large value of the record is missing: %w; restore the home from a backup", err)
	}
	if sumOf(text) != hash {
		return nil, fmt.Errorf("a large value of the record is damaged: %s; restore the home from a backup", v.path(hash))
	}
	return text, nil
}

// fault implements blobStore. It holds no more of a value than a part.
func (v *fileBlobs) fault(_ context.Context, hash string) string {
	if raw, err := hex.DecodeString(hash); err != nil || len(raw) != sha256.Size {
		return "has no hash for its name"
	}
	f, err := os.Open(v.path(hash))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "has no file"
	case err != nil:
		return "cannot be read: " + err.Error()
	}
	defer f.Close()

	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "cannot be read: " + err.Error()
	}
	if hex.EncodeToString(sum.Sum(nil)) != hash {
		return "has another content than it had"
	}
	return ""
}

// hold implements blobStore: from the file to the row that refers to it, prune must not take the file for an orphan.
func (v *fileBlobs) hold() (release func()) {
	v.inUse.RLock()
	return v.inUse.RUnlock
}

// exclude implements blobStore: nobody may start to refer to a file between the query for its references and its removal.
func (v *fileBlobs) exclude() (release func()) {
	v.inUse.Lock()
	return v.inUse.Unlock
}

// remove implements blobStore.
func (v *fileBlobs) remove(hashes []string) error {
	for _, h := range hashes {
		if err := os.Remove(v.path(h)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// References are the columns that may refer to a large value, and for whom it is kept: the negative id of a workspace,
// or a run.
var References = []struct{ Table, Column, Owner string }{
	{"calls", "args", "run"},
	{"calls", "envelope", "run"},
	{"steps", "message", "run"},
	{"file_ops", "before", "run"},
	{"deliveries", "body", "run"},
	{"artifacts", "content", "case when workspace <> 0 then -workspace else run end"},
}
