package blob

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"rouse/internal/ledger/store"
	"rouse/internal/storage/objects"
)

const (
	// valuesPrefix is the prefix of all large values. Their full names are
	// values/AB/HASH.MILLISECONDS.RANDOM.
	valuesPrefix = "values/"
	// collectAfter is the minimum age of a value without references before it is removed. A younger
	// value may belong to a row that is being written.
	collectAfter = 24 * time.Hour
	// valueAnswers is the base of the timeout for storing a value. valueRate adds a second for each
	// so many bytes.
	valueAnswers = 15 * time.Second
	valueRate    = 64 << 10
	// valuesRest is how long put skips a location that has failed, because every write would wait
	// for it.
	valuesRest = 30 * time.Second
)

// errNoValues is returned for a record with large values at an unknown location.
var errNoValues = errors.New("the large values of this ledger are in a bucket or a folder of all nodes, and the configuration does not say in which any more: put engine.blobs back")

// valueName matches the name of a value: its hash, the time it was written, and a random part.
var valueName = regexp.MustCompile(`^([0-9a-f]{64})\.([0-9]{1,16})\.[A-Z0-9]{1,40}$`)

// bucketBlobs stores large values in a bucket, or in a folder that all processes of the ledger can
// reach.
//
// Each write uses a new name, even for known content. A name without references a day after it was
// written therefore never gets any. It can be removed without a lock across nodes, which buckets do
// not have.
//
// If the location fails, values stay in the database, as they do without a location.
type bucketBlobs struct {
	store objects.Store
	// mine returns an error if the location does not belong to the ledger, for example because
	// another disk is mounted there.
	mine func(context.Context) error
	now  func() time.Time
	log  *slog.Logger

	mu    sync.Mutex
	why   error     // last failure; nil if the location works
	since time.Time // time of the first failure, by the clock of this process
	rests time.Time // end of the pause after a failure
}

func objectName(name string) string { return valuesPrefix + name[:2] + "/" + name }

// put implements blobStore.
func (v *bucketBlobs) put(ctx context.Context, text string) (string, error) {
	if v.resting() {
		return "", nil
	}

	name := fmt.Sprintf("%s.%d.%s", sumOf([]byte(text)), store.Millis(v.now()), rand.Text()[:12])
	limited, cancel := context.WithTimeout(ctx, valueAnswers+time.Duration(len(text)/valueRate)*time.Second)
	defer cancel()
	err := v.mine(limited)
	if err == nil {
		err = v.store.Put(limited, objectName(name), strings.NewReader(text), int64(len(text)))
	}
	if ctx.Err() != nil { // not a failure of the location
		return "", context.Cause(ctx)
	}
	if v.note(err); err != nil {
		return "", nil
	}
	return name, nil
}

// resting reports whether the location has failed within valuesRest.
func (v *bucketBlobs) resting() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.why != nil && time.Now().Before(v.rests)
}

// note records whether the location works, and logs each change once.
func (v *bucketBlobs) note(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	switch {
	case err == nil && v.why != nil:
		v.log.Info("large values are kept beside the database again", "after", now.Sub(v.since).Round(time.Second))
	case err != nil && v.why == nil:
		v.since = now
		v.log.Error("the place of large values takes none; they stay in PostgreSQL until it does", "error", err)
	}
	v.why, v.rests = err, now.Add(valuesRest)
}

// Problem returns the last failure of the storage location, and the time of the first failure. why
// is nil if the location works or is not configured.
func (l *Blobs) Problem() (since time.Time, why error) {
	v, ok := l.values.(*bucketBlobs)
	if !ok {
		return time.Time{}, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.since, v.why
}

// get implements blobStore.
func (v *bucketBlobs) get(ctx context.Context, name string) (json.RawMessage, error) {
	text, fault, err := v.read(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("a large value of the record cannot be read: %w; what is there is read when it is asked for again", err)
	}
	if fault != "" {
		return nil, fmt.Errorf("a large value of the record %s (%s); bring that object back from a copy of the place that engine.blobs names", fault, valuesPrefix+name)
	}
	return text, nil
}

// read reads a value, or returns a description of its fault.
func (v *bucketBlobs) read(ctx context.Context, name string) (text json.RawMessage, fault string, err error) {
	parts := valueName.FindStringSubmatch(name)
	if parts == nil {
		return nil, "has no hash for its name", nil
	}
	r, err := v.store.Get(ctx, objectName(name), 0, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "is missing", nil
	}
	if err != nil {
		return nil, "", err
	}
	defer r.Close()

	if text, err = io.ReadAll(r); err != nil {
		return nil, "", err
	}
	if sumOf(text) != parts[1] {
		return nil, "is damaged: it has another content than it had", nil
	}
	return text, "", nil
}

// fault implements blobStore.
func (v *bucketBlobs) fault(ctx context.Context, name string) string {
	_, fault, err := v.read(ctx, name)
	if err != nil {
		return "cannot be read: " + err.Error()
	}
	return fault
}

// hold implements blobStore. It needs no lock, because new values are kept by their age.
func (v *bucketBlobs) hold() (release func()) { return func() {} }

// exclude implements blobStore.
func (v *bucketBlobs) exclude() (release func()) { return func() {} }

// remove implements blobStore. It does nothing, because Collect removes the values.
func (v *bucketBlobs) remove([]string) error { return nil }

// Collect removes large values without references that are older than collectAfter. Only one node
// does it. It removes no value from a location that another database has taken over.
func (l *Blobs) Collect(ctx context.Context, now time.Time) error {
	v, ok := l.values.(*bucketBlobs)
	if !ok || l.DB.Postgres == nil {
		return nil
	}

	removed := 0
	err := func() error {
		if err := l.DB.Touch(ctx); err != nil { // a node without its lease must not remove values
			return err
		}
		if err := l.checkClaim(ctx, v); err != nil {
			return err
		}
		for i := range 256 { // list in parts, because there may be many names
			n, err := l.collectPart(ctx, v, fmt.Sprintf("%s%02x/", valuesPrefix, i), now.Add(-collectAfter))
			removed += n
			if err != nil {
				return err
			}
		}
		return nil
	}()

	if removed > 0 {
		v.log.Info("large values that nothing refers to were removed", "values", removed)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("large values that nothing refers to could not be removed: %w", err)
	}
	return nil
}

func (l *Blobs) collectPart(ctx context.Context, v *bucketBlobs, prefix string, before time.Time) (int, error) {
	all, err := v.store.List(ctx, prefix, "")
	if err != nil {
		return 0, err
	}

	var old []string
	for _, o := range all {
		name := strings.TrimPrefix(o.Name, prefix)
		if parts := valueName.FindStringSubmatch(name); parts != nil {
			if at, err := strconv.ParseInt(parts[2], 10, 64); err == nil && store.Instant(at).Before(before) {
				old = append(old, name)
			}
		}
	}
	if len(old) == 0 {
		return 0, nil
	}

	orphans, err := store.Values[string](store.Reads(ctx, l.DB), `select n.name from unnest($1::text[]) n(name) where not exists (select 1 from blobs where hash = n.name)`, old)
	if err != nil || len(orphans) == 0 {
		return 0, err
	}
	for i, name := range orphans {
		orphans[i] = objectName(name)
	}
	return len(orphans), v.store.Delete(ctx, orphans...)
}
