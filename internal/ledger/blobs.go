package ledger

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
	"rouse/internal/ledger/store"
	"strings"
	"sync"

	"rouse/internal/atomicfile"
)

// maxInline is the largest value, in bytes, that stays in the database.
const maxInline = 64 << 10

// blobMark begins the text that refers to a value beside the database. No JSON text begins like it.
const blobMark = "blob:sha256:"

// largeValues is where values over maxInline are: beside the database, each under a name that begins with the hash of its content.
type largeValues interface {
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

// hold keeps what pack moves away from being taken for an orphan until a row refers to it.
func (l *Ledger) hold() (release func()) {
	if l.blobs == nil {
		return func() {}
	}
	return l.blobs.hold()
}

// pack moves a large value out of the database, where it is before the row that refers to it. It returns the text to store,
// and the name to refer to it by, "" where there is none.
func (l *Ledger) pack(ctx context.Context, text string) (stored, name string, err error) {
	if len(text) <= maxInline || l.blobs == nil {
		return text, "", nil
	}

	name, err = l.blobs.put(ctx, text)
	if err != nil {
		return "", "", store.HostFault(fmt.Errorf("cannot keep a large value of the record: %w", err))
	}
	if name == "" {
		return text, "", nil
	}
	return blobMark + name, name, nil
}

func (l *Ledger) unpack(ctx context.Context, stored string) (json.RawMessage, error) {
	name, ok := strings.CutPrefix(stored, blobMark)
	if !ok {
		return json.RawMessage(stored), nil
	}
	if l.blobs == nil {
		return nil, errNoValues
	}
	text, err := l.blobs.get(ctx, name)
	return text, store.HostFault(err)
}

// unpackBytes unpacks a value that is stored in Base64, because a file may hold any bytes and columns have the type text.
func (l *Ledger) unpackBytes(ctx context.Context, stored string) ([]byte, error) {
	text, err := l.unpack(ctx, stored)
	if err != nil {
		return nil, err
	}
	content, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		err = fmt.Errorf("damaged: %w; restore the home from a backup", err)
	}
	return content, err
}

// unpackColumn unpacks a value in its place.
func (l *Ledger) unpackColumn(ctx context.Context, v *json.RawMessage) (err error) {
	*v, err = l.unpack(ctx, string(*v))
	return err
}

// sumOf is the hash of a value, as names begin with it.
func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// writeEntries writes entries whose values may be large, fenced by a, all or none of them.
func (l *Ledger) writeEntries(ctx context.Context, a Attempt, entries []Entry) error {
	defer l.hold()()
	packed, err := l.packEntries(ctx, entries)
	if err != nil {
		return err
	}

	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		r, err := l.checkFence(tx, a)
		if err != nil {
			return err
		}
		return packed.write(tx, a, r.Job)
	})
}

// packedEntries are entries whose large values are beside the database, which hold keeps until they are written.
type packedEntries []packedEntry

type packedEntry struct {
	Entry
	stored, hash string
}

func (l *Ledger) packEntries(ctx context.Context, entries []Entry) (packedEntries, error) {
	out := make(packedEntries, len(entries))
	for i, e := range entries {
		out[i].Entry = e
		err := e.err
		if err == nil {
			out[i].stored, out[i].hash, err = l.pack(ctx, string(e.value))
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// write writes them in their order, and their events; the caller has looked at the fence of a.
func (p packedEntries) write(tx *store.Tx, a Attempt, job string) error {
	var events []Event
	for _, e := range p {
		keepBlob(tx, e.hash, a.Run)
		if err := e.write(tx, a, job, e.stored); err != nil {
			return err
		}
		events = append(events, e.events...)
	}
	return addEventsOf(tx, a.Run, job, events)
}

// valueFiles are large values in the folder of a home, each in a file whose name is the hash of its content.
type valueFiles struct {
	dir     string
	roomFor func(write func() error) error // has a write repeated for which there was no room
	inUse   sync.RWMutex                   // held for reading from the write of a file to the row that refers to it
}

// put implements largeValues.
func (v *valueFiles) put(_ context.Context, text string) (string, error) {
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

func (v *valueFiles) path(hash string) string { return filepath.Join(v.dir, hash[:2], hash) }

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

// get implements largeValues.
func (v *valueFiles) get(_ context.Context, hash string) (json.RawMessage, error) {
	text, err := os.ReadFile(v.path(hash))
	if err != nil {
		return nil, fmt.Errorf("a large value of the record is missing: %w; restore the home from a backup", err)
	}
	if sumOf(text) != hash {
		return nil, fmt.Errorf("a large value of the record is damaged: %s; restore the home from a backup", v.path(hash))
	}
	return text, nil
}

// fault implements largeValues. It holds no more of a value than a part.
func (v *valueFiles) fault(_ context.Context, hash string) string {
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

// hold implements largeValues: from the file to the row that refers to it, prune must not take the file for an orphan.
func (v *valueFiles) hold() (release func()) {
	v.inUse.RLock()
	return v.inUse.RUnlock
}

// exclude implements largeValues: nobody may start to refer to a file between the query for its references and its removal.
func (v *valueFiles) exclude() (release func()) {
	v.inUse.Lock()
	return v.inUse.Unlock
}

// remove implements largeValues.
func (v *valueFiles) remove(hashes []string) error {
	for _, h := range hashes {
		if err := os.Remove(v.path(h)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
