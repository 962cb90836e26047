// Package changelog records every change of an agent's database, and undoes the changes of a run. Its
// functions work inside a transaction of the caller.
package changelog

import (
	"context"
	"fmt"

	"rouse/agentdb/lineage"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/sqlite"
)

// Operations of the changelog, OSA-61. What a trigger or a cascade changed is logged with
// the operation that set it off.
const (
	OpInsert  = "insert"
	OpUpdate  = "update"
	OpDelete  = "soft_delete"
	OpRestore = "restore"
	opSchema  = "schema"
	OpRaw     = "raw"
	OpImport  = "import"
)

// Actors of a change.
const (
	actorAgent     = "agent"
	ActorUser      = "user"
	ActorMigration = "migration"
)

// Change is a row of the changelog. Actor is agent for what a run did, by whichever tool, but
// migration for db_migrate and its rows; user for an owner at the command line or the API; and
// system for what the host did by itself, as an undo_on_failure. What PK, Before and After hold
// depends on it:
//
//   - One row of a table: PK is {"column":value,…}, the row's key before the change, by its
//     primary key or, where that can be NULL, by its row id. Before and After are
//     {"column":value,…}: of an insert After alone, of a delete Before alone, both whole
//     rows; of an update both, with the columns that changed.
//   - A chunk of inserted rows: PK is {"column":…,"from":…,"to":…,"count":n}, After is
//     {"columns":[…],"rows":[[…],…]}. Where the key is not among the columns, the rows have
//     the numbers from…to, in order. A chunk of upserted rows: PK is {"keys":[…],"from":…,
//     "to":…,"count":n}; Before has the rows that were there, After all rows as they became.
//   - A chunk that was undone: PK has "at" beside the rest, the instant at which the rows
//     were written, and Before and After are the other way round: the rows that are in Before
//     alone are gone.
//   - The schema: SQL is what ran; Before and After are lists of the objects as they were
//     and became, [{"type","name","table","sql","columns","purpose"}].
//   - SQL that was executed: Op is raw, Table and PK are "", SQL is the text. The rows that
//     it changed follow.
//
// Values are null, INTEGER as 1, REAL as 1.0 or {"real":"+Inf"}, TEXT as "…" (or
// {"text":base64} when it is not UTF-8), BLOB as {"blob":base64}.
type Change struct {
	ID                     int64
	At                     string // ISO-8601 UTC
	Run                    int64
	OtherLedger            bool // Run is not of the ledger that has the database
	Actor, Op, Table       string
	PK, Before, After, SQL string
}

// Filter picks rows of the changelog.
type Filter struct {
	Run      int64  // of one run; 0 means all
	Table    string // of one table; "" means all
	After    int64  // ids above this one
	Before   int64  // ids below this one; 0 means all
	Newest   bool   // newest first
	MaxCount int    // 0 means all
}

const selectChange = `select id, ts, run_id, actor, op, "table", coalesce(pk, ''), coalesce(before, ''), coalesce(after, ''), coalesce(sql, ''), ` + lineage.OfOther + ` from _changelog where `

func scanChange(scan sqlite.Scanner) (c Change, err error) {
	err = scan(&c.ID, &c.At, &c.Run, &c.Actor, &c.Op, &c.Table, &c.PK, &c.Before, &c.After, &c.SQL, &c.OtherLedger)
	return c, err
}

// Entry is what is to be written into _changelog; empty texts are stored as NULL.
type Entry struct{ Op, Table, PK, Before, After, SQL string }

// Log adds one entry to the changelog and returns its id.
func Log(tx *sqlite.Tx, by By, at string, c Entry) (id int64, err error) {
	actor := by.Actor
	if actor == "" {
		actor = actorAgent
	}

	result, err := tx.Exec(`insert into _changelog(ledger, run_id, ts, actor, op, "table", pk, before, after, sql)
		values (`+lineage.OfRun+`, ?1, ?2, ?3, ?4, ?5, nullif(?6, ''), nullif(?7, ''), nullif(?8, ''), nullif(?9, ''))`,
		by.Run, at, actor, c.Op, c.Table, c.PK, c.Before, c.After, c.SQL)
	if err != nil {
		return 0, fmt.Errorf("cannot write the changelog: %w", err)
	}
	return result.LastInsertId()
}

// LogRows writes the rows that a statement changed into the changelog. op is the operation, or "" to
// Name each entry after its effect.
func LogRows(ctx context.Context, tx *sqlite.Tx, by By, at, op string, changes []sqlite.RowChange) error {
	layouts := map[string]*Layout{}
	for i := 0; i < len(changes); {
		c := changes[i]
		t := layouts[c.Table]
		if t == nil {
			var err error
			if t, err = ReadLayout(ctx, tx, c.Table); err != nil {
				return err
			}
			layouts[c.Table] = t
		}

		// The trigger that keeps _updated_at follows each update as a change of its own; together
		// they are one entry.
		entry, n := t.merge(changes[i:])
		i += n
		if entry.Op = op; op == "" {
			entry.Op = entry.effect()
		}
		if entry.Before == entry.After {
			continue // an update that left everything as it was
		}
		if _, err := Log(tx, by, at, entry); err != nil {
			return err
		}
	}

	return nil
}

// effect names what happened to a row; deleting it for good has no name of its own.
func (c Entry) effect() string {
	switch {
	case c.Before == "":
		return OpInsert
	case c.After == "":
		return OpRaw
	}
	return OpUpdate
}

// merge makes one entry of the changes that directly follow each other on one row: an
// update, and the trigger that sets the instant of it.
func (t *Layout) merge(changes []sqlite.RowChange) (Entry, int) {
	before, after := t.rowImages(changes[0])
	n := 1
	for ; n < len(changes) && after != nil && changes[n].Table == changes[0].Table && changes[n].Old != nil && changes[n].New != nil; n++ {
		// Two changes belong together only if the second begins with exactly what the first left:
		// the same row may be changed again later on.
		old, next := t.rowImages(changes[n])
		if old.String() != after.String() {
			break
		}
		after = next
	}

	c := Entry{Table: t.Name}
	switch {
	case before == nil:
		// An inserted row is found by the key that it has; every other one by the key that it had
		// Before the change.
		c.PK, c.After = after.Pick(t.Key).String(), after.String()
	case after == nil:
		c.PK, c.Before = before.Pick(t.Key).String(), before.String()
	default:
		c.PK = before.Pick(t.Key).String()
		c.Before, c.After = difference(*before, *after)
	}

	return c, n
}

func (t *Layout) rowImages(c sqlite.RowChange) (before, after *Image) {
	if c.Old != nil {
		m := t.row(c.Old, c.OldRow)
		before = &m
	}

	if c.New != nil {
		m := t.row(c.New, c.NewRow)
		after = &m
	}
	return before, after
}

// difference gives the columns in which two images of a row differ.
func difference(before, after Image) (was, became string) {
	var w, b Image
	for i, name := range before.Columns {
		// Compared as the changelog writes them: []byte has no ==, and 1 differs from 1.0.
		if string(sqlvalue.Append(nil, before.Values[i])) == string(sqlvalue.Append(nil, after.Values[i])) {
			continue
		}
		w.Columns, w.Values = append(w.Columns, name), append(w.Values, before.Values[i])
		b.Columns, b.Values = append(b.Columns, name), append(b.Values, after.Values[i])
	}

	return w.String(), b.String()
}

// By says on whose behalf a write happens.
type By struct {
	Run   int64
	Key   string // the call's key; "" keeps the write out of the journal
	Actor string // agent (the default), user, migration or system
}

// Read reads the changelog.
func Read(ctx context.Context, q sqlite.Querier, f Filter) ([]Change, error) {
	order, most := "id", -1
	if f.Newest {
		order = "id desc"
	}
	if f.MaxCount > 0 {
		most = f.MaxCount
	}

	return sqlite.Collect(ctx, q, scanChange, selectChange+`(?1 = 0 or run_id = ?1 and ledger = `+lineage.OfRun+`) and (?2 = '' or "table" = ?2 collate nocase) and id > ?3 and (?5 = 0 or id < ?5) order by `+order+` limit ?4`,
		f.Run, f.Table, f.After, most, f.Before)
}
