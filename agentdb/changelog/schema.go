package changelog

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

// Object is a table, an index, a view or a trigger as the changelog keeps it.
type Object struct {
	Type    string   `json:"type"`
	Name    string   `json:"name"`
	Table   string   `json:"table"`
	SQL     string   `json:"sql"`
	Columns []string `json:"columns,omitempty"` // of a table
	Purpose string   `json:"purpose,omitempty"` // of a table
	Page    int64    // the root page, which stays when a table is renamed
}

// ReadObjects reads the agent's schema, and the host's triggers on it.
func ReadObjects(ctx context.Context, tx *sqlite.Tx) ([]Object, error) {
	return sqlite.Collect(ctx, sqlite.Prepared{Tx: tx}, func(scan sqlite.Scanner) (o Object, err error) {
		var columns string
		if err := scan(&o.Type, &o.Name, &o.Table, &o.SQL, &o.Page, &o.Purpose, &columns); err != nil {
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
func schemaDiff(before, after []Object) (was, became []Object) {
	missing := func(from, in []Object) (out []Object) {
		for _, o := range from {
			if !slices.ContainsFunc(in, func(p Object) bool {
				return p.Type == o.Type && p.Name == o.Name && p.SQL == o.SQL
			}) {
				out = append(out, o)
			}
		}
		return out
	}
	return missing(before, after), missing(after, before)
}

// ChangeSchema runs do and logs what it did to the schema, with the text that repeats it.
// The table's name is for the log; "" takes that of the first object.
func ChangeSchema(ctx context.Context, tx *sqlite.Tx, by By, at, table string, do func() (text string, err error)) error {
	before, err := ReadObjects(ctx, tx)
	if err != nil {
		return err
	}
	text, err := do()
	if err != nil {
		return err
	}
	after, err := ReadObjects(ctx, tx)
	if err != nil {
		return err
	}

	was, became := schemaDiff(before, after)
	all := slices.Concat(became, was)
	// CREATE … IF NOT EXISTS may have done nothing, which is not logged.
	if len(all) == 0 {
		return nil
	}

	entry := Entry{Op: opSchema, Table: cmp.Or(table, all[0].Table), SQL: text}
	if entry.Before, err = formatObjects(was); err != nil {
		return err
	}
	if entry.After, err = formatObjects(became); err != nil {
		return err
	}
	_, err = Log(tx, by, at, entry)
	return err
}

func formatObjects(objects []Object) (string, error) {
	if len(objects) == 0 {
		return "", nil
	}
	out, err := json.Marshal(objects)
	return string(out), err
}

func parseObjects(text string) (out []Object, err error) {
	if text == "" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(text), &out)
	return out, err
}

// reverseSchema gives the statements that undo a change of the schema.
func reverseSchema(was, became []Object) ([]string, error) {
	var drops, changes, makes []string
	dropped := map[string]bool{}
	oldTables, newTables := Tables(was), Tables(became)
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
	same := func(o Object, in []Object) bool {
		return slices.ContainsFunc(in, func(p Object) bool { return p.Type == o.Type && p.Name == o.Name })
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

// Tables returns the tables among the objects.
func Tables(objects []Object) (out []Object) {
	for _, o := range objects {
		if o.Type == "table" {
			out = append(out, o)
		}
	}
	return out
}

// reverseAlter undoes one ALTER TABLE: it added columns, or renamed one or the table.
func reverseAlter(was, became Object) (out []string, err error) {
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

// SyncTables keeps what is known about tables in step with a change of the schema: the
// purpose follows a name, and so does the host's trigger. It gives the SQL that it ran.
func SyncTables(ctx context.Context, tx *sqlite.Tx, by By, at string, before, after []Object) (ran []string, err error) {
	for _, o := range Tables(before) {
		i := slices.IndexFunc(after, func(p Object) bool { return p.Type == "table" && p.Page == o.Page })
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
		if !slices.ContainsFunc(after, func(p Object) bool { return p.Type == "trigger" && p.Name == "_touch_"+o.Name }) {
			continue
		}

		// SQLite follows the rename inside the trigger but leaves its name, by which the host
		// finds it.
		for _, text := range []string{"DROP TRIGGER " + sqltext.Quote("_touch_"+o.Name), sqltext.TouchTrigger(after[i].Name)} {
			if _, err := tx.SQL().ExecContext(tx.Context(ctx), text); err != nil {
				return nil, err
			}
			ran = append(ran, text)
		}
	}

	for _, o := range Tables(after) {
		// A table is known by its root page: its name may be the only thing that changed.
		if slices.ContainsFunc(before, func(p Object) bool { return p.Type == "table" && p.Page == o.Page }) {
			continue
		}
		if _, err := tx.Exec(`insert or ignore into _tables_meta(name, purpose, created_at, run_id) values (?, ?, ?, ?)`, o.Name, o.Purpose, at, by.Run); err != nil {
			return nil, err
		}
	}

	return ran, nil
}

// DropTriggers drops all triggers and gives the SQL that makes them again.
func DropTriggers(ctx context.Context, tx *sqlite.Tx) (definitions []string, err error) {
	objects, err := ReadObjects(ctx, tx)
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
