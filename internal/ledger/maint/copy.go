package maint

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"rouse/internal/ledger/blob"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// copyChunk is how many rows one transaction of a copy takes.
const copyChunk = 2000

// CopiedTable is what a Copy has taken of one table.
type CopiedTable struct {
	Name string
	Rows int64 // in both ledgers
}

// CopyOptions are what a Copy tells its caller.
type CopyOptions struct {
	Progress func(table string, rows, of int64) // after each part; nil: nobody wants to know
}

// Copy makes to, which nothing was recorded in, hold all that from holds, under its id: whichever databases they are on. Nobody
// else may use either of them meanwhile, and the caller sees to that where one is a file. A copy that was cut off goes on.
// At the end the rows of both are counted.
func Copy(ctx context.Context, from, to *Maint, o CopyOptions) ([]CopiedTable, error) {
	for _, l := range []*Maint{from, to} {
		if l.DB.Postgres == nil {
			continue
		}
		release, err := l.excludeNodes(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
	}

	tables, err := copiedTables(ctx, from, to)
	if err != nil {
		return nil, err
	}
	whole, err := sameCounts(ctx, from, to, tables)
	if err != nil {
		return nil, err
	}
	if err := beginCopy(ctx, from, to, tables, whole); err != nil {
		return nil, err
	}

	var copied []CopiedTable
	for _, t := range tables {
		rows, err := copyTable(ctx, from, to, t, o.Progress)
		if err != nil {
			return nil, fmt.Errorf("the table %s could not be copied: %w", t.name, err)
		}
		copied = append(copied, CopiedTable{t.name, rows})
	}

	if err := endCopy(ctx, from, to, tables); err != nil {
		return nil, err
	}
	return copied, store.ReadEpochs(ctx, to.DB)
}

// copiedTable is one table, with its columns in the order of both ledgers, and those of its key.
type copiedTable struct {
	name         string
	columns, key []string
	text         map[string]bool // columns
	counts       bool            // its ids are given by the database
}

// notCopied lists tables that a copy leaves out, like those of River: they belong to one database.
var notCopied = []string{"schema_version", "copies", "blobs", "agent_copies"}

func copiedTables(ctx context.Context, from, to *Maint) ([]copiedTable, error) {
	has, err := from.tables(ctx)
	if err != nil {
		return nil, err
	}
	wants, err := to.tables(ctx)
	if err != nil {
		return nil, err
	}

	for i, t := range has {
		if at := slices.IndexFunc(wants, func(w copiedTable) bool { return w.name == t.name }); at < 0 || !slices.Equal(sorted(wants[at].columns), sorted(t.columns)) {
			return nil, fmt.Errorf("the table %s is not the same in both ledgers: they are of different versions", t.name)
		} else if from.DB.Postgres == nil {
			has[i].text = wants[at].text // PostgreSQL is strict about it
		}
	}
	if len(has) != len(wants) {
		return nil, errors.New("the ledgers have different tables: they are of different versions")
	}
	return has, nil
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

// tables reads what there is to copy, from the database itself, so that nothing is forgotten that a later version adds.
func (l *Maint) tables(ctx context.Context) ([]copiedTable, error) {
	query := `select m.name, c.name, c.type, c.pk, m.sql like '%autoincrement%' from sqlite_schema m join pragma_table_info(m.name) c
		where m.type = 'table' and m.name not like 'sqlite_%' order by m.name, c.cid`
	if l.DB.Postgres != nil {
		query = `select c.table_name, c.column_name, c.data_type,
			coalesce((select k.ordinal_position from information_schema.table_constraints t join information_schema.key_column_usage k using (constraint_schema, constraint_name)
				where t.constraint_type = 'PRIMARY KEY' and t.table_schema = c.table_schema and t.table_name = c.table_name and k.column_name = c.column_name), 0),
			(select count(*) from information_schema.columns i where i.table_schema = c.table_schema and i.table_name = c.table_name and i.is_identity = 'YES') > 0
			from information_schema.columns c where c.table_schema = current_schema() order by c.table_name, c.ordinal_position`
	}

	type column struct {
		table, name, kind string
		keyPlace          int // from 1; 0: not in the key
		counts            bool
	}
	columns, err := store.List(store.Reads(ctx, l.DB), func(c *column) []any { return []any{&c.table, &c.name, &c.kind, &c.keyPlace, &c.counts} }, query)

	var all []copiedTable
	for _, c := range columns {
		if slices.Contains(notCopied, c.table) || strings.HasPrefix(c.table, "river_") {
			continue
		}
		if len(all) == 0 || all[len(all)-1].name != c.table {
			all = append(all, copiedTable{name: c.table, text: map[string]bool{}, counts: c.counts})
		}

		t := &all[len(all)-1]
		t.columns = append(t.columns, c.name)
		t.text[c.name] = strings.EqualFold(c.kind, "text")
		if c.keyPlace > 0 {
			t.key = append(t.key, make([]string, max(0, c.keyPlace-len(t.key)))...)
			t.key[c.keyPlace-1] = c.name
		}
	}

	for _, t := range all {
		if len(t.key) == 0 {
			return nil, fmt.Errorf("the table %s has no key to copy it by", t.name)
		}
	}
	return all, err
}

// excludeNodes keeps processes from joining until release, and refuses while one is at work.
func (l *Maint) excludeNodes(ctx context.Context) (release func(), err error) {
	alive, err := l.Nodes.Alive(ctx)
	if err != nil {
		return nil, err
	}
	if len(alive) > 0 {
		return nil, fmt.Errorf("the node %s works on that ledger; stop all nodes first", alive[0])
	}

	conn, err := l.DB.Postgres.Conn(ctx)
	if err != nil {
		return nil, err
	}
	got := false
	if err := conn.QueryRowContext(ctx, `select pg_try_advisory_lock($1, $2)`, l.DB.Class, store.LockJoin).Scan(&got); err != nil || !got {
		if err == nil {
			err = errors.New("a node is starting on that ledger, or another copy of it is being made; stop it first")
		}
		return nil, errors.Join(err, conn.Close())
	}
	return func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), `select pg_advisory_unlock($1, $2)`, l.DB.Class, store.LockJoin) // the session ends with it
		_ = conn.Close()
	}, nil
}

// sameCounts reports whether two ledgers have as many rows in each table.
func sameCounts(ctx context.Context, from, to *Maint, tables []copiedTable) (bool, error) {
	for _, t := range tables {
		wants, err := from.count(ctx, t)
		if err != nil {
			return false, err
		}
		if has, err := to.count(ctx, t); err != nil || has != wants {
			return false, err
		}
	}
	return true, nil
}

func (l *Maint) count(ctx context.Context, t copiedTable) (int64, error) {
	return store.Value[int64](store.Reads(ctx, l.DB), `select count(*) from `+t.name)
}

// beginCopy marks to as a copy that is not whole, unless it is one of from already, and empties what a new ledger holds.
// same says that both hold as much: then a whole copy of from is nothing new.
func beginCopy(ctx context.Context, from, to *Maint, tables []copiedTable, same bool) error {
	return store.Write(ctx, to.DB, func(tx *store.Tx) error {
		var source string
		var done int64
		err := tx.QueryRow(`select source, done_at from copies`).Scan(&source, &done)
		switch {
		case err == nil && source == from.DB.ID() && (done == 0 || same):
			return nil
		case err == nil && done == 0:
			return errors.New("the copy of another ledger was begun there, and is not whole; finish that one, or empty the database")
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			return err
		}

		// One that has never given a run an id has no history: what it knows of jobs and of its own making is in from as well.
		newest, err := store.Value[int64](tx, to.DB.RunIDs.Newest)
		if err != nil {
			return err
		}
		if newest > 0 {
			return errors.New("there is a ledger already in which something was recorded; a copy is made into an empty one, and replaces nothing")
		}

		for _, t := range tables {
			tx.Run(`delete from ` + t.name)
		}
		_, err = tx.Exec(`insert into copies (source, begun_at) values ($1, $2) on conflict (source) do update set begun_at = excluded.begun_at, done_at = 0`, from.DB.ID(), store.Millis(to.DB.Now()))
		return err
	})
}

// ordered is a key as both databases order it.
func (l *Maint) ordered(t copiedTable) string {
	terms := make([]string, len(t.key))
	for i, column := range t.key {
		if terms[i] = column; l.DB.Postgres != nil && t.text[column] {
			terms[i] += ` collate "C"`
		}
	}
	return strings.Join(terms, ", ")
}

// copyTable copies the rows that come after the last that is there.
func copyTable(ctx context.Context, from, to *Maint, t copiedTable, progress func(string, int64, int64)) (int64, error) {
	of, err := from.count(ctx, t)
	if err != nil {
		return 0, err
	}
	rows, err := to.count(ctx, t)
	if err != nil {
		return 0, err
	}
	after, err := to.lastKey(ctx, t)
	if err != nil {
		return 0, err
	}
	for {
		chunk, err := from.rowsAfter(ctx, t, after)
		if err != nil {
			return 0, err
		}
		if len(chunk) == 0 {
			break
		}
		if err := to.insertRows(ctx, from, t, chunk); err != nil {
			return 0, err
		}

		rows += int64(len(chunk))
		if progress != nil {
			progress(t.name, rows, of)
		}
		last := chunk[len(chunk)-1]
		after = after[:0]
		for _, column := range t.key {
			after = append(after, last[slices.Index(t.columns, column)])
		}
	}

	now, err := to.count(ctx, t)
	if err == nil && now != of {
		err = fmt.Errorf("%d of %d rows arrived", now, of)
	}
	return now, err
}

// lastKey is the key of the last row, nil when there is none.
func (l *Maint) lastKey(ctx context.Context, t copiedTable) ([]any, error) {
	last, err := l.anyRows(ctx, fmt.Sprintf(`select %s from %s order by %s limit 1`, strings.Join(t.key, ", "), t.name,
		strings.ReplaceAll(l.ordered(t), ",", " desc,")+" desc"))
	if err != nil || len(last) == 0 {
		return nil, err
	}
	return last[0], nil
}

func (l *Maint) anyRows(ctx context.Context, query string, args ...any) (all [][]any, err error) {
	rows, err := store.Reads(ctx, l.DB).Query(query, args...) //nolint:sqlclosecheck,rowserrcheck // eachRow closes them
	return all, store.EachRow(rows, err, func(_ []string, row []any) error {
		all = append(all, slices.Clone(row))
		return nil
	})
}

func (l *Maint) rowsAfter(ctx context.Context, t copiedTable, after []any) ([][]any, error) {
	where := ""
	if len(after) > 0 {
		where = fmt.Sprintf(` where (%s) > (%s)`, l.ordered(t), record.Places(1, len(after)))
	}

	return l.anyRows(ctx, fmt.Sprintf(`select %s from %s%s order by %s limit %d`, strings.Join(t.columns, ", "), t.name, where, l.ordered(t), copyChunk), after...)
}

// insertRows writes rows of from. Values that it keeps in files come along, and go into files where this ledger has any.
func (l *Maint) insertRows(ctx context.Context, from *Maint, t copiedTable, rows [][]any) error {
	defer l.Blobs.Hold()()

	type reference struct {
		hash  string
		owner int64 // a run, or the negative id of a workspace
	}
	var kept []reference
	for _, row := range rows {
		// What looks like the name of a large value in any other column was written by somebody else.
		for _, large := range blob.References {
			if large.Table != t.name {
				continue
			}
			at := slices.Index(t.columns, large.Column)
			text, err := from.Blobs.Unpack(ctx, fmt.Sprint(asText(row[at])))
			if err != nil {
				return err
			}
			stored, hash, err := l.Blobs.Pack(ctx, string(text))
			if err != nil {
				return err
			}
			if row[at] = stored; hash != "" {
				kept = append(kept, reference{hash, row[slices.Index(t.columns, "run")].(int64)})
				if w := slices.Index(t.columns, "workspace"); w >= 0 && row[w] != int64(0) {
					kept = append(kept, reference{hash, -row[w].(int64)}) // which outlives its runs
				}
			}
		}
	}

	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		for some := range slices.Chunk(rows, insertGroup) {
			var values []any
			for _, row := range some {
				for i, column := range t.columns {
					if t.text[column] {
						values = append(values, asText(row[i]))
					} else {
						values = append(values, row[i])
					}
				}
			}
			tx.Run(l.insertStatement(t, len(some)), values...)
		}

		for _, k := range kept {
			blob.Keep(tx, k.hash, k.owner)
		}
		return nil
	})
}

// insertGroup is how many rows one statement inserts: a way over the network for each, and not for each row.
const insertGroup = 50

func (l *Maint) insertStatement(t copiedTable, rows int) string {
	overriding := ""
	if l.DB.Postgres != nil && t.counts {
		overriding = " overriding system value"
	}
	var all []string
	for i := range rows {
		all = append(all, "("+record.Places(1+i*len(t.columns), len(t.columns))+")")
	}
	return fmt.Sprintf("insert into %s (%s)%s values %s", t.name, strings.Join(t.columns, ", "), overriding, strings.Join(all, ", "))
}

// asText is a value of a column of texts, which SQLite may have stored as it was given.
func asText(v any) any {
	switch v := v.(type) {
	case nil, string:
		return v
	case []byte:
		return string(v)
	default:
		return fmt.Sprint(v)
	}
}

// endCopy has the ids go on after those of from, and marks the copy as whole.
func endCopy(ctx context.Context, from, to *Maint, tables []copiedTable) error {
	newest, err := from.DB.NewestRun(ctx)
	if err != nil {
		return err
	}

	return store.Write(ctx, to.DB, func(tx *store.Tx) error {
		for _, t := range tables {
			if to.DB.Postgres == nil || !t.counts {
				continue
			}
			tx.Run(fmt.Sprintf(`select setval(pg_get_serial_sequence('%[1]s', '%[2]s'), greatest(coalesce(max(%[2]s), 0), 1), max(%[2]s) is not null) from %[1]s`, t.name, t.key[0]))
		}
		if newest > 0 { // above those that are kept
			for _, statement := range to.DB.RunIDs.Skip {
				tx.Run(statement, newest)
			}
		}

		_, err := tx.Exec(`update copies set done_at = $1 where source = $2`, store.Millis(to.DB.Now()), from.DB.ID())
		return err
	})
}
