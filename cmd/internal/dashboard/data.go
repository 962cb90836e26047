package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/a-h/templ"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/schema"
	"rouse/agentdb/transfer"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/web"
	"rouse/internal/text"
)

const (
	rowsOnPage = 50
	cellLength = 200      // characters per cell of a table
	maxEdited  = 20_000   // maximum length of an editable value, in characters
	maxUpload  = 64 << 20 // maximum size of an uploaded file, in bytes
)

// byOwner marks changes by a person in the changelog.
var byOwner = changelog.By{Actor: "user"}

// data is the page of a table.
type data struct {
	agent
	Tables  []schema.Table
	Table   *schema.Table // nil if the database has no tables
	Deleted bool          // rows can be marked as deleted
	Show    string        // active, deleted or all
	Column  string        // column to search; "" for all
	Text    string
	Offset  int
	Rows    agentdb.Rows
	// Imported is the number of rows just imported, in words. Optional.
	Imported string
}

func (s *site) dataRoutes(mux *http.ServeMux) {
	mux.Handle("GET /agents/{name}/data", s.showAgent("Data", s.data))
	mux.Handle("GET /agents/{name}/row", s.showAgent("Data", s.row))
	mux.Handle("GET /agents/{name}/cell", s.text(s.readCell))
	mux.HandleFunc("GET /agents/{name}/export", s.export)
	mux.Handle("POST /agents/{name}/cell", s.do(s.setCell))
	mux.Handle("POST /agents/{name}/delete", s.do(s.deleteRow))
	mux.Handle("POST /agents/{name}/restore", s.do(s.restoreRow))
	mux.HandleFunc("POST /agents/{name}/import", s.importFile)
}

func tablePath(agent, table string) string {
	return link([]string{"agents", agent, "data"}, "table", table)
}

// quoted quotes a name for SQL. The name must exist in the schema: SQLite treats unknown names in
// double quotes as strings.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func (s *site) data(r *http.Request, a agent) (templ.Component, error) {
	q := r.URL.Query()
	d := data{agent: a, Show: q.Get("show"), Column: q.Get("column"), Text: q.Get("q")}
	if d.Show != "deleted" && d.Show != "all" {
		d.Show = "active"
	}
	if n, err := strconv.Atoi(q.Get("offset")); err == nil && n > 0 {
		d.Offset = n
	}
	if n, err := strconv.ParseInt(q.Get("imported"), 10, 64); err == nil && n >= 0 {
		d.Imported = text.Plural(int(n), "row")
	}

	err := s.withDB(r.Context(), &d.agent, func(db *agentdb.DB) error { return d.read(r.Context(), db, q.Get("table")) })
	return dataPage(d), err
}

// read reads the rows of the requested table, or of the first table.
func (d *data) read(ctx context.Context, db *agentdb.DB, asked string) error {
	schema, err := db.Schema(ctx)
	if err != nil || len(schema.Tables) == 0 {
		return err
	}

	d.Tables = schema.Tables
	if d.Table, err = tableNamed(schema, cmp.Or(asked, schema.Tables[0].Name)); err != nil {
		return err
	}
	if d.Deleted, err = canDelete(ctx, db, d.Table.Name); err != nil {
		return err
	}

	sql, params := d.query()
	d.Rows, err = db.Query(ctx, agentdb.QuerySpec{SQL: sql, Params: params, Limit: rowsOnPage, Offset: d.Offset, IncludeDeleted: d.Show != "active"})
	return err
}

// canDelete reports whether rows of a table can be marked as deleted: whether it has the column
// _deleted_at.
func canDelete(ctx context.Context, db *agentdb.DB, table string) (bool, error) {
	_, err := db.Query(ctx, agentdb.QuerySpec{SQL: "select _deleted_at from " + quoted(table), Limit: 1, IncludeDeleted: true})
	var refused *agentdb.Error
	if errors.As(err, &refused) {
		return false, nil // the table has no such column
	}
	return err == nil, err
}

// query returns the SQL for the rows of a table. It truncates long texts.
func (d *data) query() (sql string, params []any) {
	var columns, where []string
	for _, c := range d.Table.Columns {
		name := quoted(c.Name)
		columns = append(columns, beginning(name, cellLength))
		if d.Text != "" && (d.Column == "" || d.Column == c.Name) {
			where = append(where, name+" like ? escape '!'")
			params = append(params, "%"+strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(d.Text)+"%")
		}
	}

	if d.Deleted {
		columns = append(columns, "_deleted_at")
	}
	sql = "select " + strings.Join(columns, ", ") + " from " + quoted(d.Table.Name) + " where true"
	if len(where) > 0 {
		sql += " and (" + strings.Join(where, " or ") + ")"
	}
	if d.Show == "deleted" && d.Deleted {
		sql += " and _deleted_at is not null"
	}
	if keys := keysOf(d.Table); len(keys) > 0 {
		for i, k := range keys {
			keys[i] = quoted(k)
		}
		sql += " order by " + strings.Join(keys, ", ")
	}
	return sql, params
}

// keysOf returns the primary key columns of a table.
func keysOf(t *schema.Table) (out []string) {
	for _, c := range t.Columns {
		if c.PrimaryKey {
			out = append(out, c.Name)
		}
	}
	return out
}

// keyOf returns the key of a row as JSON, or "" if its table has no key.
func keyOf(t *schema.Table, row map[string]any) string {
	keys := keysOf(t)
	if len(keys) == 0 {
		return ""
	}
	key := map[string]any{}
	for _, name := range keys {
		key[name] = row[name]
	}
	raw, err := json.Marshal(key)
	if err != nil {
		return ""
	}
	return string(raw)
}

// parseKey parses the result of keyOf. Integers keep their full precision.
func parseKey(t *schema.Table, written string) (map[string]any, error) {
	dec := json.NewDecoder(strings.NewReader(written))
	dec.UseNumber()
	var key map[string]any
	if err := dec.Decode(&key); err != nil || len(key) == 0 {
		return nil, badRequest("this is no key of a row")
	}

	if !slices.Equal(slices.Sorted(maps.Keys(key)), slices.Sorted(slices.Values(keysOf(t)))) {
		return nil, badRequest("this is no key of a row of %s", t.Name)
	}
	for name, v := range key {
		if n, ok := v.(json.Number); ok {
			if whole, err := n.Int64(); err == nil {
				key[name] = whole
			} else if key[name], err = n.Float64(); err != nil {
				return nil, badRequest("this is no key of a row")
			}
		}
	}
	return key, nil
}

// oneRow is a row of a table.
type oneRow struct {
	agent
	Table   *schema.Table
	Key     string
	Values  map[string]any
	Deleted bool
	Marks   bool // rows can be deleted and restored
}

// findRow reads the row named in a request. It returns a not-found error if the row does not exist.
func (s *site) findRow(ctx context.Context, db *agentdb.DB, table, written string) (oneRow, map[string]any, error) {
	d := oneRow{Key: written}
	schema, err := db.Schema(ctx)
	if err != nil {
		return d, nil, err
	}
	t, err := tableNamed(schema, table)
	if err != nil {
		return d, nil, err
	}
	d.Table = t
	key, err := parseKey(t, written)
	if err != nil {
		return d, nil, err
	}
	if d.Marks, err = canDelete(ctx, db, t.Name); err != nil {
		return d, nil, err
	}

	var columns []string
	for _, c := range t.Columns {
		columns = append(columns, beginning(quoted(c.Name), maxEdited))
	}
	if d.Marks {
		columns = append(columns, "_deleted_at")
	}

	where, params := whereKey(t, key)
	rows, err := db.Query(ctx, agentdb.QuerySpec{SQL: "select " + strings.Join(columns, ", ") + " from " + quoted(t.Name) + where, Params: params, Limit: 1, IncludeDeleted: true})
	if err != nil {
		return d, nil, err
	}
	if len(rows.Rows) == 0 {
		return d, nil, notFound("%s has no row %s", t.Name, text.Truncate(written, lineLength))
	}
	d.Values, d.Deleted = rows.Rows[0], rows.Rows[0]["_deleted_at"] != nil
	return d, key, nil
}

// beginning returns SQL for a column with long texts truncated. A truncated text ends with an
// ellipsis.
func beginning(column string, most int) string {
	return fmt.Sprintf("case when typeof(%[1]s) = 'text' and length(%[1]s) > %[2]d then substr(%[1]s, 1, %[2]d) || '…' else %[1]s end as %[1]s", column, most)
}

// whereKey returns the WHERE clause for a key.
func whereKey(t *schema.Table, key map[string]any) (sql string, params []any) {
	var where []string
	for _, name := range keysOf(t) {
		where, params = append(where, quoted(name)+" is ?"), append(params, key[name])
	}
	return " where " + strings.Join(where, " and "), params
}

func tableNamed(all schema.Schema, name string) (*schema.Table, error) {
	at := slices.IndexFunc(all.Tables, func(t schema.Table) bool { return t.Name == name })
	if at < 0 {
		return nil, notFound("there is no table %q", name)
	}
	return &all.Tables[at], nil
}

func (s *site) row(r *http.Request, a agent) (templ.Component, error) {
	var one oneRow
	err := s.withDB(r.Context(), &a, func(db *agentdb.DB) (err error) {
		one, _, err = s.findRow(r.Context(), db, r.URL.Query().Get("table"), r.URL.Query().Get("key"))
		return err
	})
	if err == nil && one.Table == nil {
		err = notFound("%s has no such row", a.Name)
	}
	one.agent = a
	return rowPage(one), err
}

// partOfCell is the number of characters read per query, because query results are limited.
const partOfCell = 50_000

// readCell returns the full text of a value.
func (s *site) readCell(r *http.Request) (string, error) {
	ctx, q := r.Context(), r.URL.Query()
	var out strings.Builder
	err := s.useDB(ctx, r.PathValue("name"), func(db *agentdb.DB) error {
		one, key, err := s.findRow(ctx, db, q.Get("table"), q.Get("key"))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(one.Table.Columns, func(c schema.Column) bool { return c.Name == q.Get("column") }) {
			return notFound("there is no such column")
		}

		where, params := whereKey(one.Table, key)
		for at := 1; ; at += partOfCell {
			sql := fmt.Sprintf("select substr(%s, %d, %d) as part from %s%s", quoted(q.Get("column")), at, partOfCell, quoted(one.Table.Name), where)
			rows, err := db.Query(ctx, agentdb.QuerySpec{SQL: sql, Params: params, Limit: 1, IncludeDeleted: true})
			if err != nil || len(rows.Rows) == 0 { // the row may have been removed in the meantime
				return err
			}
			part := cellText(rows.Rows[0]["part"])
			out.WriteString(part)
			if utf8.RuneCountInString(part) < partOfCell {
				return nil
			}
		}
	})
	return out.String(), err
}

// change applies do to the row named in a form.
func (s *site) change(r *http.Request, do func(db *agentdb.DB, one oneRow, where map[string]any) (agentdb.Affected, error)) error {
	return s.useDB(r.Context(), r.PathValue("name"), func(db *agentdb.DB) error {
		one, where, err := s.findRow(r.Context(), db, r.PostFormValue("table"), r.PostFormValue("key"))
		if err != nil {
			return err
		}
		done, err := do(db, one, where)
		if err == nil && done.Rows != 1 {
			err = &api.Error{Status: http.StatusConflict, Message: "the row has changed meanwhile; look at it again"}
		}
		return err
	})
}

// setCell changes a value of a row.
func (s *site) setCell(r *http.Request) (string, error) {
	column, typed := r.PostFormValue("column"), strings.ReplaceAll(r.PostFormValue("value"), "\r\n", "\n")
	key := r.PostFormValue("key")
	err := s.change(r, func(db *agentdb.DB, one oneRow, where map[string]any) (agentdb.Affected, error) {
		at := slices.IndexFunc(one.Table.Columns, func(c schema.Column) bool { return c.Name == column })
		if at < 0 {
			return agentdb.Affected{}, notFound("%s has no column %q", one.Table.Name, column)
		}

		value, err := parseCell(one.Table.Columns[at], typed, r.PostFormValue("null") == "yes")
		if err != nil {
			return agentdb.Affected{}, err
		}
		// If the key changes, the redirect must use the new key.
		if _, isKey := where[column]; isKey {
			next := maps.Clone(where)
			next[column] = value
			raw, err := json.Marshal(next)
			if err != nil {
				return agentdb.Affected{}, err
			}
			key = string(raw)
		}
		return db.Update(r.Context(), byOwner, one.Table.Name, map[string]any{column: value}, where, true)
	})
	return link([]string{"agents", r.PathValue("name"), "row"}, "table", r.PostFormValue("table"), "key", key), err
}

// parseCell parses the text entered for a column.
func parseCell(c schema.Column, typed string, null bool) (any, error) {
	if null {
		return nil, nil
	}
	unfit := func(holds string) error {
		return &api.Error{Status: http.StatusUnprocessableEntity, Message: fmt.Sprintf("%s holds %s, and %q is none", c.Name, holds, text.Truncate(typed, lineLength))}
	}
	switch strings.ToUpper(c.Type) {
	case "INTEGER", "INT":
		n, err := strconv.ParseInt(strings.TrimSpace(typed), 10, 64)
		if err != nil {
			return nil, unfit("whole numbers")
		}
		return n, nil
	case "REAL", "NUMERIC", "FLOAT", "DOUBLE":
		n, err := strconv.ParseFloat(strings.TrimSpace(typed), 64)
		if err != nil {
			return nil, unfit("numbers")
		}
		return n, nil
	case "BLOB":
		return nil, &api.Error{Status: http.StatusUnprocessableEntity, Message: c.Name + " holds bytes, which cannot be typed"}
	}
	return typed, nil
}

func (s *site) deleteRow(r *http.Request) (string, error) {
	err := s.change(r, func(db *agentdb.DB, one oneRow, where map[string]any) (agentdb.Affected, error) {
		return db.Delete(r.Context(), byOwner, one.Table.Name, where)
	})
	return back(r), err
}

func (s *site) restoreRow(r *http.Request) (string, error) {
	err := s.change(r, func(db *agentdb.DB, one oneRow, where map[string]any) (agentdb.Affected, error) {
		return db.Restore(r.Context(), byOwner, one.Table.Name, where)
	})
	return back(r), err
}

// export sends a table as a file, as CSV by default. The file is written completely first, because
// a truncated file would look complete. If format is empty, a page first warns about values that
// spreadsheet programs misinterpret.
func (s *site) export(w http.ResponseWriter, r *http.Request) {
	table, format := r.URL.Query().Get("table"), r.URL.Query().Get("format")
	file, done, err := s.exported(r, table, cmp.Or(format, "csv"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer func() {
		_ = file.Close() // exported has already reported failed writes
		_ = os.Remove(file.Name())
	}()
	if format == "" && len(done.Warnings) > 0 {
		s.showAgent("Data", func(_ *http.Request, a agent) (templ.Component, error) {
			return exportWarningPage(a, table, done.Warnings), nil
		}).ServeHTTP(w, r)
		return
	}
	s.download(w, r, table+"."+done.Format, done.Bytes, file)
}

// exported writes a table to a temporary file. The caller must remove the file.
func (s *site) exported(r *http.Request, table, format string) (file *os.File, done agentdb.Exported, err error) {
	ctx := r.Context()
	err = s.useDB(ctx, r.PathValue("name"), func(db *agentdb.DB) error {
		schema, err := db.Schema(ctx)
		if err != nil {
			return err
		}
		t, err := tableNamed(schema, table)
		if err != nil {
			return err
		}
		var columns []string
		for _, c := range t.Columns {
			columns = append(columns, quoted(c.Name))
		}
		file, done, err = web.ExportFile(ctx, db, agentdb.ExportSpec{SQL: "select " + strings.Join(columns, ", ") + " from " + quoted(t.Name), Format: format})
		return err
	})
	return file, done, err
}

// importFile imports an uploaded file and redirects to its table. If rows were skipped or there are
// warnings, it shows a page with the details instead.
func (s *site) importFile(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxUpload)
	done, err := s.imported(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}

	if done.RowsSkipped == 0 && len(done.Warnings) == 0 {
		http.Redirect(w, r, link([]string{"agents", r.PathValue("name"), "data"}, "table", done.Table, "imported", strconv.FormatInt(done.RowsImported, 10)), http.StatusSeeOther)
		return
	}
	s.showAgent("Data", func(_ *http.Request, a agent) (templ.Component, error) { return importedPage(a, done), nil }).ServeHTTP(w, r)
}

// imported imports the file of a form. Rows are added; if a key is given, existing rows are
// updated.
func (s *site) imported(r *http.Request) (transfer.Imported, error) {
	file, header, err := r.FormFile("file")
	if err != nil {
		return transfer.Imported{}, badRequest("choose a file of at most %s: %v", text.Size(maxUpload), err)
	}
	defer file.Close()
	content, err := io.ReadAll(file)
	if err != nil {
		return transfer.Imported{}, err
	}

	spec := transfer.ImportSpec{Table: strings.TrimSpace(r.FormValue("table")), Name: header.Filename, Source: bytes.NewReader(content), Size: int64(len(content)), Mode: "insert"}
	if keys := strings.Fields(strings.ReplaceAll(r.FormValue("key"), ",", " ")); len(keys) > 0 {
		spec.Mode, spec.KeyColumns = "upsert", keys
	}
	var done transfer.Imported
	err = s.useDB(r.Context(), r.PathValue("name"), func(db *agentdb.DB) (err error) {
		done, err = db.Import(r.Context(), byOwner, spec)
		return err
	})
	return done, err
}

// pagePath returns the address of the table at another offset, or with another selection of rows.
func (d data) pagePath(show string, offset int) string {
	at := ""
	if offset > 0 {
		at = strconv.Itoa(offset)
	}
	return link([]string{"agents", d.Name, "data"}, "table", d.Table.Name, "show", show, "column", d.Column, "q", d.Text, "offset", at)
}

func (d data) rowPath(row map[string]any) string {
	key := keyOf(d.Table, row)
	if key == "" {
		return ""
	}
	return link([]string{"agents", d.Name, "row"}, "table", d.Table.Name, "key", key)
}

// editable reports whether a value can be edited on a page.
func editable(c schema.Column, v any) bool {
	s, isText := v.(string)
	return !strings.EqualFold(c.Type, "BLOB") && (!isText || utf8.RuneCountInString(s) <= maxEdited)
}

// cell formats a value for a table.
func cell(v any) string { return text.OneLine(text.Truncate(cellText(v), cellLength+1)) }
