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

// copyChunk is the number of rows that one transaction copies.
const copyChunk = 2000

// CopiedTable is a table that Copy has copied.
type CopiedTable struct {
	Name string
	Rows int64 // in both ledgers
}

// CopyOptions holds the options of Copy.
type CopyOptions struct {
	Progress func(table string, rows, of int64) // called after each chunk; optional
}

// Copy copies all rows of from into the empty ledger to, which gets the id of from. Each ledger may
// be on SQLite or PostgreSQL. A copy that was interrupted continues. At the end, Copy compares the
// numbers of rows.
//
// No other process may use either ledger. The caller must ensure that for a ledger in a file.
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

// copiedTable is a table, with the columns that both ledgers have and those of its key.
type copiedTable struct {
	name         string
	columns, key []string
	text         map[string]bool // columns of type text
	counts       bool            // whether the database assigns its ids
}

// notCopied lists tables that belong to one database and are not copied. The tables of River are
// not copied either.
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
			has[i].text = wants[at].text // PostgreSQL requires the type text
		}
	}
	if len(has) != len(wants) {
		return nil, errors.New("the ledgers have different tables: they are of different versions")
	}
	return has, nil
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

// tables reads the tables to copy from the database, so that tables added later are included.
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
		keyPlace          int // from 1; 0 if not in the key
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

// excludeNodes keeps nodes from joining until release is called. It returns an error if a node is
// alive.
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
		// otherwise the lock ends with the session
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), `select pg_advisory_unlock($1, $2)`, l.DB.Class, store.LockJoin)
		_ = conn.Close()
	}, nil
}

// sameCounts reports whether two ledgers have the same number of rows in each table.
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

// beginCopy marks to as an incomplete copy, unless it is already a copy of from, and empties its
// tables. same means that both ledgers have the same number of rows. A complete copy of from then
// needs no new copy.
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

		// A ledger that has never assigned a run id has no history. Its jobs and its epoch are
		// replaced by those of from.
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

// ordered returns the order of a key, which is the same in both databases.
func (l *Maint) ordered(t copiedTable) string {
	terms := make([]string, len(t.key))
	for i, column := range t.key {
		if terms[i] = column; l.DB.Postgres != nil && t.text[column] {
			terms[i] += ` collate "C"`
		}
	}
	return strings.Join(terms, ", ")
}

// copyTable copies the rows after the last row that to has.
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

// lastKey returns the key of the last row, or nil if the table is empty.
func (l *Maint) lastKey(ctx context.Context, t copiedTable) ([]any, error) {
	last, err := l.anyRows(ctx, fmt.Sprintf(`select %s from %s order by %s limit 1`, strings.Join(t.key, ", "), t.name,
		strings.ReplaceAll(l.ordered(t), ",", " desc,")+" desc"))
	if err != nil || len(last) == 0 {
		return nil, err
	}
	return last[0], nil
}

func (l *Maint) anyRows(ctx context.Context, query string, args ...any) (all [][]any, err error) {
	rows, err := store.Reads(ctx, l.DB).Query(query, args...) //nolint:sqlclosecheck,rowserrcheck // EachRow closes them
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

// insertRows writes rows of from. Large values are copied too, and are stored outside the database
// if this ledger does that.
func (l *Maint) insertRows(ctx context.Context, from *Maint, t copiedTable, rows [][]any) error {
	defer l.Blobs.Hold()()

	type reference struct {
		hash  string
		owner int64 // run, or the negative id of a workspace
	}
	var kept []reference
	for _, row := range rows {
		// Only these columns hold references. A similar text in another column is data.
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
					kept = append(kept, reference{hash, -row[w].(int64)}) // the workspace outlives its runs
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

// insertGroup is the number of rows that one statement inserts. It saves network round trips.
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

// asText returns a value of a text column as a string. SQLite may store values of other types in
// such columns.
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

// endCopy continues the ids after those of from, and marks the copy as complete.
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
		if newest > 0 { // removed runs may have had higher ids
			for _, statement := range to.DB.RunIDs.Skip {
				tx.Run(statement, newest)
			}
		}

		_, err := tx.Exec(`update copies set done_at = $1 where source = $2`, store.Millis(to.DB.Now()), from.DB.ID())
		return err
	})
}
