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

// Object is a table, index, view or trigger in the changelog.
type Object struct {
	Type    string   `json:"type"`
	Name    string   `json:"name"`
	Table   string   `json:"table"`
	SQL     string   `json:"sql"`
	Columns []string `json:"columns,omitempty"` // tables only
	Purpose string   `json:"purpose,omitempty"` // tables only
	Page    int64    // root page, which does not change when a table is renamed
}

// ReadObjects returns the agent's schema, including the host's triggers on it.
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

// schemaDiff returns the objects that were removed or changed, and those that were added or
// changed.
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

// ChangeSchema runs do and logs its changes to the schema, with the SQL that do returns. table is
// the table name for the log. If empty, the table of the first changed object is used.
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
	// Do not log a CREATE … IF NOT EXISTS that had no effect.
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

// reverseSchema returns the statements that undo a change of the schema.
func reverseSchema(was, became []Object) ([]string, error) {
	var drops, changes, makes []string
	dropped := map[string]bool{}
	oldTables, newTables := Tables(was), Tables(became)
	// The lists hold the changed tables in schema order, so equal positions are the same table.
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

	// The table was empty when it was dropped.
	for _, o := range oldTables[min(len(newTables), len(oldTables)):] {
		makes = append(makes, o.SQL)
	}

	// SQLite also restores objects that it rewrote for a rename, so skip those.
	same := func(o Object, in []Object) bool {
		return slices.ContainsFunc(in, func(p Object) bool { return p.Type == o.Type && p.Name == o.Name })
	}
	for _, o := range became {
		if o.Type != "table" && !dropped[strings.ToLower(o.Table)] && !same(o, was) {
			// Drop views and triggers before the tables they use.
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

// reverseAlter returns the statements that undo one ALTER TABLE: added columns, or a renamed
// column or table.
func reverseAlter(was, became Object) (out []string, err error) {
	// Columns are only added at the end, so drop the last one first.
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

// SyncTables updates the host's records of tables after a schema change: the purpose and the
// host's trigger follow a rename. It returns the executed SQL.
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

		// SQLite applies the rename inside the trigger but keeps the trigger's name, by which the
		// host finds it.
		for _, text := range []string{"DROP TRIGGER " + sqltext.Quote("_touch_"+o.Name), sqltext.TouchTrigger(after[i].Name)} {
			if _, err := tx.SQL().ExecContext(tx.Context(ctx), text); err != nil {
				return nil, err
			}
			ran = append(ran, text)
		}
	}

	for _, o := range Tables(after) {
		// Compare root pages, because the table may only have been renamed.
		if slices.ContainsFunc(before, func(p Object) bool { return p.Type == "table" && p.Page == o.Page }) {
			continue
		}
		if _, err := tx.Exec(`insert or ignore into _tables_meta(name, purpose, created_at, run_id) values (?, ?, ?, ?)`, o.Name, o.Purpose, at, by.Run); err != nil {
			return nil, err
		}
	}

	return ran, nil
}

// DropTriggers drops all triggers and returns the SQL that creates them again.
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
