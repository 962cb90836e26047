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
	// every is how far apart rounds are, at least: what is written meanwhile goes with the next.
	every = time.Second
	// maxWait is how long is waited before a place that failed is tried again, at most.
	maxWait = time.Minute
	// upkeepEvery is how often what is in the place is looked through, at most, while something is shipped.
	upkeepEvery = time.Hour
	compactAt   = 64 // transactions of a database after which they are merged
	goodbye     = 10 * time.Second
	// together is how many databases are open for a round, about: each has eight descriptors.
	together = 64
	// jump is by how much the wall clock may be ahead of the time that has passed before it is not believed for a while.
	jump = 5 * time.Minute
)

// Options say what is shipped, and to where.
type Options struct {
	Home      string
	Ledger    *ledger.Ledger
	Databases *pool.Pool
	Store     replica.Store
	To        string // the place in words
	Keep      time.Duration
	Allowed   func() error // refuses a place that others may write, each time before it is used
	Info      func(context.Context) (backup.Info, error)
	Configs   func() ([]backup.Config, error)
	Logger    *slog.Logger
	Now       func() time.Time // the wall clock; nil means the system's
	Goodbye   time.Duration    // how long the place has for the last round when rouse ends; 0 means 10 s
}

// State is how far the shipping is.
type State struct {
	To          string
	LastSuccess time.Time     // zero: never, since rouse was started
	Behind      time.Duration // since the oldest write that is not shipped; 0: all is
	Waiting     int           // databases with something that is not shipped
	Bytes       int64         // of their logs, about
	Problem     string        // why the last round failed; "": it did not
	Unusable    []string      // databases that are quarantined, and so not shipped
}

// Replicator ships a home.
type Replicator struct {
	o      Options
	ledger *replica.Follower
	files  files
	wake   chan struct{} // capacity 1
	rounds sync.Mutex    // held while a round is made

	begun   atomic.Bool // what was written before is known
	claimed bool
	last    int64 // the instant of the last round, in milliseconds
	clock   wallClock
	roomFor time.Time            // when room was made in a place that took nothing
	shipped map[string]int       // transactions since the last merge, by database; "" is the ledger
	tended  map[string]time.Time // when what the place has of it was looked through

	mu        sync.Mutex
	followers map[string]*replica.Follower // by the agent in lower case
	names     map[string]string            // of agents, as their folders have them
	pending   pending
	state     State
	unusable  map[string]bool // databases that are quarantined, and so not prepared
}

// New follows the ledger and each database that the pool opens from now on. Nothing was written to them by this process.
func New(ctx context.Context, o Options) (*Replicator, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	db, found, ok := o.Ledger.File()
	if !ok {
		return nil, errors.New("a ledger on PostgreSQL is copied by its server: leave replicate out")
	}
	r := &Replicator{o: o, wake: make(chan struct{}, 1), shipped: map[string]int{}, tended: map[string]time.Time{}, followers: map[string]*replica.Follower{}, names: map[string]string{}, pending: pending{dirty: map[string]bool{}, onTheWay: map[string]bool{}}, unusable: map[string]bool{}}
	r.files = files{store: o.Store, home: o.Home, configs: o.Configs}
	r.clock = wallClock{now: o.Now, log: o.Logger}
	r.state.To = o.To

	for _, left := range []string{"base-*", "file-*", "storage-*"} { // of a process that was killed
		paths, err := filepath.Glob(filepath.Join(o.Home, "replica", left))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			_ = os.RemoveAll(path) // it only takes space
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

// follower is that of an agent's database.
func (r *Replicator) follower(agent string) *replica.Follower {
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

// LedgerClosed is told once the ledger is closed.
func (r *Replicator) LedgerClosed() { r.ledger.Closed() }

// written is told of each write.
func (r *Replicator) written(key string) {
	r.mu.Lock()
	r.pending.add(key)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// State is how far the shipping is.
func (r *Replicator) State() State {
	out, agents := r.waiting()
	for _, agent := range agents { // not those alone that something was to be copied of
		if errors.As(r.o.Databases.Quarantined(agent), new(*pool.QuarantinedError)) {
			out.Unusable = append(out.Unusable, agent)
		}
	}
	return out
}

// waiting is the State without the databases that cannot be used, and those that there are, by their agents.
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

// Run ships until ctx ends.
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
			wait = every // what is written together goes together
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

// pause waits, and keeps the logs in their bounds meanwhile.
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

func (r *Replicator) all() []*replica.Follower {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []*replica.Follower{r.ledger}
	for _, f := range r.followers {
		out = append(out, f)
	}
	return out
}

// findChanged marks what was written while nobody followed. No database is opened for it.
func (r *Replicator) findChanged() {
	found, err := filepath.Glob(filepath.Join(r.o.Home, "agents", "*", "db.sqlite"))
	if err != nil {
		r.o.Logger.Warn("the agents' databases cannot be listed", "error", err)
	}
	for _, path := range found {
		agent := filepath.Base(filepath.Dir(path))
		f := r.follower(agent)
		r.last = max(r.last, f.Last().At.UnixMilli()) // of a round that was cut off, maybe
		if r.o.Databases.Has(agent) && !f.Shipped() {
			r.written(strings.ToLower(agent))
		}
	}
	r.written("")
	r.begun.Store(true)
}

// part is a database that is shipped in a round.
type part struct {
	key     string
	prefix  string // of its files in the place
	f       *replica.Follower
	release func()
}

// errNewcomer says that a database was written to which is not prepared.
var errNewcomer = errors.New("databases that are not prepared were written to")

// Finish ships what was written last. It waits for no place that does not answer.
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
