// Package blob stores large values of the ledger outside its database, by content: in files beside
// it, or in a bucket that all nodes can reach.
//
// A row refers to a value by its name. A value is removed after the last row that refers to it.
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

// maxInline is the maximum size of a value in the database, in bytes.
const maxInline = 64 << 10

// Mark is the prefix of a reference to a value outside the database. No JSON text begins with it.
const Mark = "blob:sha256:"

// blobStore stores values over maxInline. The name of a value begins with the hash of its content.
type blobStore interface {
	// put stores a value durably, before a row refers to it. An empty name means that the value
	// stays in the database for now.
	put(ctx context.Context, text string) (name string, err error)
	// get reads a value and verifies its hash.
	get(ctx context.Context, name string) (json.RawMessage, error)
	// fault returns a description of the fault of a value, or "" if it is intact.
	fault(ctx context.Context, name string) string
	// hold keeps new values from being removed until a row refers to them.
	hold() (release func())
	// exclude waits until all holds are released, and blocks new ones.
	exclude() (release func())
	// remove removes values without references.
	remove(names []string) error
}

// Blobs holds the large values of a ledger.
type Blobs struct {
	DB     *store.DB
	values blobStore // nil if they are in the database
}

// New returns the Blobs of a ledger.
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

// Hold keeps values stored with Pack from being removed as orphans, until a row refers to them. The
// caller must call release.
func (l *Blobs) Hold() (release func()) {
	if l.values == nil {
		return func() {}
	}
	return l.values.hold()
}

// Exclude waits until all holds are released, and blocks new ones until release is called.
func (l *Blobs) Exclude() (release func()) {
	if l.values == nil {
		return func() {}
	}
	return l.values.exclude()
}

// Remove removes values without references.
func (l *Blobs) Remove(names []string) error {
	if l.values == nil {
		return nil
	}
	return l.values.remove(names)
}

// Fault returns a description of the fault of a value, or "" if it is intact. Values in the
// database have no faults.
func (l *Blobs) Fault(ctx context.Context, name string) string {
	if l.values == nil {
		return ""
	}
	return l.values.fault(ctx, name)
}

// Pack moves a large value out of the database, before a row refers to it. It returns the text to
// store in the row. name is the name for Keep, or "" if the value stays in the row.
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

// UnpackBytes returns a value that is stored in Base64. File content may be any bytes, but columns
// have the type text.
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

// UnpackColumn replaces *v with its unpacked value.
func (l *Blobs) UnpackColumn(ctx context.Context, v *json.RawMessage) (err error) {
	*v, err = l.Unpack(ctx, string(*v))
	return err
}

// Keep records that a run refers to a large value. Retention uses these rows to find values without
// references.
func Keep(tx *store.Tx, hash string, run int64) {
	if hash != "" {
		tx.Run(`insert into blobs (hash, run) values ($1, $2) on conflict do nothing`, hash, run)
	}
}

// sumOf returns the hash of a value, which its name begins with.
func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// fileBlobs stores each large value in a file of a folder. The name of the file is the hash of the
// content.
type fileBlobs struct {
	dir     string
	roomFor func(write func() error) error // repeats a write that failed on a full disk
	inUse   sync.RWMutex                   // held for reading from the write of a file to the row that refers to it
}

// put implements blobStore.
func (v *fileBlobs) put(_ context.Context, text string) (string, error) {
	hash := sumOf([]byte(text))
	path := v.path(hash)
	// Comparing sizes is enough: a truncated file is shorter and is written again. An existing name
	// may not be on disk yet, because another call is about to sync the folder or was killed
	// before. So sync the folders here, too.
	if info, err := os.Stat(path); err == nil && info.Size() == int64(len(text)) {
		return hash, errors.Join(atomicfile.SyncFolder(filepath.Dir(path)), atomicfile.SyncFolder(v.dir))
	}
	return hash, v.roomFor(func() error { return writeBlob(path, text) })
}

func (v *fileBlobs) path(hash string) string { return filepath.Join(v.dir, hash[:2], hash) }

// writeBlob writes a file and makes it and its name durable. It also syncs the parent folder,
// because the file's folder may be new.
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

// fault implements blobStore. It streams the file, so that large values do not fill the memory.
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

// hold implements blobStore. Without it, prune could remove a new file as an orphan before a row
// refers to it.
func (v *fileBlobs) hold() (release func()) {
	v.inUse.RLock()
	return v.inUse.RUnlock
}

// exclude implements blobStore. It blocks new references to a file between the query for references
// and the removal.
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

// References lists the columns that may refer to a large value, with the SQL expression of its
// owner. The owner is a run, or the negative id of a workspace.
var References = []struct{ Table, Column, Owner string }{
	{"calls", "args", "run"},
	{"calls", "envelope", "run"},
	{"steps", "message", "run"},
	{"file_ops", "before", "run"},
	{"deliveries", "body", "run"},
	{"artifacts", "content", "case when workspace <> 0 then -workspace else run end"},
}
