package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/agentdb/objects"
	"rouse/cmd/internal/backup"
	"rouse/cmd/internal/replicate"
	"rouse/internal/domain"
)

// shipping measures durable writes into the ledger of a home (ms, p50), alone and while the home is copied to a folder.
func (b *engineBench) shipping(ctx context.Context, note func(string, float64)) error {
	alone, err := b.write(ctx, false)
	if err != nil {
		return err
	}
	shipped, err := b.write(ctx, true)
	if err != nil {
		return err
	}
	note("alone", alone)
	note("shipped", shipped)
	return nil
}

func (b *engineBench) write(ctx context.Context, copied bool) (p50 float64, err error) {
	dir, err := os.MkdirTemp("", "rouse-bench")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	home, to := filepath.Join(dir, "home"), filepath.Join(dir, "copies")
	if err := errors.Join(os.Mkdir(home, 0o700), os.Mkdir(to, 0o700)); err != nil {
		return 0, err
	}
	l, err := ledger.Open(ctx, ledger.Options{Path: filepath.Join(home, "ledger.db"), Blobs: filepath.Join(home, "blobs")})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	end := func() error { return nil }
	if copied {
		if end, err = ship(ctx, home, to, l); err != nil {
			return 0, err
		}
	}

	var took []float64
	for range b.writes {
		begun := time.Now()
		if _, err := l.Enqueue(ctx, ledger.Request{Job: "j", Trigger: domain.TriggerAPI}); err != nil {
			return 0, errors.Join(err, end())
		}
		took = append(took, float64(time.Since(begun).Microseconds())/1000)
	}
	return median(took), end()
}

// ship copies a home to a folder until end, which fails when nothing arrived.
func ship(ctx context.Context, home, to string, l *ledger.Ledger) (end func() error, err error) {
	pool, err := agentdb.NewPool(agentdb.PoolOptions{Dir: filepath.Join(home, "agents"), Ledger: l})
	if err != nil {
		return nil, err
	}
	r, err := replicate.New(ctx, replicate.Options{Home: home, Ledger: l, Databases: pool, Store: objects.Folder{Path: to}, To: to, Keep: time.Hour, Logger: slog.New(slog.DiscardHandler),
		Info: func(context.Context) (backup.Info, error) {
			return backup.Info{Home: home, Schema: ledger.Schema()}, nil
		},
		Configs: func() ([]backup.Config, error) { return nil, nil }})
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}

	running, stop := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- r.Run(running) }()
	return func() error {
		stop()
		err := <-over
		r.Finish(ctx)
		if s := r.State(); s.Waiting != 0 || s.LastSuccess.IsZero() {
			err = errors.Join(err, fmt.Errorf("the home was not copied: %s", s.Problem))
		}
		return errors.Join(err, pool.Close())
	}, nil
}
