package agentdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"rouse/agentdb/dberr"
	"rouse/internal/storage/sqlite"
	"rouse/internal/text"
)

// Quota limits the size of the file and its WAL. The size is measured after each commit. Once it
// is over the limit, further writes are rejected.
type Quota struct {
	path   string
	db     *sqlite.DB
	health *Health

	mu     sync.Mutex
	limit  int64
	used   int64
	warned bool // a warning was given since usage was last below 80 %
}

// Set sets the quota in bytes. Zero means no limit.
func (q *Quota) Set(limit int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.limit = limit
}

// limitBytes returns the quota in bytes. Zero means no limit.
func (q *Quota) limitBytes() int64 {
	_, limit := q.state()
	return limit
}

func (q *Quota) state() (used, limit int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used, q.limit
}

// nearLimit reports whether used is at least 80 % of the quota.
func (q *Quota) nearLimit(used int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.limit > 0 && used >= q.limit/5*4
}

func (q *Quota) check() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.limit <= 0 || q.used < q.limit {
		return nil
	}
	return &dberr.Error{Kind: dberr.KindRejected, Message: fmt.Sprintf(
		"the database holds %s and its quota is %s: nothing more is written; reading still works. The owner sees with rouse db what takes the space, and can raise database.quota of this agent", text.Size(q.used), text.Size(q.limit))}
}

// update stores a new size. It returns a warning if the size has risen above 80 % of the quota.
func (q *Quota) update(used int64) (warning string) {
	q.mu.Lock()
	defer q.mu.Unlock()

	q.used = used
	if q.limit <= 0 || used < q.limit/5*4 {
		q.warned = false
		return ""
	}

	// Warn once each time usage rises above 80 %, not on each write.
	if q.warned {
		return ""
	}

	q.warned = true
	return fmt.Sprintf("the database uses %s of its quota of %s; beyond it nothing more is written", text.Size(used), text.Size(q.limit))
}

// measure reads the sizes of the file and its WAL. The WAL file keeps its size after a
// checkpoint, so measure truncates it before the size counts against the quota.
func (q *Quota) measure(ctx context.Context) (warning string, err error) {
	used, err := q.fileSizes()
	if err != nil {
		return "", err
	}

	if q.nearLimit(used) {
		if _, err := q.db.Read().ExecContext(ctx, "pragma wal_checkpoint(truncate)"); err != nil {
			return "", fmt.Errorf("cannot empty the log of %s, so it counts against the quota: %w", q.path, err)
		}
		if used, err = q.fileSizes(); err != nil {
			return "", err
		}
	}

	return q.update(used), nil
}

func (q *Quota) fileSizes() (sum int64, err error) {
	for _, path := range []string{q.path, q.path + "-wal"} {
		info, err := os.Stat(path)
		// There is no WAL until the first write.
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("cannot measure the database: %w", err)
		}
		sum += info.Size()
	}
	return sum, nil
}

// Notify calls tell once each time usage rises above 80 % of the quota. The file stores that
// fact, so a restart does not repeat the notice. Sizes are in bytes.
func (q *Quota) Notify(ctx context.Context, tell func(used, limit int64) error) error {
	used, limit := q.state()
	near := q.nearLimit(used)
	var told bool
	if err := q.db.Read().QueryRowContext(ctx, "select exists (select 1 from _quota_told)").Scan(&told); err != nil || near == told {
		return err
	}

	query := "delete from _quota_told"
	if near {
		// Record the notice after sending it: a crash in between repeats the notice but does not
		// lose it.
		if err := tell(used, limit); err != nil {
			return err
		}
		query = "insert into _quota_told(at) values (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))"
	}

	err := q.db.Do(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(query)
		return err
	})
	if err != nil {
		return q.health.explain(ctx, err)
	}

	return nil
}

// warnings measures the file after a write and appends the resulting warning, if any. It ignores
// cancellation, and a failure to measure is only a warning, because the write is already done.
func (q *Quota) warnings(ctx context.Context, warnings []string) []string {
	warning, err := q.measure(context.WithoutCancel(ctx))
	if err != nil {
		warning = err.Error()
	}

	if warning != "" {
		warnings = append(warnings, warning)
	}
	return warnings
}
