package agentdb

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"rouse/agentdb/sqlite"
)

func decodeNumbers(text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

func wholeNumber(v any) (int64, error) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, fmt.Errorf("%v is not a number", v)
	}
	return n.Int64()
}

// Apply does steps in one transaction: those of the changelog, on an empty database, rebuild its
// contents; those of Reverse, the newest change first, undo them. It writes to the changelog as
// any other write. A step whose row does not exist changes nothing.
func (db *DB) Apply(ctx context.Context, by By, steps []Step) (Affected, error) {
	return confined(ctx, db, by, "apply", func(ctx context.Context, tx *sqlite.Tx) (Affected, error) {
		return applySteps(ctx, tx, by, steps)
	})
}

// applySteps runs inside a confined write. Triggers are dropped meanwhile, because what they did
// is in the changelog too, and foreign keys are checked at the end.
func applySteps(ctx context.Context, tx *sqlite.Tx, by By, steps []Step) (out Affected, err error) {
	if _, err := tx.SQL().ExecContext(ctx, "pragma defer_foreign_keys=1"); err != nil {
		return out, err
	}

	a := &applier{tx: tx, by: by, at: now()}
	for len(steps) > 0 {
		n := slices.IndexFunc(steps, func(s Step) bool { return s.SQL != nil })
		// A change of the schema is a step by itself: the rows after it need the tables that it
		// makes.
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
	by      By
	at      string
	layouts map[string]*tableLayout
}

// schema runs the statements of a step.
func (a *applier) schema(ctx context.Context, s Step) error {
	before, err := readObjects(a.tx)
	if err != nil {
		return err
	}

	_, _, err = changeSchema(ctx, a.tx, a.by, a.at, s.Table, func() (string, error) {
		for _, text := range s.SQL {
			if err := a.checkDrop(ctx, text); err != nil {
				return "", err
			}
			if _, err := a.tx.SQL().ExecContext(ctx, text); err != nil {
				return "", err
			}
		}

		after, err := readObjects(a.tx)
		if err != nil {
			return "", err
		}

		ran, err := syncTables(ctx, a.tx, a.by, a.at, before, after)
		return strings.Join(append(slices.Clone(s.SQL), ran...), ";\n") + ";", err
	})

	return err
}

// checkDrop keeps a step from dropping a table with rows that it knows nothing of.
func (a *applier) checkDrop(ctx context.Context, text string) error {
	// Only a single DROP TABLE, as Reverse writes it, is recognised.
	table, ok := strings.CutPrefix(strings.TrimSuffix(text, ";"), "DROP TABLE ")
	if !ok || strings.Contains(table, ";") {
		return nil
	}

	var some bool
	if err := a.tx.SQL().QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+table+")").Scan(&some); err != nil {
		return err
	}
	if some {
		return &Error{Kind: kindRejected, Field: "table", Message: "the table " + table + " holds rows that came from elsewhere, so it cannot be dropped"}
	}

	return nil
}

// rows does steps about rows without triggers.
func (a *applier) rows(ctx context.Context, steps []Step) (affected int64, err error) {
	triggers, err := a.dropTriggers(ctx)
	if err != nil {
		return 0, err
	}

	// The schema may have changed since the last rows.
	a.layouts = map[string]*tableLayout{}
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
	if err := (&rowLog{tx: a.tx, by: a.by, at: a.at}).write(ctx, changes); err != nil {
		return affected, err
	}

	// Triggers come back after the rows only: what they did has steps of its own.
	for _, text := range triggers {
		if _, err := a.tx.SQL().ExecContext(ctx, text); err != nil {
			return affected, err
		}
	}

	return affected, nil
}

func (a *applier) row(ctx context.Context, s Step) (int64, error) {
	t := a.layouts[s.Table]
	if t == nil {
		var err error
		if t, err = readLayout(ctx, a.tx, s.Table); err != nil {
			return 0, err
		}
		a.layouts[s.Table] = t
	}
	if name := s.unknownColumn(t); name != "" {
		return 0, &Error{Kind: kindRejected, Field: "table", Message: fmt.Sprintf("the table %s has no column %s, which the changelog has a value for", t.name, name)}
	}

	query, args := s.statement(t)
	if query == "" {
		return 0, nil
	}

	result, err := a.tx.SQL().ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}

	return result.RowsAffected()
}

// unknownColumn is a column of the step that the table does not have, "" when it has all.
func (s Step) unknownColumn(t *tableLayout) string {
	for _, m := range []*Image{&s.Key, s.Before, s.After} {
		if m == nil {
			continue
		}
		if lost := m.missingIn(t); len(lost) > 0 {
			return lost[0]
		}
	}
	return ""
}

// statement is the SQL of a step about a row. Names in a condition stand with their table:
// SQLite takes a bare one that it does not know for a text. A row that is in the way stops
// it, even where the table was made to replace such rows.
func (s Step) statement(t *tableLayout) (query string, args []any) {
	where := func() {
		conds := make([]string, len(s.Key.Columns))
		for i, name := range s.Key.Columns {
			conds[i] = quote(s.Table) + "." + quote(name) + " IS ?"
			args = append(args, s.Key.Values[i])
		}
		query += " WHERE " + strings.Join(conds, " AND ")
	}
	switch {
	case s.After == nil:
		query = "DELETE FROM " + quote(s.Table)
		where()
	case s.Before == nil:
		m := s.After.storedIn(t)
		args = m.Values
		query = "INSERT OR ABORT INTO " + quote(s.Table) + " (" + quoteAll(m.Columns) + ") VALUES (" + placeholders(len(m.Columns)) + ")"
	default:
		m := s.After.storedIn(t)
		// Every column that differed is gone from the table.
		if len(m.Columns) == 0 {
			return "", nil
		}

		set := make([]string, len(m.Columns))
		for i, name := range m.Columns {
			set[i] = quote(name) + " = ?"
		}

		args = append(args, m.Values...)
		query = "UPDATE OR ABORT " + quote(s.Table) + " SET " + strings.Join(set, ", ")
		where()
	}

	return query, args
}

// storedIn leaves out what the table does not store.
func (m Image) storedIn(t *tableLayout) (out Image) {
	for i, name := range m.Columns {
		if containsFold(t.imageColumns(), name) {
			out.Columns, out.Values = append(out.Columns, name), append(out.Values, m.Values[i])
		}
	}
	return out
}

// missingIn are the columns that the table does not store. The host's are none of them: the rows
// of a chunk are given them, whether their table has them or not.
func (m Image) missingIn(t *tableLayout) (out []string) {
	for _, name := range m.Columns {
		if !hostColumn(name) && !containsFold(t.imageColumns(), name) {
			out = append(out, name)
		}
	}
	return out
}

// dropTriggers drops all triggers and gives the SQL that makes them again.
func (a *applier) dropTriggers(ctx context.Context) (definitions []string, err error) {
	objects, err := readObjects(a.tx)
	if err != nil {
		return nil, err
	}

	for _, o := range objects {
		if o.Type != "trigger" {
			continue
		}
		if _, err := a.tx.SQL().ExecContext(ctx, "DROP TRIGGER "+quote(o.Name)); err != nil {
			return nil, err
		}
		definitions = append(definitions, o.SQL)
	}

	return definitions, nil
}
