package placement

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/pool"
	"rouse/internal/ledger"
	"rouse/internal/ledger/node"
	"rouse/internal/storage/dbfile"
	"rouse/internal/storage/replica"
)

const (
	// tendEvery is the number of writes between two merges of a database's shipped files. The
	// first write of a process also starts a merge.
	tendEvery = 64
	// shipFor is the timeout for shipping. It does not end with the caller's context, because the
	// result of an upload in progress must be known.
	shipFor = 10 * time.Minute
	// closeFor is how long Close waits for merges. The next process repeats an unfinished merge.
	closeFor = 5 * time.Second
)

// Options configures a Manager.
type Options struct {
	Ledger  *ledger.Ledger // in PostgreSQL
	Node    string         // name of this node
	Agents  string         // folder with AGENT/db.sqlite, and AGENT/work for agents that create files
	Storage string         // folder with the data of skills: AGENT/SKILL.db
	State   string         // folder for lease notes and shipping state
	Logger  *slog.Logger
}

// Manager ships the databases of its node's agents and fetches those of agents that move to it.
type Manager struct {
	o       Options
	pool    *pool.Pool
	tending sync.WaitGroup
	stop    context.CancelFunc
	running context.Context //nolint:containedctx // for work between calls

	mu     sync.Mutex
	agents map[string]*agent // key: agent name
}

// agent is one agent's database.
type agent struct {
	name string
	path string // path of the database

	mu      sync.Mutex // held while the database is fetched or shipped
	shipper *replica.Shipper
	store   *store

	keeping sync.Mutex // held while checking for files and recording the result
	alone   bool       // this process recorded that the agent has files; guarded by keeping

	asked sync.Mutex
	state node.HomeState // last known state in the ledger
	// wanted counts requests to ship, done the requests that were served. One shipment serves all
	// earlier requests.
	wanted, done uint64
	writes       int
	tended       bool // a merge is running
}

// New returns a Manager that shares a pool with other nodes. The pool must not have opened any
// database yet.
func New(ctx context.Context, pool *pool.Pool, o Options) *Manager {
	k := &Manager{o: o, pool: pool, agents: map[string]*agent{}}
	if k.o.Logger == nil {
		k.o.Logger = slog.New(slog.DiscardHandler)
	}
	k.running, k.stop = context.WithCancel(context.WithoutCancel(ctx))
	k.removeLeft()
	pool.Share(k)
	pool.Watch(k)
	return k
}

// Close waits a short time for running merges, then stops them. Close the pool first.
func (k *Manager) Close() {
	over := make(chan struct{})
	go func() {
		k.tending.Wait()
		close(over)
	}()

	var lost <-chan struct{} // a node that lost its lease does not wait
	if m := k.o.Ledger.Nodes.Membership(); m != nil {
		lost = m.Lost()
	}
	select {
	case <-over:
	case <-lost:
	case <-time.After(closeFor):
	}
	k.stop()
	<-over
}

// removeLeft removes temporary copies of databases from a process that was killed while shipping.
func (k *Manager) removeLeft() {
	left, err := filepath.Glob(filepath.Join(k.o.State, "base-*"))
	if err != nil {
		return // the pattern is valid
	}
	for _, path := range left {
		_ = os.RemoveAll(path) // it only takes space
	}
}

func (k *Manager) agent(name string) *agent {
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.agents[name]
	if a == nil {
		a = &agent{name: name, path: filepath.Join(k.o.Agents, name, "db.sqlite"), store: &store{}, writes: tendEvery - 1}
		a.shipper = replica.New(a.path, k.stateFile("agent-"+name+".json"), replica.NewClient(a.store, database))
		k.agents[name] = a
	}
	return a
}

func (k *Manager) stateFile(name string) string { return filepath.Join(k.o.State, name) }

// Hold implements pool.Sharing.
func (k *Manager) Hold(ctx context.Context, name string) (pool.Hold, error) {
	home, err := k.o.Ledger.Nodes.AgentHome(ctx, name, k.o.Node)
	if err != nil {
		return pool.Hold{}, err
	}
	k.agent(name).setState(home.State)
	if home.Node == k.o.Node {
		return pool.Hold{Lease: home.Lease}, nil
	}

	as, err := k.o.Ledger.Nodes.AgentCopies(home).Newest(ctx, singles)
	if err != nil {
		return pool.Hold{}, err
	}
	if as == "" && home.State != node.HomeKept {
		return pool.Hold{}, &node.AgentElsewhereError{Agent: name, Node: home.Node}
	}
	return pool.Hold{Lease: home.Lease, Node: home.Node, As: as}, nil
}

func (a *agent) setState(s node.HomeState) {
	a.asked.Lock()
	defer a.asked.Unlock()
	a.state = s
}

func (a *agent) homeState() node.HomeState {
	a.asked.Lock()
	defer a.asked.Unlock()
	return a.state
}

// Known implements pool.Sharing.
func (k *Manager) Known(name string) bool {
	ctx, cancel := context.WithTimeout(k.running, knownFor)
	defer cancel()
	newest, err := k.o.Ledger.Nodes.AgentCopies(node.AgentHome{Agent: name}).Newest(ctx, singles)
	return err == nil && newest != ""
}

// Elsewhere implements pool.Sharing.
func (k *Manager) Elsewhere(name string) bool {
	ctx, cancel := context.WithTimeout(k.running, knownFor)
	defer cancel()
	h, err := k.Hold(ctx, name)
	return err == nil && h.Node != ""
}

// Fetch implements pool.Sharing.
func (k *Manager) Fetch(ctx context.Context, name string, h pool.Hold) error {
	a := k.agent(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	copies := k.o.Ledger.Nodes.AgentCopies(node.AgentHome{Agent: name, Node: k.o.Node, Lease: h.Lease})
	newest, err := copies.Newest(ctx, singles)
	if err != nil {
		return err
	}
	mine, shipped := h.Node == "", version(newest)
	switch {
	// Continue with the local file. This requires the last shipped version: with another version,
	// the file or the ledger was restored from an older state.
	case mine && k.lease(a).holds(h.Lease) && a.shipper.Last() == shipped && (shipped.TX == 0 || a.exists()):
		return nil
	case shipped.TX == 0 && mine && a.homeState() != node.HomeKept: // only this node ever had it
	case shipped.TX == 0: // no write was ever acknowledged
		err = k.discard(a)
	case a.shipper.Holds(ctx, shipped):
	default:
		err = k.restore(ctx, a, copies)
	}
	if err != nil {
		return err
	}
	if !mine {
		return k.lease(a).write(readHere)
	}
	return k.lease(a).write(h.Lease)
}

// exists reports whether the agent has or had a database here.
func (a *agent) exists() bool {
	_, err := os.Stat(a.path)
	_, marked := os.Stat(dbfile.MarkerPath(a.path))
	return err == nil || marked == nil
}

// Bring fetches all shipped databases for a home that moves its ledger back into a file. It skips
// databases that this node already has. left maps each agent with files at another node to that
// node.
func (k *Manager) Bring(ctx context.Context, progress func(agent string)) (left map[string]string, err error) {
	homes, err := k.o.Ledger.Nodes.AgentHomes(ctx)
	if err != nil {
		return nil, err
	}
	left = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(homes)) {
		h := homes[name]
		a := k.agent(name)
		a.setState(h.State)
		if h.Node == k.o.Node && (h.State != node.HomeKept || k.lease(a).holds(h.Lease)) {
			continue
		}

		if !h.State.Free() {
			left[name] = h.Node
		}
		newest, err := k.o.Ledger.Nodes.AgentCopies(h).Newest(ctx, singles)
		if err != nil {
			return left, err
		}
		if newest == "" {
			continue
		}
		progress(name)
		if err := k.Fetch(ctx, name, pool.Hold{Lease: h.Lease, Node: h.Node, As: newest}); err != nil {
			return left, fmt.Errorf("the database of %s: %w", name, err)
		}
	}
	return left, nil
}

// restore replaces the file by the last shipped state. The old file's writes were shipped or
// never acknowledged. If this node did not get the old file from the ledger, restore keeps it.
func (k *Manager) restore(ctx context.Context, a *agent, copies node.AgentCopies) error {
	if err := os.MkdirAll(filepath.Dir(a.path), 0o700); err != nil {
		return err
	}
	to := a.path + dbfile.NewSuffix

	var version replica.Version
	for tries := 0; ; tries++ {
		if err := dbfile.DiscardNew(a.path); err != nil {
			return err
		}
		var err error
		if version, err = restoreNewest(ctx, copies, to); err == nil {
			break
		}
		// The node that has the database is merging its shipped files.
		if !errors.Is(err, fs.ErrNotExist) || tries == restoreTries {
			return errors.Join(err, dbfile.DiscardNew(a.path))
		}
	}

	m, err := dbfile.ClosedMarker(to)
	if err == nil {
		err = errors.Join(syncFile(to), dbfile.WriteMarker(to, m))
	}
	if err != nil {
		return errors.Join(err, dbfile.DiscardNew(a.path))
	}
	if err := k.replace(a, a.shipper.Last().TX > version.TX); err != nil {
		return err
	}
	k.o.Logger.Info("the database of an agent was brought here", "agent", a.name, "node", k.o.Node, "as", version.TX.String())
	return a.shipper.Restored(version)
}

// replace puts the new file in place of the current one. newer reports whether the current file
// is newer than the ledger's state.
func (k *Manager) replace(a *agent, newer bool) error {
	aside := dbfile.AsidePath()
	if err := dbfile.Replace(a.path, aside); err != nil {
		return err
	}
	return k.drop(a, aside, newer)
}

// drop removes a replaced file if this node got it from the ledger, which still has its content.
func (k *Manager) drop(a *agent, aside string, newer bool) error {
	kept := filepath.Join(filepath.Dir(a.path), aside)
	if _, err := os.Stat(filepath.Join(kept, filepath.Base(a.path))); err == nil && (newer || !k.lease(a).exists()) {
		k.o.Logger.Warn("another database of an agent was here before it came, and is kept", "agent", a.name, "at", kept)
		return nil
	}
	if err := os.RemoveAll(kept); err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(kept)) // fails unless the folder is empty
	return nil
}

// discard moves the file aside, because none of its writes was acknowledged.
func (k *Manager) discard(a *agent) error {
	if err := dbfile.DiscardNew(a.path); err != nil {
		return err
	}
	if _, err := os.Stat(a.path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	aside := dbfile.AsidePath()
	kept := filepath.Join(filepath.Dir(a.path), aside)
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return err
	}
	for _, part := range []string{"-journal", "-shm", "-wal", "-seal", ""} { // the database last, so that a crash repeats the move
		if err := os.Rename(a.path+part, filepath.Join(kept, filepath.Base(a.path)+part)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return k.drop(a, aside, a.shipper.Last().TX > 0)
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// readHere is the lease number of a file that is read-only here.
const readHere = 0

// lease returns the note of the lease under which this node has or had an agent's database.
func (k *Manager) lease(a *agent) leaseNote {
	return leaseNote{path: k.stateFile("agent-" + a.name + ".lease"), owner: k.o.Ledger.Epochs()[0].ID + " " + a.name + " "}
}

// Opened implements pool.Watcher.
func (k *Manager) Opened(name string, db *agentdb.DB) {
	file, found := db.File()
	k.agent(name).shipper.Opened(k.running, file, found, func() {})
}

// Closed implements pool.Watcher.
func (k *Manager) Closed(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, a := range k.agents {
		if strings.EqualFold(name, key) {
			a.shipper.Closed()
		}
	}
}

// Ship implements pool.Sharing.
func (k *Manager) Ship(ctx context.Context, name string, h pool.Hold) error {
	a := k.agent(name)
	a.asked.Lock()
	a.wanted++
	mine := a.wanted
	a.asked.Unlock()

	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done >= mine {
		return nil
	}
	a.asked.Lock()
	all := a.wanted
	a.asked.Unlock()
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shipFor)
	defer cancel()
	if err := k.ship(sending, a, h); err != nil {
		return err
	}
	a.done = all
	return nil
}

// ship ships everything committed so far.
func (k *Manager) ship(ctx context.Context, a *agent, h pool.Hold) error {
	copies := k.o.Ledger.Nodes.AgentCopies(node.AgentHome{Agent: a.name, Node: k.o.Node, Lease: h.Lease})
	a.store.set(copies)
	if err := a.shipper.Prepare(ctx); err != nil {
		return err
	}
	if err := a.shipper.Cut(ctx); err != nil {
		return err
	}
	n, err := a.shipper.Ship(ctx, k.o.Ledger.Now().UnixMilli())
	if err != nil {
		return err
	}
	if err := a.shipper.Drain(ctx); err != nil {
		return err
	}

	if err := k.keep(ctx, a, copies); err != nil {
		return err
	}
	if a.writes += n; a.writes >= tendEvery && !a.tended {
		a.writes, a.tended = 0, true
		k.tending.Go(func() { k.tend(a, copies) })
	}
	return nil
}

// version returns the version of a shipped object, or the zero version if name is not an object.
func version(name string) replica.Version {
	v, ok := replica.VersionOf(strings.TrimPrefix(name, singles))
	if !ok {
		return replica.Version{At: time.UnixMilli(0).UTC()}
	}
	return v
}
