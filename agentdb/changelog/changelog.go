// Package changelog records every change of an agent's database and undoes the changes of a run.
// Its functions run inside a transaction of the caller.
package changelog

import (
	"context"
	"fmt"

	"rouse/agentdb/lineage"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/sqlite"
)

// Operations of the changelog. A change by a trigger or cascade is logged with the operation that
// caused it.
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

// Change is a row of the changelog. Actor is one of:
//
//   - agent: a run, with any tool except db_migrate
//   - migration: db_migrate, including the rows it changes
//   - user: an owner at the command line or the API
//   - system: the host itself, for example an undo_on_failure
//
// The contents of PK, Before and After depend on the kind of entry:
//
//   - One row of a table: PK is {"column":value,…}, the row's key before the change. The key is the
//     primary key, or the row id if the primary key can be NULL. Before and After are
//     {"column":value,…}. An insert has only After and a delete only Before, both with the whole
//     row. An update has both, with the columns that changed.
//   - A chunk of inserted rows: PK is {"column":…,"from":…,"to":…,"count":n}, After is
//     {"columns":[…],"rows":[[…],…]}. If the key is not among the columns, the rows are numbered
//     from…to, in order.
//   - A chunk of upserted rows: PK is {"keys":[…],"from":…,"to":…,"count":n}. Before has the
//     existing rows, After all rows with their new values.
//   - A chunk that was undone: PK also has "at", the time the rows were written. Before and After
//     are swapped: rows that are only in Before were deleted.
//   - The schema: SQL is the executed SQL. Before and After are lists of the objects before and
//     after it, [{"type","name","table","sql","columns","purpose"}].
//   - Executed SQL: Op is raw, Table and PK are empty, SQL is the text. Entries for the changed
//     rows follow.
//
// An INTEGER is written as 1, a REAL as 1.0 or {"real":"+Inf"}, a TEXT as "…", and a BLOB as
// {"blob":base64}. NULL is null. A TEXT that is not UTF-8 is {"text":base64}.
type Change struct {
	ID                     int64
	At                     string // ISO-8601 UTC
	Run                    int64
	OtherLedger            bool // the ledger does not know Run
	Actor, Op, Table       string
	PK, Before, After, SQL string
}

// Filter selects rows of the changelog.
type Filter struct {
	Run      int64  // entries of this run; 0 means all
	Table    string // entries of this table; "" means all
	After    int64  // ids above this one
	Before   int64  // ids below this one; 0 means all
	Newest   bool   // newest first
	MaxCount int    // maximum number of entries; 0 means all
}

const selectChange = `select id, ts, run_id, actor, op, "table", coalesce(pk, ''), coalesce(before, ''), coalesce(after, ''), coalesce(sql, ''), ` + lineage.OfOther + ` from _changelog where `

func scanChange(scan sqlite.Scanner) (c Change, err error) {
	err = scan(&c.ID, &c.At, &c.Run, &c.Actor, &c.Op, &c.Table, &c.PK, &c.Before, &c.After, &c.SQL, &c.OtherLedger)
	return c, err
}

// Entry is a new row of _changelog. Empty fields are stored as NULL.
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

// LogRows logs the rows that a statement changed. op is the operation. If op is empty, each entry
// is named after its effect.
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

		// The trigger that updates _updated_at makes its own change after each update. Log both
		// as one entry.
		entry, n := t.merge(changes[i:])
		i += n
		if entry.Op = op; op == "" {
			entry.Op = entry.effect()
		}
		if entry.Before == entry.After {
			continue // an update without a difference
		}
		if _, err := Log(tx, by, at, entry); err != nil {
			return err
		}
	}

	return nil
}

// effect returns the operation for a changed row. A hard delete is OpRaw.
func (c Entry) effect() string {
	switch {
	case c.Before == "":
		return OpInsert
	case c.After == "":
		return OpRaw
	}
	return OpUpdate
}

// merge makes one entry of consecutive changes to one row: an update, and the trigger that sets
// its timestamp. It returns the entry and the number of changes.
func (t *Layout) merge(changes []sqlite.RowChange) (Entry, int) {
	before, after := t.rowImages(changes[0])
	n := 1
	for ; n < len(changes) && after != nil && changes[n].Table == changes[0].Table && changes[n].Old != nil && changes[n].New != nil; n++ {
		// Merge only if the second change starts with the result of the first: the same row may
		// also be changed again by a later statement.
		old, next := t.rowImages(changes[n])
		if old.String() != after.String() {
			break
		}
		after = next
	}

	c := Entry{Table: t.Name}
	switch {
	case before == nil:
		// An inserted row is identified by its new key, any other row by its key before the
		// change.
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

// difference returns the columns in which two images of a row differ, before and after.
func difference(before, after Image) (was, became string) {
	var w, b Image
	for i, name := range before.Columns {
		// Compare the stored form: []byte has no ==, and 1 differs from 1.0.
		if string(sqlvalue.Append(nil, before.Values[i])) == string(sqlvalue.Append(nil, after.Values[i])) {
			continue
		}
		w.Columns, w.Values = append(w.Columns, name), append(w.Values, before.Values[i])
		b.Columns, b.Values = append(b.Columns, name), append(b.Values, after.Values[i])
	}

	return w.String(), b.String()
}

// By identifies the writer of a change.
type By struct {
	Run   int64
	Key   string // key of the call; "" keeps the write out of the journal
	Actor string // agent (the default), user, migration or system
}

// Read returns the changelog entries that match f.
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
