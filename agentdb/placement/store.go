package placement

import (
	"context"
	"errors"
	"io"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/benbjohnson/litestream"

	"rouse/internal/ledger"
	"rouse/internal/ledger/node"
	"rouse/internal/storage/replica"
)

const (
	// database is the prefix of the shipped files of a database, singles that of single
	// transactions.
	database = "db"
	singles  = database + "/0/"

	knownFor     = 2 * time.Second // timeout of the ledger queries in Known and Elsewhere
	restoreTries = 5
	// mergeAt is the minimum size, in bytes, of the transactions since the last snapshot for a new
	// snapshot. They must also be as large as that snapshot. A new snapshot replaces older files.
	mergeAt = 4 << 20
)

// store is a replica.Store for the copies of one agent.
type store struct {
	mu     sync.Mutex
	copies node.AgentCopies
}

var _ replica.Store = (*store)(nil)

func (s *store) set(c node.AgentCopies) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copies = c
}

func (s *store) get() node.AgentCopies {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copies
}

// Put implements replica.Store.
func (s *store) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	return s.get().Put(ctx, name, r, size)
}

// Get implements replica.Store.
func (s *store) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	return s.get().Get(ctx, name, offset, length)
}

// List implements replica.Store.
func (s *store) List(ctx context.Context, prefix, after string) ([]replica.Object, error) {
	found, err := s.get().List(ctx, prefix, after)
	out := make([]replica.Object, len(found))
	for i, o := range found {
		out[i] = replica.Object(o)
	}
	return out, err
}

// Delete implements replica.Store.
func (s *store) Delete(ctx context.Context, names ...string) error {
	return s.get().Delete(ctx, names...)
}

// restoreNewest writes the last shipped state to a new file.
func restoreNewest(ctx context.Context, copies node.AgentCopies, to string) (replica.Version, error) {
	client := replica.NewClient(&store{copies: copies}, database)
	versions, err := replica.Versions(ctx, client)
	if err != nil {
		return replica.Version{}, err
	}
	if len(versions) == 0 {
		return replica.Version{}, errors.New("nothing is shipped")
	}
	newest := versions[len(versions)-1]
	return newest, replica.Restore(ctx, client, newest.TX, to)
}

// tend merges the shipped files of a database, which limits their size and the number of objects
// to restore. It does nothing if another node has the database by now.
func (k *Manager) tend(a *agent, copies node.AgentCopies) {
	err := tend(k.running, copies, k.o.Ledger.Now())
	a.mu.Lock()
	a.tended = false
	a.mu.Unlock()
	if err != nil && !errors.As(err, new(*node.AgentElsewhereError)) && !errors.Is(err, ledger.ErrLeaseLost) && k.running.Err() == nil {
		k.o.Logger.Warn("what was shipped of an agent's database could not be merged; it is tried again", "agent", a.name, "error", err)
	}
}

func tend(ctx context.Context, copies node.AgentCopies, now time.Time) error {
	objects, err := copies.List(ctx, database+"/", "")
	if err != nil {
		return err
	}
	var whole, since int64
	from := ""
	for _, o := range objects {
		level, name, _ := strings.Cut(strings.TrimPrefix(o.Name, database+"/"), "/")
		if level == strconv.Itoa(litestream.SnapshotLevel) {
			_, to, _ := strings.Cut(strings.TrimSuffix(path.Base(name), ".ltx"), "-")
			whole, from = o.Bytes, to
		}
	}
	for _, o := range objects {
		if name, single := strings.CutPrefix(o.Name, singles); single && name > from {
			since += o.Bytes
		}
	}

	client := replica.NewClient(&store{copies: copies}, database)
	if since < max(mergeAt, whole) {
		return replica.Compact(ctx, client)
	}
	if err := replica.Checkpoint(ctx, client, 0); err != nil {
		return err
	}
	return replica.Prune(ctx, client, now.Add(time.Hour))
}
