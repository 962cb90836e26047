package agentdb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"rouse/agentdb/sqltext"
	"rouse/internal/storage/sqlite"
)

// schemaObject is a table, an index, a view or a trigger as the changelog keeps it.
type schemaObject struct {
	Type    string   `json:"type"`
	Name    string   `json:"name"`
	Table   string   `json:"table"`
	SQL     string   `json:"sql"`
	Columns []string `json:"columns,omitempty"` // of a table
	Purpose string   `json:"purpose,omitempty"` // of a table
	page    int64    // the root page, which stays when a table is renamed
}

// readObjects reads the agent's schema, and the host's triggers on it.
func readObjects(ctx context.Context, tx *sqlite.Tx) ([]schemaObject, error) {
	return sqlite.Collect(ctx, sqlite.Prepared{Tx: tx}, func(scan sqlite.Scanner) (o schemaObject, err error) {
		var columns string
		if err := scan(&o.Type, &o.Name, &o.Table, &o.SQL, &o.page, &o.Purpose, &columns); err != nil {
			return o, err
		}
		err = json.Unmarshal([]byte(columns), &o.Columns)
		return o, err
	}, `select m.type, m.name, m.tbl_name, m.sql, m.rootpage, coalesce(p.purpose, ''),
		case m.type when 'table' then (select json_group_array(name) from pragma_table_xinfo(m.name)) else '[]' end
		from sqlite_schema m left join _tables_meta p on m.type = 'table' and p.name = m.name
		where m.sql is not null and m.name not like 'sqlite\_%' escape '\' and substr(m.tbl_name, 1, 1) <> '_' order by m.rowid`)
}

// schemaDiff gives the objects that only one side has, or has in another form.
func schemaDiff(before, after []schemaObject) (was, became []schemaObject) {
	missing := func(from, in []schemaObject) (out []schemaObject) {
		for _, o := range from {
			if !slices.ContainsFunc(in, func(p schemaObject) bool {
				return p.Type == o.Type && p.Name == o.Name && p.SQL == o.SQL
			}) {
				out = append(out, o)
			}
		}
		return out
	}
	return missing(before, after), missing(after, before)
}

// changeSchema runs do and logs what it did to the schema, with the text that repeats it.
// The table's name is for the log; "" takes that of the first object.
func changeSchema(ctx context.Context, tx *sqlite.Tx, by By, at, table string, do func() (text string, err error)) error {
	before, err := readObjects(ctx, tx)
	if err != nil {
		return err
	}
	text, err := do()
	if err != nil {
		return err
	}
	after, err := readObjects(ctx, tx)
	if err != nil {
		return err
	}

	was, became := schemaDiff(before, after)
	all := slices.Concat(became, was)
	// CREATE … IF NOT EXISTS may have done nothing, which is not logged.
	if len(all) == 0 {
		return nil
	}

	entry := change{op: opSchema, table: cmp.Or(table, all[0].Table), sql: text}
	if entry.before, err = formatObjects(was); err != nil {
		return err
	}
	if entry.after, err = formatObjects(became); err != nil {
		return err
	}
	_, err = logChange(tx, by, at, entry)
	return err
}

func formatObjects(objects []schemaObject) (string, error) {
	if len(objects) == 0 {
		return "", nil
	}
	out, err := json.Marshal(objects)
	return string(out), err
}

func parseObjects(text string) (out []schemaObject, err error) {
	if text == "" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(text), &out)
	return out, err
}

// reverseSchema gives the statements that undo a change of the schema.
func reverseSchema(was, became []schemaObject) ([]string, error) {
	var drops, changes, makes []string
	dropped := map[string]bool{}
	oldTables, newTables := tablesOf(was), tablesOf(became)
	// The lists hold what differs, in the order of the schema, so equal positions are the same
	// table.
	for i, o := range newTables {
		if i < len(oldTables) {
			text, err := reverseAlter(oldTables[i], o)
			if err != nil {
				return nil, err
			}
			changes = append(changes, text...)
			continue
		}

		dropped[strings.ToLower(o.Name)] = true
		drops = append(drops, "DROP TABLE "+sqltext.Quote(o.Name))
	}

	for _, o := range oldTables[min(len(newTables), len(oldTables)):] { // it was empty when it was dropped, see applier.checkDrop
		makes = append(makes, o.SQL)
	}

	// What SQLite rewrote because a table or a column was renamed, it rewrites back.
	same := func(o schemaObject, in []schemaObject) bool {
		return slices.ContainsFunc(in, func(p schemaObject) bool { return p.Type == o.Type && p.Name == o.Name })
	}
	for _, o := range became {
		if o.Type != "table" && !dropped[strings.ToLower(o.Table)] && !same(o, was) {
			// Views and triggers go before the tables that they need.
			drops = append([]string{"DROP " + strings.ToUpper(o.Type) + " " + sqltext.Quote(o.Name)}, drops...)
		}
	}

	for _, o := range was {
		if o.Type != "table" && !same(o, became) {
			makes = append(makes, o.SQL)
		}
	}

	return append(append(drops, changes...), makes...), nil
}

func tablesOf(objects []schemaObject) (out []schemaObject) {
	for _, o := range objects {
		if o.Type == "table" {
			out = append(out, o)
		}
	}
	return out
}

// reverseAlter undoes one ALTER TABLE: it added columns, or renamed one or the table.
func reverseAlter(was, became schemaObject) (out []string, err error) {
	// Columns are only ever added at the end; the last goes first.
	for n := len(became.Columns); n > len(was.Columns); n-- {
		out = append(out, "ALTER TABLE "+sqltext.Quote(became.Name)+" DROP COLUMN "+sqltext.Quote(became.Columns[n-1]))
	}

	if len(became.Columns) < len(was.Columns) {
		return nil, fmt.Errorf("the table %s lost the column %s, whose values are not in the changelog", became.Name, was.Columns[len(was.Columns)-1])
	}

	for i, name := range was.Columns {
		if became.Columns[i] != name {
			out = append(out, "ALTER TABLE "+sqltext.Quote(became.Name)+" RENAME COLUMN "+sqltext.Quote(became.Columns[i])+" TO "+sqltext.Quote(name))
		}
	}

	if was.Name != became.Name {
		out = append(out, "ALTER TABLE "+sqltext.Quote(became.Name)+" RENAME TO "+sqltext.Quote(was.Name))
	}

	return out, nil
}

// syncTables keeps what is known about tables in step with a change of the schema: the
// purpose follows a name, and so does the host's trigger. It gives the SQL that it ran.
func syncTables(ctx context.Context, tx *sqlite.Tx, by By, at string, before, after []schemaObject) (ran []string, err error) {
	for _, o := range tablesOf(before) {
		i := slices.IndexFunc(after, func(p schemaObject) bool { return p.Type == "table" && p.page == o.page })
		if i < 0 {
			if _, err := tx.Exec(`delete from _tables_meta where name = ?`, o.Name); err != nil {
				return nil, err
			}
			continue
		}

		if after[i].Name == o.Name {
			continue
		}
		if _, err := tx.Exec(`update _tables_meta set name = ? where name = ?`, after[i].Name, o.Name); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(after, func(p schemaObject) bool { return p.Type == "trigger" && p.Name == "_touch_"+o.Name }) {
			continue
		}

		// SQLite follows the rename inside the trigger but leaves its name, by which the host
		// finds it.
		for _, text := range []string{"DROP TRIGGER " + sqltext.Quote("_touch_"+o.Name), touchTrigger(after[i].Name)} {
			if _, err := tx.SQL().ExecContext(tx.Context(ctx), text); err != nil {
				return nil, err
			}
			ran = append(ran, text)
		}
	}

	for _, o := range tablesOf(after) {
		// A table is known by its root page: its name may be the only thing that changed.
		if slices.ContainsFunc(before, func(p schemaObject) bool { return p.Type == "table" && p.page == o.page }) {
			continue
		}
		if _, err := tx.Exec(`insert or ignore into _tables_meta(name, purpose, created_at, run_id) values (?, ?, ?, ?)`, o.Name, o.Purpose, at, by.Run); err != nil {
			return nil, err
		}
	}

	return ran, nil
}

// dropTriggers drops all triggers and gives the SQL that makes them again.
func dropTriggers(ctx context.Context, tx *sqlite.Tx) (definitions []string, err error) {
	objects, err := readObjects(ctx, tx)
	if err != nil {
		return nil, err
	}

	for _, o := range objects {
		if o.Type != "trigger" {
			continue
		}
		if _, err := tx.SQL().ExecContext(ctx, "DROP TRIGGER "+sqltext.Quote(o.Name)); err != nil {
			return nil, err
		}
		definitions = append(definitions, o.SQL)
	}

	return definitions, nil
}
