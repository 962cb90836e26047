package host

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sync"

	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/agentdb/sqlite"
	"rouse/internal/domain"
	"rouse/internal/text"
)

//go:embed migrations
var migrations embed.FS

// storageID marks a file as the storage of a skill: "rsst".
const storageID = 0x72737374

// The limits of the storage of a skill.
const (
	maxKey     = 512       // bytes
	maxValue   = 1 << 20   // bytes of its JSON
	maxStorage = 10 << 20  // bytes of all keys and values
	callsKept  = "90 days" // that a call is remembered; no run waits that long
)

// What a run has read of its storage stands in its later attempts with what it wrote there: a module that counts would count
// twice otherwise. So reading has the effect of writing.
var (
	storageGetSpec    = remembered(reading("host_storage_get", "Reads a value of the skill's own storage.", reflect.TypeFor[keyArgs]()))
	storageListSpec   = remembered(reading("host_storage_list", "Lists the keys of the skill's own storage.", reflect.TypeFor[prefixArgs]()))
	storageSetSpec    = changing("host_storage_set", "Writes a value into the skill's own storage.", domain.EffectDatabase, reflect.TypeFor[setArgs]())
	storageDeleteSpec = changing("host_storage_delete", "Deletes a value of the skill's own storage.", domain.EffectDatabase, reflect.TypeFor[keyArgs]())
)

func remembered(s tool.Spec) tool.Spec {
	s.Effect = domain.EffectDatabase
	return s
}

type keyArgs struct {
	Key string `json:"key"`
}

type prefixArgs struct {
	Prefix string `json:"prefix,omitempty" jsonschema:"of the keys; all when absent"`
}

type setArgs struct {
	Key   string `json:"key"`
	Value any    `json:"value,omitempty" jsonschema:"any JSON value; null when absent"`
}

// storage is the database of a skill for one agent, opened when it is first used (UNI-13).
type storage struct {
	path, epoch string

	mu sync.Mutex
	db *sqlite.DB
}

func (s *storage) open(ctx context.Context) (*sqlite.DB, error) {
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
	s.db, err = sqlite.Open(context.WithoutCancel(ctx), sqlite.Options{Path: s.path, ApplicationID: storageID, Migrations: steps, Readers: 1})
	return s.db, err
}

// look is open for who only reads: nil where nothing was stored yet.
func (s *storage) look(ctx context.Context) (*sqlite.DB, error) {
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) && s.path != "" {
		return nil, nil
	}
	return s.open(ctx)
}

func (s *storage) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return nil
	}

	err := s.db.Close()
	s.db = nil
	return err
}

// place is where the storage lies, as labels name it: what a run has met goes to whoever reads there later.
func (s *storage) place() ledger.Place {
	if folder, err := filepath.EvalSymlinks(filepath.Dir(s.path)); err == nil {
		return tool.PlaceOf(filepath.Join(folder, filepath.Base(s.path)))
	}
	return ledger.Place{Kind: ledger.PlaceFile, Name: s.path}
}

func (s *storage) reads(context.Context, tool.Invocation, json.RawMessage) (tool.Need, error) {
	return tool.Need{Reads: []ledger.Place{s.place()}}, nil
}

func (s *storage) writes(context.Context, tool.Invocation, json.RawMessage) (tool.Need, error) {
	return tool.Need{Writes: []ledger.Place{s.place()}}, nil
}

// change writes once for each key of a call, however often that is made. refused is a change that was not made.
func (s *storage) change(ctx context.Context, in tool.Invocation, op func(*sqlite.Tx) (refused *tool.Envelope, err error)) (tool.Envelope, error) {
	db, err := s.open(ctx)
	if err != nil {
		return storageFailure(err)
	}

	var refused *tool.Envelope
	err = db.Do(ctx, func(tx *sqlite.Tx) error {
		refused = nil
		if _, err := tx.Exec(`delete from calls where at < datetime('now', '-' || ?)`, callsKept); err != nil {
			return err
		}

		done, err := tx.Exec(`insert into calls (ledger, run, key) values (?, ?, ?) on conflict do nothing`, s.epoch, in.Run, in.Key)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n == 0 { // it was made before
			return err
		}

		if refused, err = op(tx); err == nil && refused != nil {
			return errRefused // so that it is not noted as made
		}
		return err
	})
	switch {
	case refused != nil:
		return *refused, nil
	case err != nil:
		return storageFailure(err)
	}
	return tool.Success(value{}), nil
}

// errRefused undoes the note of a call that changed nothing.
var errRefused = errors.New("refused")

// storageFailure is the answer where the storage cannot be used: it is the skill's, and no reason to end the host.
func storageFailure(err error) (tool.Envelope, error) {
	return tool.Failure(tool.KindUnavailable, "the storage of the skill cannot be used: %v", err), nil
}

func (h *Host) storageGet() (tool.Tool, error) {
	s := storageGetSpec
	s.Needs = h.storage.reads
	return tool.Define(s, func(ctx context.Context, _ tool.Invocation, a keyArgs) (tool.Envelope, error) {
		db, err := h.storage.look(ctx)
		if err != nil {
			return storageFailure(err)
		}
		if db == nil {
			return tool.Success(value{}), nil
		}

		var raw string
		err = db.Read().QueryRowContext(ctx, `select value from entries where key = ?`, a.Key).Scan(&raw)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return tool.Success(value{}), nil
		case err != nil:
			return storageFailure(err)
		}
		return tool.Success(value{json.RawMessage(raw)}), nil
	})
}

func (h *Host) storageList() (tool.Tool, error) {
	s := storageListSpec
	s.Needs = h.storage.reads
	return tool.Define(s, func(ctx context.Context, _ tool.Invocation, a prefixArgs) (tool.Envelope, error) {
		db, err := h.storage.look(ctx)
		if err != nil {
			return storageFailure(err)
		}
		if db == nil {
			return tool.Success(value{[]string{}}), nil
		}

		rows, err := db.Read().QueryContext(ctx, `select key from entries where substr(key, 1, length(?1)) = ?1 order by key`, a.Prefix)
		if err != nil {
			return storageFailure(err)
		}
		defer rows.Close()

		keys := []string{}
		for rows.Next() {
			var key string
			if err := rows.Scan(&key); err != nil {
				return storageFailure(err)
			}
			keys = append(keys, key)
		}
		if err := rows.Err(); err != nil {
			return storageFailure(err)
		}
		return tool.Success(value{keys}), nil
	})
}

func (h *Host) storageSet() (tool.Tool, error) {
	s := storageSetSpec
	s.Needs = h.storage.writes
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a setArgs) (tool.Envelope, error) {
		raw, err := json.Marshal(a.Value)
		switch {
		case err != nil:
			return tool.Failure(tool.KindInvalidArgs, "the value cannot be written as JSON: %v", err).WithField("value", "a JSON value"), nil
		case a.Key == "" || len(a.Key) > maxKey:
			return tool.Failure(tool.KindInvalidArgs, "the key has %d bytes", len(a.Key)).WithField("key", fmt.Sprintf("1 to %d bytes", maxKey)), nil
		case len(raw) > maxValue:
			return tool.Failure(tool.KindInvalidArgs, "the value has %s, and %s are the most", text.Size(int64(len(raw))), text.Size(maxValue)).WithField("value", "a smaller one"), nil
		}

		return h.storage.change(ctx, in, func(tx *sqlite.Tx) (*tool.Envelope, error) {
			if _, err := tx.Exec(`insert into entries (key, value) values (?1, ?2) on conflict (key) do update set value = excluded.value`, a.Key, string(raw)); err != nil {
				return nil, err
			}

			var used int64
			if err := tx.QueryRow(`select coalesce(sum(octet_length(key) + octet_length(value)), 0) from entries`).Scan(&used); err != nil {
				return nil, err
			}
			if used > maxStorage {
				e := tool.Failure(tool.KindRejected, "the storage of the skill would hold %s, and %s are the most; delete what is not needed", text.Size(used), text.Size(maxStorage))
				return &e, nil
			}
			return nil, nil
		})
	})
}

func (h *Host) storageDelete() (tool.Tool, error) {
	s := storageDeleteSpec
	s.Needs = h.storage.writes
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a keyArgs) (tool.Envelope, error) {
		return h.storage.change(ctx, in, func(tx *sqlite.Tx) (*tool.Envelope, error) {
			_, err := tx.Exec(`delete from entries where key = ?`, a.Key)
			return nil, err
		})
	})
}
