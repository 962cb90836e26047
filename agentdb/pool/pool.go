// Package pool opens each agent's database on first use and keeps the most recently used ones
// open. It rejects damaged databases, and restores, resets or accepts them for their owner. With
// several nodes, it keeps each database at one node at a time.
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

// Options configures a Pool.
type Options struct {
	Dir string // each agent has Dir/NAME/db.sqlite
	// MaxOpen is the number of files to keep open; files in use may exceed it. Zero means 16.
	MaxOpen int
	// IdleTimeout is the time after which an unused file is closed, which stores its checksum.
	// Zero means one minute.
	IdleTimeout time.Duration
	// Quota returns the quota in bytes and is called on each use. If it is nil or returns 0,
	// there is no limit.
	Quota func(agent string) int64
	// Backups is the number of automatic backups before schema changes to keep. Zero disables
	// them.
	Backups int
	Logger  *slog.Logger // optional
	// Ledger is the ledger of the runs that write. If nil, runs are not checked.
	Ledger lineage.Ledger
}

// Watcher is notified when a pool opens and closes files that this node may write. Opened is
// called before the database is lent. Closed is called after it was closed, with the agent's name
// in lower case. The methods must not wait for other users of the pool.
type Watcher interface {
	Opened(agent string, db *agentdb.DB)
	Closed(agent string)
}

// Pool opens agents' databases on first use.
type Pool struct {
	Recovery *Recovery

	o       Options
	watcher atomic.Pointer[Watcher] // optional
	sharing Sharing                 // nil if there are no other nodes

	mu        sync.Mutex
	entries   map[string]*poolEntry    // key: agent name in lower case, because names are folders
	idle      *list.List               // unused entries, the most recently used first
	exclusive map[string]chan struct{} // databases being replaced; closed afterwards
	// damaged holds the reasons why databases cannot be used. A nil error means that the marker
	// shows no problem.
	damaged map[string]error
	closing int // number of entries being closed
	closed  bool
}

// poolEntry is one agent's database in the pool.
type poolEntry struct {
	key     string
	ready   chan struct{} // closed after opening has ended
	closed  chan struct{} // closed after the file is closed and can be reopened
	db      *agentdb.DB
	err     error
	users   int
	lent    int           // number of times it was lent
	idle    *list.Element // nil while in use or closing
	timer   *time.Timer
	closing bool // closing has begun
	hold    Hold // lease of this node, or state of another node's copy
	stale   bool // close it as soon as it is unused
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

// agentName rejects names that could lead out of Dir.
var agentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

var errPoolClosed = errors.New("the agents' databases are closed: rouse is stopping")

// Get returns an agent's database and opens it if necessary. The caller must call release. It
// returns a *QuarantinedError if the database cannot be used.
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
		// Other callers may wait for this file, so cancelling this caller must not stop the
		// opening.
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
	// Open completes a replacement that has begun. Files of any other replacement are garbage;
	// failing to remove them does no harm.
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

// Watch sets the Watcher, which is notified of files opened from now on.
func (p *Pool) Watch(w Watcher) { p.watcher.Store(&w) }

// fault returns the reason why an entry has no usable database, or nil.
func (s *poolEntry) fault() error {
	if s.err != nil {
		return s.err
	}
	return s.db.Health.Fault()
}

// Has reports whether an agent has or had a database. If it returns false, Get creates one.
func (p *Pool) Has(agent string) bool {
	if !agentName.MatchString(agent) {
		return false
	}
	for _, path := range []string{p.path(agent), dbfile.MarkerPath(p.path(agent))} { // Get reports a lost file and does not replace it
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return p.sharing != nil && p.sharing.Known(agent)
}

// acquire adds a user to an entry. first reports whether the caller must open the file. acquire
// waits while the file is being closed or replaced.
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
		// Another node had the database or changed it.
		if s.stale = true; s.idle != nil {
			going := p.beginClose(s)
			go func() { _ = p.finishClose(going) }() // acknowledged writes are already durable
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

// release removes a user from an entry. An unused file stays open for the idle timeout, up to
// MaxOpen files. A file that could not be opened or is quarantined is closed at once.
func (p *Pool) release(s *poolEntry) {
	p.mu.Lock()
	s.users--
	if s.users > 0 {
		p.mu.Unlock()
		return
	}

	// acquireExclusive waits for the file to be closed.
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
	_ = p.finishClose(going...) // acknowledged writes are already durable
}

// opened reports whether opening has ended. The caller may have given up before that.
func (s *poolEntry) opened() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// closeIdle closes a file that was not used since the timer was set. A timer that was stopped too
// late may fire for an entry that was lent meanwhile, so closeIdle compares the count.
func (p *Pool) closeIdle(s *poolEntry, uses int) {
	p.mu.Lock()
	if s.idle == nil || s.lent != uses {
		p.mu.Unlock()
		return
	}

	p.beginClose(s)
	p.mu.Unlock()
	_ = p.finishClose(s) // acknowledged writes are already durable
}

// beginClose starts closing an unused entry. The caller must hold the lock, and call finishClose
// without it, because closing reads the whole file for its checksum.
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

// Close closes unused databases at once. Databases in use are closed when they are released.
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

// acquireExclusive waits until an agent's database is unused and blocks other users until end is
// called.
func (p *Pool) acquireExclusive(ctx context.Context, agent string) (end func(), err error) {
	key := strings.ToLower(agent)
	mine := make(chan struct{})

	// Several callers may want exclusive use; they get it one after the other.
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

	// From here on, tryAcquire makes new users wait. Current users finish.
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
