package agentdb

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/sqlite"
)

// Apply runs steps in one transaction. Steps of the whole changelog on an empty database rebuild
// its contents. Steps of Reverse, the newest change first, undo them. Apply writes to the
// changelog like any other write. A step for a missing row has no effect.
func (db *DB) Apply(ctx context.Context, by changelog.By, steps []changelog.Step) (Affected, error) {
	return confined(ctx, db, by, "apply", func(ctx context.Context, tx *sqlite.Tx) (Affected, error) {
		return applySteps(ctx, tx, by, steps)
	})
}

// applySteps runs inside a confined write. It drops triggers meanwhile, because the changelog
// already has their effects. Foreign keys are checked at the end.
func applySteps(ctx context.Context, tx *sqlite.Tx, by changelog.By, steps []changelog.Step) (out Affected, err error) {
	if _, err := tx.SQL().ExecContext(ctx, "pragma defer_foreign_keys=1"); err != nil {
		return out, err
	}

	a := &applier{tx: tx, by: by, at: sqlvalue.Now()}
	for len(steps) > 0 {
		n := slices.IndexFunc(steps, func(s changelog.Step) bool { return s.SQL != nil })
		// Run a schema change as a step of its own: later rows need the tables that it creates.
		if n == 0 {
			if err := a.schema(ctx, steps[0]); err != nil {
				return out, fmt.Errorf("change %d: %w", steps[0].Change, err)
			}
			steps = steps[1:]
			continue
		}

		if n < 0 {
			n = len(steps)
		}

		rows, err := a.rows(ctx, steps[:n])
		if out.Rows += rows; err != nil {
			return out, err
		}

		steps = steps[n:]
	}

	return out, nil
}

type applier struct {
	tx      *sqlite.Tx
	by      changelog.By
	at      string
	layouts map[string]*changelog.Layout
}

// schema runs the statements of a step.
func (a *applier) schema(ctx context.Context, s changelog.Step) error {
	before, err := changelog.ReadObjects(ctx, a.tx)
	if err != nil {
		return err
	}

	err = changelog.ChangeSchema(ctx, a.tx, a.by, a.at, s.Table, func() (string, error) {
		for _, text := range s.SQL {
			if _, err := a.tx.SQL().ExecContext(ctx, text); err != nil {
				return "", err
			}
		}

		after, err := changelog.ReadObjects(ctx, a.tx)
		if err != nil {
			return "", err
		}

		ran, err := changelog.SyncTables(ctx, a.tx, a.by, a.at, before, after)
		return strings.Join(append(slices.Clone(s.SQL), ran...), ";\n") + ";", err
	})

	return err
}

// rows runs steps for rows without triggers.
func (a *applier) rows(ctx context.Context, steps []changelog.Step) (affected int64, err error) {
	triggers, err := changelog.DropTriggers(ctx, a.tx)
	if err != nil {
		return 0, err
	}

	// The schema may have changed since the previous rows.
	a.layouts = map[string]*changelog.Layout{}
	changes, err := a.tx.RecordChanges(ctx, func(ctx context.Context) error {
		for _, s := range steps {
			n, err := a.row(ctx, s)
			if affected += n; err != nil {
				return fmt.Errorf("change %d: a row of %s: %w", s.Change, s.Table, err)
			}
		}
		return nil
	})
	if err != nil {
		return affected, err
	}
	if err := changelog.LogRows(ctx, a.tx, a.by, a.at, "", changes); err != nil {
		return affected, err
	}

	// Restore triggers only after the rows: their effects have steps of their own.
	for _, text := range triggers {
		if _, err := a.tx.SQL().ExecContext(ctx, text); err != nil {
			return affected, err
		}
	}

	return affected, nil
}

func (a *applier) row(ctx context.Context, s changelog.Step) (int64, error) {
	t := a.layouts[s.Table]
	if t == nil {
		var err error
		if t, err = changelog.ReadLayout(ctx, a.tx, s.Table); err != nil {
			return 0, err
		}
		a.layouts[s.Table] = t
	}
	if name := s.UnknownColumn(t); name != "" {
		return 0, &dberr.Error{Kind: dberr.KindRejected, Field: "table", Message: fmt.Sprintf("the table %s has no column %s, which the changelog has a value for", t.Name, name)}
	}

	query, args := s.Statement(t)
	if query == "" {
		return 0, nil
	}

	result, err := a.tx.SQL().ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}

	return result.RowsAffected()
}
