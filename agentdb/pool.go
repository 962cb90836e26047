package agentdb

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

const defaultOpen = 16

// PoolOptions say where the agents' databases are and how many stay open.
type PoolOptions struct {
	Dir   string                   // each agent has Dir/NAME/db.sqlite
	Max   int                      // open files kept; 0 means 16. More are open only while in use.
	Quota func(agent string) int64 // bytes, asked anew each time; nil, or 0, means no limit
}

// Pool opens agents' databases when they are first asked for.
type Pool struct {
	o PoolOptions

	mu     sync.Mutex
	slots  map[string]*slot // by the agent's name in lower case: names are folders
	idle   *list.List       // of slots that nobody uses, the most recently used first
	closed bool
}

// slot is one agent's place in the pool. ready is closed when opening has ended.
type slot struct {
	key   string
	ready chan struct{}
	db    *DB
	err   error
	users int
	idle  *list.Element
}

// NewPool opens nothing.
func NewPool(o PoolOptions) (*Pool, error) {
	if o.Dir == "" {
		return nil, errors.New("agentdb: a pool needs the folder of the agents")
	}
	if o.Max <= 0 {
		o.Max = defaultOpen
	}
	if o.Quota == nil {
		o.Quota = func(string) int64 { return 0 }
	}
	return &Pool{o: o, slots: map[string]*slot{}, idle: list.New()}, nil
}

// agentName keeps names that are not the configuration's from leading out of Dir.
var agentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// Get lends an agent's database until release is called, opening it if need be.
func (p *Pool) Get(ctx context.Context, agent string) (db *DB, release func(), err error) {
	if !agentName.MatchString(agent) {
		return nil, nil, fmt.Errorf("%q is not the name of an agent", agent)
	}
	s, first, err := p.enter(strings.ToLower(agent))
	if err != nil {
		return nil, nil, err
	}
	if first {
		// Others may wait for this file, so it is opened whatever becomes of this caller.
		s.db, s.err = Open(context.WithoutCancel(ctx), Options{Path: filepath.Join(p.o.Dir, agent, "db.sqlite"), Quota: p.o.Quota(agent)})
		close(s.ready)
	}
	var once sync.Once
	release = func() { once.Do(func() { p.leave(s) }) }
	select {
	case <-s.ready:
	case <-ctx.Done():
		release()
		return nil, nil, context.Cause(ctx)
	}
	if s.err != nil {
		release()
		return nil, nil, fmt.Errorf("the database of agent %s: %w", agent, s.err)
	}
	s.db.quota.set(p.o.Quota(agent))
	return s.db, release, nil
}

// Has says whether an agent has a database already; asking for it with Get makes one.
func (p *Pool) Has(agent string) bool {
	_, err := os.Stat(filepath.Join(p.o.Dir, agent, "db.sqlite"))
	return agentName.MatchString(agent) && err == nil
}

// enter counts a user in; first says that the caller has to open the file.
func (p *Pool) enter(key string) (s *slot, first bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, false, errors.New("the agents' databases are closed: rouse is stopping")
	}
	s = p.slots[key]
	if s == nil {
		s, first = &slot{key: key, ready: make(chan struct{})}, true
		p.slots[key] = s
	}
	if s.idle != nil {
		p.idle.Remove(s.idle)
		s.idle = nil
	}
	s.users++
	return s, first, nil
}

// leave counts a user out. What nobody uses stays open for the next, up to Max files; a
// file that could not be opened is tried anew by the next.
func (p *Pool) leave(s *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.users--
	if s.users > 0 {
		return
	}
	s.idle = p.idle.PushFront(s)
	if p.closed || s.err != nil || s.db == nil {
		_ = p.drop(s) // every write in it was durable before it was acknowledged
	}
	for len(p.slots) > p.o.Max && p.idle.Len() > 0 {
		_ = p.drop(p.idle.Back().Value.(*slot)) // every write in it was durable before it was acknowledged
	}
}

// drop closes a slot that nobody uses. The lock is held while the file closes, so that it
// cannot be opened anew before its writer has ended.
func (p *Pool) drop(s *slot) error {
	p.idle.Remove(s.idle)
	delete(p.slots, s.key)
	if s.db == nil {
		return nil
	}
	return s.db.Close()
}

// Close closes what nobody uses at once, and the rest when it is released.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var errs []error
	for p.idle.Len() > 0 {
		errs = append(errs, p.drop(p.idle.Back().Value.(*slot)))
	}
	return errors.Join(errs...)
}
