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
	// valuesPrefix is before the names of all large values, which are VALUES/AB/HASH.MILLISECONDS.CHANCE.
	valuesPrefix = "values/"
	// collectAfter is for how long a value stays that no row refers to: it may be one whose row is being written.
	collectAfter = 24 * time.Hour
	// valueAnswers is how long a place may take to keep a value, and valueRate how many bytes of it a second.
	valueAnswers = 15 * time.Second
	valueRate    = 64 << 10
	// valuesRest is how long a place that failed is not asked to keep anything: each write would wait for it.
	valuesRest = 30 * time.Second
)

// errNoValues is a record whose large values are at a place that is not known.
var errNoValues = errors.New("the large values of this ledger are in a bucket or a folder of all nodes, and the configuration does not say in which any more: put engine.blobs back")

// valueName is the hash of a value, when it was written, and a chance of its own.
var valueName = regexp.MustCompile(`^([0-9a-f]{64})\.([0-9]{1,16})\.[A-Z0-9]{1,40}$`)

// bucketBlobs are large values in a bucket, or in a folder that all processes of the ledger reach.
//
// Each write has a name of its own, also where the content is known: so a name that no row refers to a day after it was written
// will never be referred to, and may be removed without asking other nodes, which a bucket has no lock for.
//
// A place that does not take a value loses none: it stays in the database, as all do without such a place.
type bucketBlobs struct {
	store objects.Store
	mine  func(context.Context) error // whether the place is the ledger's: the folder of another disk could have taken its place
	now   func() time.Time
	log   *slog.Logger

	mu    sync.Mutex
	why   error     // of the last failure; nil: it works
	since time.Time // by this process's clock: of the first of them
	rests time.Time // until then it is not asked
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
	if ctx.Err() != nil { // it says nothing of the place
		return "", context.Cause(ctx)
	}
	if v.note(err); err != nil {
		return "", nil
	}
	return name, nil
}

// resting says whether the place has failed a moment ago.
func (v *bucketBlobs) resting() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.why != nil && time.Now().Before(v.rests)
}

// note takes down whether the place works, and says so once.
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

// Problem is since when, and why, the place of large values takes none; nil when it does, or there is none.
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

// read reads a value, or says what is wrong with it.
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

// hold implements blobStore: what is new stays by its age.
func (v *bucketBlobs) hold() (release func()) { return func() {} }

// exclude implements blobStore.
func (v *bucketBlobs) exclude() (release func()) { return func() {} }

// remove implements blobStore: they go when values are collected.
func (v *bucketBlobs) remove([]string) error { return nil }

// Collect removes large values that no row refers to, and that are too old to be those of a row that is being written. One node
// does it. Nothing is removed from a place that another database has taken over.
func (l *Blobs) Collect(ctx context.Context, now time.Time) error {
	v, ok := l.values.(*bucketBlobs)
	if !ok || l.DB.Postgres == nil {
		return nil
	}

	removed := 0
	err := func() error {
		if err := l.DB.Touch(ctx); err != nil { // who has lost its lease removes nothing
			return err
		}
		if err := l.checkClaim(ctx, v); err != nil {
			return err
		}
		for i := range 256 { // as many names at a time as a page of them, and not all
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
