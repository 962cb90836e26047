package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"rouse/internal/storage/sqlite"
)

// maxTools limits the number of tools that a module registers for an agent.
const maxTools = 20

// ErrTools is returned if a module has already registered the maximum number of tools.
var ErrTools = fmt.Errorf("a module registers %d tools at most", maxTools)

// Tool is a tool that a module has registered.
type Tool struct {
	Name  string // without the name of the skill
	Offer json.RawMessage
}

// SetTool stores a tool of a version of the skill and deletes the tools of other versions. It
// returns ErrTools if there are too many.
func (s *Store) SetTool(ctx context.Context, c Call, version string, t Tool) error {
	return s.change(ctx, c, func(tx *sqlite.Tx) error {
		if _, err := tx.Exec(`delete from tools where version <> ?`, version); err != nil {
			return err
		}
		if _, err := tx.Exec(`insert into tools (name, version, offer) values (?1, ?2, ?3) on conflict (name) do update set version = excluded.version, offer = excluded.offer`, t.Name, version, string(t.Offer)); err != nil {
			return err
		}

		var n int
		if err := tx.QueryRow(`select count(*) from tools`).Scan(&n); err != nil {
			return err
		}
		if n > maxTools {
			return ErrTools // rolls back the key of the call, too
		}
		return nil
	})
}

// Tools returns the tools registered by a version of the skill, sorted by name.
func (s *Store) Tools(ctx context.Context, version string) (out []Tool, err error) {
	db, err := s.look(ctx)
	if db == nil || err != nil {
		return nil, err
	}

	rows, err := db.Read().QueryContext(ctx, `select name, offer from tools where version = ? order by name`, version)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()

	for rows.Next() {
		var t Tool
		var offer string
		if err := rows.Scan(&t.Name, &offer); err != nil {
			return nil, err
		}
		t.Offer = json.RawMessage(offer)
		out = append(out, t)
	}
	return out, rows.Err()
}
