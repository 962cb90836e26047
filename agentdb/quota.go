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

// quota bounds the file with its log (OSA-62). It is measured after each commit and
// refuses the write after the one that went over it.
type quota struct {
	mu     sync.Mutex
	limit  int64
	used   int64
	warned bool // since the use was last under 80 %
}

func (q *quota) set(limit int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.limit = limit
}

// limitBytes is the limit in bytes; 0 means none.
func (q *quota) limitBytes() int64 {
	_, limit := q.state()
	return limit
}

func (q *quota) state() (used, limit int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used, q.limit
}

// nearLimit says whether so many bytes are over 80 % of the limit.
func (q *quota) nearLimit(used int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.limit > 0 && used >= q.limit/5*4
}

func (q *quota) check() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.limit <= 0 || q.used < q.limit {
		return nil
	}
	return &dberr.Error{Kind: dberr.KindRejected, Message: fmt.Sprintf(
		"the database holds %s and its quota is %s: nothing more is written; reading still works. The owner sees with rouse db what takes the space, and can raise database.quota of this agent", text.Size(q.used), text.Size(q.limit))}
}

// update takes a new size and gives a warning when it crossed 80 % on the way up.
func (q *quota) update(used int64) (warning string) {
	q.mu.Lock()
	defer q.mu.Unlock()

	q.used = used
	if q.limit <= 0 || used < q.limit/5*4 {
		q.warned = false
		return ""
	}

	// One warning for each time that the limit comes near, not one for each write.
	if q.warned {
		return ""
	}

	q.warned = true
	return fmt.Sprintf("the database uses %s of its quota of %s; beyond it nothing more is written", text.Size(used), text.Size(q.limit))
}

// SetQuota sets the quota in bytes; 0 means no limit.
func (db *DB) SetQuota(limit int64) { db.quota.set(limit) }

// measureQuota reads the sizes of the file and its log. The log keeps its size after its content
// went into the file, so it is emptied before it counts against the agent.
func (db *DB) measureQuota(ctx context.Context) (warning string, err error) {
	used, err := db.fileSizes()
	if err != nil {
		return "", err
	}

	if db.quota.nearLimit(used) {
		if _, err := db.db.Read().ExecContext(ctx, "pragma wal_checkpoint(truncate)"); err != nil {
			return "", fmt.Errorf("cannot empty the log of %s, so it counts against the quota: %w", db.path, err)
		}
		if used, err = db.fileSizes(); err != nil {
			return "", err
		}
	}

	return db.quota.update(used), nil
}

func (db *DB) fileSizes() (sum int64, err error) {
	for _, path := range []string{db.path, db.path + "-wal"} {
		info, err := os.Stat(path)
		// There is no log while nothing was written.
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

// NotifyQuota calls tell, with bytes, once each time that the use rises over 80 % of the quota
// (OSA-62). The file remembers that, so a restart does not repeat it.
func (db *DB) NotifyQuota(ctx context.Context, tell func(used, limit int64) error) error {
	used, limit := db.quota.state()
	near := db.quota.nearLimit(used)
	var told bool
	if err := db.db.Read().QueryRowContext(ctx, "select exists (select 1 from _quota_told)").Scan(&told); err != nil || near == told {
		return err
	}

	query := "delete from _quota_told"
	if near {
		// Told first and recorded afterwards: a crash between repeats the notice, and never loses
		// it.
		if err := tell(used, limit); err != nil {
			return err
		}
		query = "insert into _quota_told(at) values (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))"
	}

	err := db.db.Do(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(query)
		return err
	})
	if err != nil {
		return db.explain(ctx, err)
	}

	return nil
}

// quotaWarnings measures the file after a write and adds the warning that this may give. The
// write is done, even if the caller gives up or measuring fails.
func (db *DB) quotaWarnings(ctx context.Context, warnings []string) []string {
	warning, err := db.measureQuota(context.WithoutCancel(ctx))
	if err != nil {
		warning = err.Error()
	}

	if warning != "" {
		warnings = append(warnings, warning)
	}
	return warnings
}
