// Package pool opens each agent's database when it is first asked for, and keeps the most recently
// used ones open. It refuses databases that are damaged, and restores, resets or accepts them for
// their owner. With several nodes, it keeps each database at one node at a time.
package pool

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/lineage"
	"rouse/internal/storage/dbfile"
)

const (
	defaultMaxOpen     = 16
	defaultIdleTimeout = time.Minute
)

// Options say where the agents' databases are and how many stay open.
type Options struct {
	Dir         string                   // each agent has Dir/NAME/db.sqlite
	MaxOpen     int                      // open files kept; 0 means 16. More are open only while in use.
	IdleTimeout time.Duration            // an unused file is closed after this time, and so gets its checksum; 0 means a minute
	Quota       func(agent string) int64 // bytes, asked each time; nil, or 0, means no limit
	// Backups is how many copies are kept of those that are made before a schema changes;
	// 0 means that none are made.
	Backups int
	Logger  *slog.Logger   // nil: nothing is logged
	Ledger  lineage.Ledger // the one whose runs write; nil stands for one of which nothing is known
}

// Watcher hears of the files of a pool; of those that are closed by the agent's name in lower case.
// Its methods are called before somebody is lent the database, and after it was closed, and must
// not wait for others.
type Watcher interface {
	Opened(agent string, db *agentdb.DB)
	Closed(agent string)
}

// Pool opens agents' databases when they are first asked for.
type Pool struct {
	Recovery *Recovery

	o       Options
	watcher atomic.Pointer[Watcher] // nil: nobody hears of it
	sharing Sharing                 // nil: no other node has any of the databases

	mu        sync.Mutex
	entries   map[string]*poolEntry    // by the agent's name in lower case: names are folders
	idle      *list.List               // entries that nobody uses, the most recently used first
	exclusive map[string]chan struct{} // databases that are being replaced; closed when that is over
	damaged   map[string]error         // why databases cannot be used; nil: nothing is wrong as far as the marker says
	closing   int                      // entries that are being closed
	closed    bool
}

// poolEntry is one agent's database in the pool.
type poolEntry struct {
	key     string
	ready   chan struct{} // closed when opening has ended
	closed  chan struct{} // closed when the file is, and can be opened again
	db      *agentdb.DB
	err     error
	users   int
	lent    int           // how often it was lent
	idle    *list.Element // nil while it is in use or being closed
	timer   *time.Timer
	closing bool // it is being closed
	hold    Hold // as what it is here
	stale   bool // it is to be closed as soon as nobody uses it
}

// New returns a pool. It opens no database.
func New(o Options) (*Pool, error) {
	if o.Dir == "" {
		return nil, errors.New("agentdb: a pool needs the folder of the agents")
	}

	if o.MaxOpen <= 0 {
		o.MaxOpen = defaultMaxOpen
	}

	if o.IdleTimeout <= 0 {
		o.IdleTimeout = defaultIdleTimeout
	}

	if o.Quota == nil {
		o.Quota = func(string) int64 { return 0 }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}

	p := &Pool{o: o, entries: map[string]*poolEntry{}, idle: list.New(), exclusive: map[string]chan struct{}{}, damaged: map[string]error{}}
	p.Recovery = &Recovery{p}
	return p, nil
}

// agentName keeps names that are not the configuration's from leading out of Dir.
var agentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

var errPoolClosed = errors.New("the agents' databases are closed: rouse is stopping")

// Get lends an agent's database until release is called, opening it if need be. One that
// cannot be used is a *QuarantinedError.
func (p *Pool) Get(ctx context.Context, agent string) (db *agentdb.DB, release func(), err error) {
	if err := checkAgent(agent); err != nil {
		return nil, nil, err
	}

	hold, err := p.hold(ctx, agent)
	if err != nil {
		return nil, nil, err
	}
	s, first, err := p.acquire(ctx, strings.ToLower(agent), hold)
	if err != nil {
		return nil, nil, err
	}

	if first {
		// Others may wait for this file, so it is opened whatever becomes of this caller.
		s.db, s.err = p.openFor(context.WithoutCancel(ctx), agent, hold)
		close(s.ready)
	}

	var once sync.Once
	release = func() { once.Do(func() { p.release(s) }) }
	select {
	case <-s.ready:
	case <-ctx.Done():
		release()
		return nil, nil, context.Cause(ctx)
	}

	if err := s.fault(); err != nil {
		release()
		return nil, nil, p.recordUnusable(agent, err)
	}

	p.mu.Lock()
	delete(p.damaged, s.key) // it was repaired
	p.mu.Unlock()
	s.db.Quota.Set(p.o.Quota(agent))

	return s.db, release, nil
}

func checkAgent(agent string) error {
	if !agentName.MatchString(agent) {
		return fmt.Errorf("%q is not the name of an agent", agent)
	}
	return nil
}

func (p *Pool) path(agent string) string { return filepath.Join(p.o.Dir, agent, "db.sqlite") }

func (p *Pool) openFor(ctx context.Context, agent string, hold Hold) (*agentdb.DB, error) {
	if err := p.fetch(ctx, agent, hold); err != nil {
		return nil, err
	}

	path := p.path(agent)
	// A replacement that was begun is completed by Open; what is left of any other is waste,
	// which does no harm if it cannot be removed.
	if s, err := dbfile.ReadMarker(path); err == nil && s.State != dbfile.StateReplacing {
		_ = dbfile.DiscardNew(path)
	}
	db, err := agentdb.Open(ctx, agentdb.Options{Path: path, Quota: p.o.Quota(agent), Agent: agent, Backups: p.o.Backups, Logger: p.o.Logger, Ledger: p.o.Ledger})
	if err != nil {
		return nil, err
	}

	p.share(agent, db, hold)
	if w := p.watcher.Load(); w != nil && hold.Node == "" {
		(*w).Opened(agent, db)
	}
	return db, nil
}

// Watch has w hear of each file that is opened from now on.
func (p *Pool) Watch(w Watcher) { p.watcher.Store(&w) }

// fault is why an entry has no database to lend.
func (s *poolEntry) fault() error {
	if s.err != nil {
		return s.err
	}
	return s.db.Health.Fault()
}

// Has says whether an agent has a database already, or had one; asking for it with Get
// makes one if it never had.
func (p *Pool) Has(agent string) bool {
	if !agentName.MatchString(agent) {
		return false
	}
	for _, path := range []string{p.path(agent), dbfile.MarkerPath(p.path(agent))} { // a lost file is reported by Get, not replaced
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return p.sharing != nil && p.sharing.Known(agent)
}

// acquire counts a user in; first says that the caller has to open the file. A file that is
// being closed or replaced is waited for.
func (p *Pool) acquire(ctx context.Context, key string, hold Hold) (s *poolEntry, first bool, err error) {
	for {
		s, first, wait, err := p.tryAcquire(key, hold)
		if wait == nil {
			return s, first, err
		}

		select {
		case <-wait:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

func (p *Pool) tryAcquire(key string, hold Hold) (s *poolEntry, first bool, wait <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.closed {
		return nil, false, nil, errPoolClosed
	}
	if over, ok := p.exclusive[key]; ok {
		return nil, false, over, nil
	}

	s = p.entries[key]
	switch {
	case s == nil:
		s, first = &poolEntry{key: key, hold: hold, ready: make(chan struct{}), closed: make(chan struct{})}, true
		p.entries[key] = s
	case s.closing:
		return nil, false, s.closed, nil
	case !s.serves(hold):
		// Another node has had it, or changed it.
		if s.stale = true; s.idle != nil {
			going := p.beginClose(s)
			go func() { _ = p.finishClose(going) }() // every write in it was durable before it was acknowledged
		}
		return nil, false, s.closed, nil
	case s.idle != nil:
		p.idle.Remove(s.idle)
		s.idle = nil
		s.timer.Stop()
	}

	s.users++
	s.lent++
	return s, first, nil, nil
}

// release counts a user out. An unused file stays open for the idle time, up to MaxOpen files. A
// file that could not be opened, or is quarantined, is closed at once.
func (p *Pool) release(s *poolEntry) {
	p.mu.Lock()
	s.users--
	if s.users > 0 {
		p.mu.Unlock()
		return
	}

	// Whoever wants the file exclusively waits for it to be closed.
	_, wanted := p.exclusive[s.key]
	var going []*poolEntry
	if p.closed || wanted || s.stale || !s.opened() || s.fault() != nil {
		going = append(going, p.beginClose(s))
	} else {
		s.idle = p.idle.PushFront(s)
		uses := s.lent
		s.timer = time.AfterFunc(p.o.IdleTimeout, func() { p.closeIdle(s, uses) })
	}

	for len(p.entries)-p.closing > p.o.MaxOpen && p.idle.Len() > 0 {
		going = append(going, p.beginClose(p.idle.Back().Value.(*poolEntry)))
	}

	p.mu.Unlock()
	_ = p.finishClose(going...) // every write in them was durable before it was acknowledged
}

// opened is false while the file is being opened: its caller may have given up before that.
func (s *poolEntry) opened() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// closeIdle closes a file that nobody was given since the timer was set. A timer that could not
// be stopped in time may fire for an entry that was lent meanwhile, so the count is compared.
func (p *Pool) closeIdle(s *poolEntry, uses int) {
	p.mu.Lock()
	if s.idle == nil || s.lent != uses {
		p.mu.Unlock()
		return
	}

	p.beginClose(s)
	p.mu.Unlock()
	_ = p.finishClose(s) // every write in it was durable before it was acknowledged
}

// beginClose begins to close an entry that nobody uses. The caller holds the lock, and calls
// finishClose without it, because closing reads the whole file for its checksum.
func (p *Pool) beginClose(s *poolEntry) *poolEntry {
	if s.idle != nil {
		p.idle.Remove(s.idle)
		s.idle = nil
		s.timer.Stop()
	}

	s.closing = true
	p.closing++
	return s
}

func (p *Pool) finishClose(going ...*poolEntry) error {
	var errs []error
	for _, s := range going {
		if s.db != nil {
			errs = append(errs, s.db.Close())
			if w := p.watcher.Load(); w != nil && s.hold.Node == "" {
				(*w).Closed(s.key)
			}
		}

		p.mu.Lock()
		delete(p.entries, s.key)
		p.closing--
		p.mu.Unlock()
		close(s.closed)
	}

	return errors.Join(errs...)
}

// Close closes what nobody uses at once, and the rest when it is released.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	var going []*poolEntry
	for p.idle.Len() > 0 {
		going = append(going, p.beginClose(p.idle.Back().Value.(*poolEntry)))
	}

	var others []*poolEntry
	for _, s := range p.entries {
		if s.closing {
			others = append(others, s)
		}
	}

	p.mu.Unlock()
	err := p.finishClose(going...)
	for _, s := range others {
		<-s.closed
	}

	return err
}

// acquireExclusive waits until nobody uses an agent's database, and keeps everybody from it until
// end is called.
func (p *Pool) acquireExclusive(ctx context.Context, agent string) (end func(), err error) {
	key := strings.ToLower(agent)
	mine := make(chan struct{})

	// Several may want it at once; one after the other gets it.
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, errPoolClosed
		}

		before, busy := p.exclusive[key]
		if !busy {
			p.exclusive[key] = mine
			break
		}

		p.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}

	// From here on tryAcquire makes newcomers wait. Those who use the file already finish.
	s := p.entries[key]
	idle := s != nil && s.idle != nil
	if idle {
		p.beginClose(s)
	}

	p.mu.Unlock()
	end = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.exclusive, key)
		delete(p.damaged, key)
		close(mine)
	}

	if idle {
		if err := p.finishClose(s); err != nil {
			end()
			return nil, err
		}
	}

	if s == nil {
		return end, nil
	}

	select {
	case <-s.closed:
		return end, nil
	case <-ctx.Done():
		end()
		return nil, context.Cause(ctx)
	}
}
