package replicate

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/pool"
	"rouse/cmd/internal/backup"
	"rouse/internal/ledger"
	"rouse/internal/storage/replica"
)

const (
	// every is the minimum time between two rounds. Writes in between are copied by the next round.
	every = time.Second
	// maxWait is the maximum delay before a failed place is retried.
	maxWait = time.Minute
	// upkeepEvery is the minimum time between two maintenance passes over the place.
	upkeepEvery = time.Hour
	compactAt   = 64 // transactions of a database after which they are merged
	goodbye     = 10 * time.Second
	// together is the approximate number of databases open at once in a round. Each uses eight file
	// descriptors.
	together = 64
	// jump is the maximum difference between elapsed wall-clock time and elapsed monotonic time. If
	// it is larger, the wall clock is not trusted for a while.
	jump = 5 * time.Minute
)

// Options holds the settings of a Replicator.
type Options struct {
	Home      string
	Ledger    *ledger.Ledger
	Databases *pool.Pool
	Store     replica.Store
	To        string // the place in words
	Keep      time.Duration
	// Allowed returns an error if other users can write to the place. It is called before each
	// round. Optional.
	Allowed func() error
	Info    func(context.Context) (backup.Info, error)
	Configs func() ([]backup.Config, error)
	Logger  *slog.Logger
	Now     func() time.Time // wall clock; nil means time.Now
	Goodbye time.Duration    // time limit for the last round at shutdown; 0 means 10 s
}

// State describes the progress of replication.
type State struct {
	To          string
	LastSuccess time.Time     // zero if no round has succeeded since the start
	Behind      time.Duration // age of the oldest write not yet copied; 0 if all are copied
	Waiting     int           // databases with writes not yet copied
	Bytes       int64         // approximate size of their logs
	Problem     string        // error of the last round; "" if it succeeded
	Unusable    []string      // quarantined databases, which are not copied
}

// Replicator copies a home to a place.
type Replicator struct {
	o      Options
	ledger *replica.Shipper
	files  files
	wake   chan struct{} // capacity 1
	rounds sync.Mutex    // held during a round

	begun   atomic.Bool // findChanged has finished
	claimed bool
	last    int64 // the instant of the last round, in milliseconds
	clock   wallClock
	roomFor time.Time            // when room was made in a place that took nothing
	shipped map[string]int       // transactions since the last merge, by database; "" is the ledger
	tended  map[string]time.Time // last maintenance, by database

	mu        sync.Mutex
	followers map[string]*replica.Shipper // by the agent in lower case
	names     map[string]string           // of agents, as their folders have them
	pending   pending
	state     State
	unusable  map[string]bool // quarantined databases, which are skipped
}

// New returns a replicator that follows the ledger and every database the pool opens from now on.
// The process must not have written to them yet.
func New(ctx context.Context, o Options) (*Replicator, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	db, found, ok := o.Ledger.File()
	if !ok {
		return nil, errors.New("a ledger on PostgreSQL is copied by its server: leave replicate out")
	}
	r := &Replicator{o: o, wake: make(chan struct{}, 1), shipped: map[string]int{}, tended: map[string]time.Time{}, followers: map[string]*replica.Shipper{}, names: map[string]string{}, pending: pending{dirty: map[string]bool{}, onTheWay: map[string]bool{}}, unusable: map[string]bool{}}
	r.files = files{store: o.Store, home: o.Home, configs: o.Configs}
	r.clock = wallClock{now: o.Now, log: o.Logger}
	r.state.To = o.To

	for _, left := range []string{"base-*", "file-*", "storage-*"} { // left by a process that was killed
		paths, err := filepath.Glob(filepath.Join(o.Home, "replica", left))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			_ = os.RemoveAll(path) // best effort; leftovers only waste space
		}
	}

	r.ledger = replica.New(db.Path(), r.stateFile("ledger"), replica.NewClient(o.Store, "ledger"))
	err := db.Turn(ctx, func() error {
		r.ledger.Opened(ctx, db, found, func() { r.written("") })
		return nil
	})
	if err != nil {
		return nil, err
	}

	r.last = r.ledger.Last().At.UnixMilli()
	o.Databases.Watch(r)
	return r, nil
}

func (r *Replicator) stateFile(name string) string {
	return filepath.Join(r.o.Home, "replica", name+".json")
}

// follower returns the follower of an agent's database. It creates the follower if necessary.
func (r *Replicator) follower(agent string) *replica.Shipper {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := strings.ToLower(agent)
	f := r.followers[key]
	if f == nil {
		f = replica.New(filepath.Join(r.o.Home, "agents", agent, "db.sqlite"), r.stateFile("db-"+key), replica.NewClient(r.o.Store, "db/"+agent))
		r.followers[key], r.names[key] = f, agent
	}
	return f
}

// Opened implements pool.Watcher.
func (r *Replicator) Opened(agent string, db *agentdb.DB) {
	file, found := db.File()
	key := strings.ToLower(agent)
	r.follower(agent).Opened(context.Background(), file, found, func() { r.written(key) })
}

// Closed implements pool.Watcher.
func (r *Replicator) Closed(key string) {
	r.mu.Lock()
	f := r.followers[key]
	r.mu.Unlock()
	if f != nil {
		f.Closed()
	}
}

// LedgerClosed must be called after the ledger has been closed.
func (r *Replicator) LedgerClosed() { r.ledger.Closed() }

// written records a write to a database and wakes Run.
func (r *Replicator) written(key string) {
	r.mu.Lock()
	r.pending.add(key)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// State returns the progress of replication.
func (r *Replicator) State() State {
	out, agents := r.waiting()
	for _, agent := range agents { // includes agents that have no writes to copy
		if errors.As(r.o.Databases.Quarantined(agent), new(*pool.QuarantinedError)) {
			out.Unusable = append(out.Unusable, agent)
		}
	}
	return out
}

// waiting returns the State without Unusable, and the names of all agents.
func (r *Replicator) waiting() (State, []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.state
	waiting := r.pending.all()
	out.Waiting, out.Behind = len(waiting), r.pending.behind()
	for key := range waiting {
		if f := r.followers[key]; f != nil {
			out.Bytes += f.Waiting()
		} else if key == "" {
			out.Bytes += r.ledger.Waiting()
		}
	}
	return out, slices.Sorted(maps.Values(r.names))
}

// Run copies until ctx is done.
func (r *Replicator) Run(ctx context.Context) error {
	r.findChanged()
	wait := time.Duration(0)
	for {
		if wait == 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-r.wake:
			}
			wait = every // writes close together are copied together
			if r.round(ctx) == nil {
				r.pause(ctx, every)
				wait = 0
			}
			continue
		}
		r.pause(ctx, wait)
		select {
		case <-ctx.Done():
			return nil
		default:
		}
		if wait = min(2*wait, maxWait); r.round(ctx) == nil {
			wait = 0
		}
	}
}

// pause waits for d. Meanwhile, it limits the size of the databases' logs.
func (r *Replicator) pause(ctx context.Context, d time.Duration) {
	for end := time.Now().Add(d); ; {
		left := time.Until(end)
		if left <= 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(left, time.Second)):
			r.bound()
		}
	}
}

func (r *Replicator) bound() {
	for _, f := range r.all() {
		if f.Bound() {
			r.o.Logger.Warn("the log of a database became too large while it could not be shipped; the database is shipped whole once it can be, and the states between are missing in the copies", "to", r.o.To)
		}
	}
}

func (r *Replicator) all() []*replica.Shipper {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []*replica.Shipper{r.ledger}
	for _, f := range r.followers {
		out = append(out, f)
	}
	return out
}

// findChanged marks the databases that were written to before this process followed them. It does
// not open them.
func (r *Replicator) findChanged() {
	found, err := filepath.Glob(filepath.Join(r.o.Home, "agents", "*", "db.sqlite"))
	if err != nil {
		r.o.Logger.Warn("the agents' databases cannot be listed", "error", err)
	}
	for _, path := range found {
		agent := filepath.Base(filepath.Dir(path))
		f := r.follower(agent)
		r.last = max(r.last, f.Last().At.UnixMilli()) // maybe of a round that was interrupted
		if r.o.Databases.Has(agent) && !f.Shipped() {
			r.written(strings.ToLower(agent))
		}
	}
	r.written("")
	r.begun.Store(true)
}

// part is a database that is copied in a round.
type part struct {
	key     string
	prefix  string // prefix of its files in the place
	f       *replica.Shipper
	release func()
}

// errNewcomer is returned by cut if a database that is not part of the round was written to.
var errNewcomer = errors.New("databases that are not prepared were written to")

// Finish copies the last writes at shutdown, within the time limit Options.Goodbye.
func (r *Replicator) Finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(r.o.Goodbye, goodbye))
	defer cancel()
	if is, _ := r.waiting(); !r.begun.Load() || is.Waiting == 0 {
		return
	}
	if err := r.round(ctx); err != nil {
		r.o.Logger.Warn("what was written last is not copied; that is done when rouse is started again", "to", r.o.To, "error", err)
	}
}
