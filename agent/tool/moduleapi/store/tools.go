package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"rouse/internal/storage/sqlite"
)

// maxTools is how many tools a module may register for an agent.
const maxTools = 20

// ErrTools says that a module has registered as many tools as it may.
var ErrTools = fmt.Errorf("a module registers %d tools at most", maxTools)

// Tool is what a module has registered (OSL-32), as it was written down.
type Tool struct {
	Name  string // without that of the skill
	Offer json.RawMessage
}

// SetTool keeps a tool of a version of the skill, in place of those of other versions. The error is ErrTools where there are too
// many.
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
			return ErrTools // which undoes the note of the call, too
		}
		return nil
	})
}

// Tools are those that were registered by a version of the skill, sorted by name.
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
