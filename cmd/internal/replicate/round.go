package replicate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"rouse/agentdb/pool"
	"rouse/internal/storage/replica"
	"rouse/internal/storage/sqlite"
)

// round copies everything written so far. Writers are not blocked meanwhile.
func (r *Replicator) round(ctx context.Context) error {
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		r.rounds.Lock()
		defer r.rounds.Unlock()
		done <- r.ship(ctx)
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			r.finish(ctx, err)
			return err
		case <-tick.C:
			r.bound()
		case <-ctx.Done():
			// A blocked file system call cannot be canceled, so the goroutine is abandoned.
			select {
			case err := <-done:
				return err
			case <-time.After(every):
				return context.Cause(ctx)
			}
		}
	}
}

// finish records the result of a round. It logs the first failure and the recovery.
func (r *Replicator) finish(ctx context.Context, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.state.Problem
	switch {
	case ctx.Err() != nil:
	case err == nil:
		r.state.LastSuccess, r.state.Problem = time.Now(), ""
		if before != "" {
			r.o.Logger.Info("the home is copied again", "to", r.o.To)
		}
	default:
		r.state.Problem = err.Error()
		if before == "" {
			r.o.Logger.Warn("the home cannot be copied continuously; what is written is copied once it can be", "to", r.o.To, "error", err)
		}
	}
}

// take returns the databases to be copied and marks them as being copied.
func (r *Replicator) take() (keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending.take()
}

// settle ends a round. If the round failed, its databases must be copied again.
func (r *Replicator) settle(arrived bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending.settle(arrived)
}

func (r *Replicator) ship(ctx context.Context) (err error) {
	if r.o.Allowed != nil {
		if err := r.o.Allowed(); err != nil {
			return err
		}
	}
	if !r.claimed {
		if err := claim(ctx, r.o.Store, r.o.Home); err != nil {
			return err
		}
		r.claimed = true
	}

	parts := map[string]part{}
	var storage []stored
	keys := r.take()
	defer func() {
		for _, p := range parts {
			p.release()
		}
		for _, s := range storage {
			_ = s.snapshot.Close() // it was only read
		}
		r.settle(err == nil)
	}()
	for ; len(keys) > together; keys = keys[together:] {
		if err := r.shipAhead(ctx, keys[:together]); err != nil {
			r.makeRoom(ctx)
			return err
		}
	}
	if storage, err = r.files.prepare(ctx); err != nil {
		return err
	}

	var at int64
	for range 10 { // one pass per set of newly written databases
		for _, key := range keys {
			if err := r.prepare(ctx, parts, key); err != nil {
				return err
			}
		}
		if err := r.ledger.Prepare(ctx); err != nil {
			return fmt.Errorf("the ledger cannot be shipped: %w", err)
		}
		at, err = r.cut(ctx, parts, storage)
		if !errors.Is(err, errNewcomer) {
			break
		}
		keys = r.take()
	}
	if err != nil {
		return err
	}
	if err := r.send(ctx, parts, storage, at); err != nil {
		r.makeRoom(ctx)
		return err
	}
	return nil
}

// shipAhead copies some databases before the instant of the round, so that not all databases are
// open at once. A database that is written to before that instant is copied again.
func (r *Replicator) shipAhead(ctx context.Context, keys []string) error {
	parts := map[string]part{}
	defer func() {
		for _, p := range parts {
			p.release()
		}
	}()
	for _, key := range keys {
		if err := r.prepare(ctx, parts, key); err != nil {
			return err
		}
	}

	r.last = max(r.clock.read().UnixMilli(), r.last+1)
	for _, p := range parts {
		if err := p.f.Cut(ctx); err != nil {
			return err
		}
		n, err := p.f.Ship(ctx, r.last)
		if err != nil {
			return r.explain(err)
		}
		r.shipped[p.key] += n
		if err := p.f.Drain(ctx); err != nil {
			return err
		}
		if err := r.tend(ctx, p); err != nil {
			return r.explain(err)
		}
	}
	return nil
}

// prepare opens a database that is to be copied and adds it to parts.
func (r *Replicator) prepare(ctx context.Context, parts map[string]part, key string) error {
	if _, ok := parts[key]; ok || key == "" {
		return nil
	}
	r.mu.Lock()
	agent := r.names[key]
	r.mu.Unlock()
	if !r.o.Databases.Has(agent) {
		return nil // the database was removed
	}
	_, release, err := r.o.Databases.Get(ctx, agent)
	var quarantined *pool.QuarantinedError
	if errors.As(err, &quarantined) || sqlite.Corrupt(err) {
		r.setUnusable(key, true)
		return nil // its earlier copies are kept
	}
	if err != nil {
		return fmt.Errorf("the database of %s cannot be shipped: %w", agent, err)
	}
	r.setUnusable(key, false)
	f := r.follower(agent)
	parts[key] = part{key, "db/" + agent, f, release}
	if err := f.Prepare(ctx); err != nil {
		return fmt.Errorf("the database of %s cannot be shipped: %w", agent, err)
	}
	return nil
}

func (r *Replicator) setUnusable(key string, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unusable[key] = is
}

// cut fixes the instant of a round while the ledger accepts no writes. It returns errNewcomer if a
// database outside of parts was written to.
func (r *Replicator) cut(ctx context.Context, parts map[string]part, storage []stored) (at int64, err error) {
	db, _, _ := r.o.Ledger.File()
	err = db.Turn(ctx, func() error {
		r.mu.Lock()
		for key := range r.pending.dirty {
			if _, ok := parts[key]; !ok && key != "" && !r.unusable[key] {
				r.mu.Unlock()
				return errNewcomer
			}
		}
		r.mu.Unlock()

		// Instants must increase even if the clock was set back.
		at = max(r.clock.read().UnixMilli(), r.last+1)
		for _, p := range parts {
			if err := p.f.Cut(ctx); err != nil {
				return err
			}
		}
		for _, s := range storage {
			if err := s.snapshot.Take(ctx); err != nil {
				return err
			}
		}
		return r.ledger.Cut(ctx)
	})
	return at, err
}

// send copies the data fixed by cut. The ledger comes last, so that everything it refers to is
// already in the place.
func (r *Replicator) send(ctx context.Context, parts map[string]part, storage []stored, at int64) error {
	r.last = at
	others := 0
	for _, p := range parts {
		n, err := p.f.Ship(ctx, at)
		if err != nil {
			return r.explain(err)
		}
		r.shipped[p.key] += n
		others += n
	}
	info, err := r.o.Info(ctx)
	if err != nil {
		return err
	}
	changed, err := r.files.ship(ctx, at, info, storage)
	if err != nil {
		return r.explain(err)
	}
	n, err := r.ledger.Ship(ctx, at)
	if err != nil {
		return r.explain(err)
	}
	r.shipped[""] += n
	if n == 0 && (others > 0 || changed) {
		if err := note(ctx, r.o.Store, at); err != nil {
			return r.explain(err)
		}
	}

	parts[""] = part{"", "ledger", r.ledger, func() {}}
	for _, p := range parts {
		if err := p.f.Drain(ctx); err != nil {
			return err
		}
		if err := r.tend(ctx, p); err != nil {
			return r.explain(err)
		}
	}
	return nil
}

// explain adds advice to an error caused by a missing place.
func (r *Replicator) explain(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not there, or something in it was removed; put it back: %w", r.o.To, err)
	}
	return err
}

// tend merges what was shipped of a database, and removes what is older than is kept.
func (r *Replicator) tend(ctx context.Context, p part) error {
	client, key := replica.NewClient(r.o.Store, p.prefix), p.key
	if r.shipped[key] >= compactAt {
		if err := replica.Compact(ctx, client); err != nil {
			return err
		}
		r.shipped[key] = 0
	}
	if time.Since(r.tended[key]) < upkeepEvery {
		return nil
	}
	if err := replica.Checkpoint(ctx, client, min(24*time.Hour, r.o.Keep/4)); err != nil {
		return err
	}
	if err := r.prune(ctx, key, p.prefix); err != nil {
		return err
	}
	r.tended[key] = time.Now()
	return nil
}

// prune removes versions older than Options.Keep. It does nothing for a while after the clock has
// jumped ahead, because their age is uncertain.
func (r *Replicator) prune(ctx context.Context, key, prefix string) error {
	if r.clock.jumped() {
		return nil
	}
	before := r.o.Now().Add(-r.o.Keep)
	if err := replica.Prune(ctx, replica.NewClient(r.o.Store, prefix), before); err != nil || key != "" {
		return err
	}
	return pruneFiles(ctx, r.o.Store, before)
}

// makeRoom removes old versions after a write to the place has failed, because the place may be
// full.
func (r *Replicator) makeRoom(ctx context.Context) {
	if !r.roomFor.IsZero() && time.Since(r.roomFor) < upkeepEvery {
		return
	}
	r.roomFor = time.Now()
	r.mu.Lock()
	prefixes := map[string]string{"": "ledger"}
	for key, agent := range r.names {
		prefixes[key] = "db/" + agent
	}
	r.mu.Unlock()
	for key, prefix := range prefixes {
		if r.prune(ctx, key, prefix) != nil {
			return // the round already reports the problem
		}
	}
}
