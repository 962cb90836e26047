// Package store stores the data of a skill for one agent: keys with JSON values, in a separate
// database.
//
// A write records the key of its call in the same transaction, so that a repeated call writes once.
// The first write creates the file. Reading does not create it.
package store

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"rouse/internal/storage/sqlite"
	"rouse/internal/text"
)

//go:embed migrations
var migrations embed.FS

// applicationID marks a file as the storage of a skill: "rsst".
const applicationID = 0x72737374

const (
	maxStored = 10 << 20  // bytes of all keys and values
	callsKept = "90 days" // retention of call keys; runs do not wait that long
)

// Store is the database of a skill for one agent. It is opened when it is first used.
type Store struct {
	path, epoch string

	mu     sync.Mutex
	db     *sqlite.DB
	tidied bool // old calls were deleted
}

// New returns the store in the file at path. If path is "", reading and writing fail. epoch is the
// id of the ledger of the writing runs.
func New(path, epoch string) *Store { return &Store{path: path, epoch: epoch} }

// Path returns the path of the file.
func (s *Store) Path() string { return s.path }

// Call identifies a call of a run that writes.
type Call struct {
	Run int64
	Key string // the same in each attempt
}

// FullError reports that a write would exceed the maximum size of the store.
type FullError struct{ Used int64 } // bytes that the store would hold

func (e *FullError) Error() string {
	return fmt.Sprintf("the storage of the skill would hold %s, and %s are the most; delete what is not needed", text.Size(e.Used), text.Size(maxStored))
}

func (s *Store) open(ctx context.Context) (*sqlite.DB, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db != nil {
		return s.db, nil
	}
	if s.path == "" {
		return nil, errors.New("there is no folder for it")
	}

	steps, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	if s.db, err = sqlite.Open(context.WithoutCancel(ctx), sqlite.Options{Path: s.path, ApplicationID: applicationID, Migrations: steps, Readers: 1}); err != nil {
		return nil, err
	}
	return s.db, nil
}

// forgetOld deletes the keys of old calls, once per Store.
func (s *Store) forgetOld(tx *sqlite.Tx) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tidied {
		return nil
	}

	_, err := tx.Exec(`delete from calls where at < datetime('now', '-' || ?)`, callsKept)
	s.tidied = err == nil
	return err
}

// look returns the database for reading. It returns nil if the file does not exist.
func (s *Store) look(ctx context.Context) (*sqlite.DB, error) {
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) && s.path != "" {
		return nil, nil
	}
	return s.open(ctx)
}

// Close closes the database if it was opened.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return nil
	}

	err := s.db.Close()
	s.db = nil
	return err
}

// Get returns the value of a key, or nil if there is none.
func (s *Store) Get(ctx context.Context, key string) (json.RawMessage, error) {
	db, err := s.look(ctx)
	if db == nil || err != nil {
		return nil, err
	}

	var raw string
	err = db.Read().QueryRowContext(ctx, `select value from entries where key = ?`, key).Scan(&raw)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return json.RawMessage(raw), err
}

// List returns the keys that begin with a prefix, sorted.
func (s *Store) List(ctx context.Context, prefix string) ([]string, error) {
	keys := []string{}
	db, err := s.look(ctx)
	if db == nil || err != nil {
		return keys, err
	}

	rows, err := db.Read().QueryContext(ctx, `select key from entries where substr(key, 1, length(?1)) = ?1 order by key`, prefix)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, rows.Err()
}

// Set writes a value. The error is a *FullError if the store would become too large.
func (s *Store) Set(ctx context.Context, c Call, key string, value json.RawMessage) error {
	return s.change(ctx, c, func(tx *sqlite.Tx) error {
		if _, err := tx.Exec(`insert into entries (key, value) values (?1, ?2) on conflict (key) do update set value = excluded.value`, key, string(value)); err != nil {
			return err
		}

		var used int64
		if err := tx.QueryRow(`select bytes from usage`).Scan(&used); err != nil {
			return err
		}
		if used > maxStored {
			return &FullError{used} // rolls back the key of the call, too
		}
		return nil
	})
}

// Delete removes a key if it exists.
func (s *Store) Delete(ctx context.Context, c Call, key string) error {
	return s.change(ctx, c, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(`delete from entries where key = ?`, key)
		return err
	})
}

// change runs op once per call, even if the call is repeated.
func (s *Store) change(ctx context.Context, c Call, op func(*sqlite.Tx) error) error {
	db, err := s.open(ctx)
	if err != nil {
		return err
	}

	return db.Do(ctx, func(tx *sqlite.Tx) error {
		if err := s.forgetOld(tx); err != nil {
			return err
		}

		done, err := tx.Exec(`insert into calls (ledger, run, key) values (?, ?, ?) on conflict do nothing`, s.epoch, c.Run, c.Key)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n == 0 { // the call was made before
			return err
		}
		return op(tx)
	})
}
