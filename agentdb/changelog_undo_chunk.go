package agentdb

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// undoChunk undoes a chunk of rows that nobody has changed since, by a statement or two;
// an import of a million rows is a thousand of these. With done false nothing happened, and
// the rows have to be undone one by one.
func (u *undoer) undoChunk(ctx context.Context, c Change) (done bool, err error) {
	// The images have the old names, and SQL reads them as they are.
	if since, err := u.renamesAfter(ctx, c.ID, c.Table); len(since) > 0 || err != nil {
		return false, err
	}
	if err := u.suspendTriggers(ctx); err != nil {
		return false, err
	}

	// Deleting rows that others point at may cascade, which is only recorded row by row.
	t, err := u.layout(ctx, c.Table)
	if err != nil || t == nil || t.parent {
		return false, err
	}

	w, err := newChunkUndo(u, t, c)
	if err != nil {
		return false, fmt.Errorf("row %d of the changelog cannot be read: %w", c.ID, err)
	}
	if w == nil {
		return false, nil
	}
	// If somebody changed one of the rows, only that one is a conflict, and the others are still
	// undone.
	if same, err := w.matches(ctx, w.after); !same || err != nil {
		return false, err
	}

	// Half of a chunk must not stay when the other half turns out to need the way row by row.
	if _, err := u.tx.Exec("savepoint chunk"); err != nil {
		return false, err
	}

	removed, done, err := w.reverse(ctx)
	if err != nil {
		return false, err
	}

	if !done {
		_, err = u.tx.Exec("rollback to chunk")
	}
	if _, e := u.tx.Exec("release chunk"); err != nil || e != nil || !done {
		return false, firstError(err, e)
	}

	u.table(c.Table).Removed += removed
	u.table(c.Table).Changed += int64(len(w.before.rows))
	// One entry for the whole chunk, as it was written; undoing a million rows would otherwise log
	// a million.
	gone := strings.TrimSuffix(c.PK, "}") + `,"at":"` + c.At + `"}`
	_, err = logChange(u.tx, u.by, u.at, change{op: opRaw, table: c.Table, pk: gone, before: c.After, after: c.Before})

	return true, err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// chunkUndo undoes one chunk. Its rows are found by SQL that reads their keys out of the
// image itself.
type chunkUndo struct {
	u             *undoer
	t             *tableLayout
	pk            chunkKey
	at            string // when the rows were written
	after, before chunkImage
}

// chunkImage is the image of a chunk's rows: its text, and that of each row.
type chunkImage struct {
	text    string
	columns []string
	rows    []json.RawMessage
}

func parseChunk(text string) (m chunkImage, err error) {
	if text == "" {
		return m, nil
	}

	var stored struct {
		Columns []string          `json:"columns"`
		Rows    []json.RawMessage `json:"rows"`
	}
	err = json.Unmarshal([]byte(text), &stored)
	return chunkImage{text, stored.Columns, stored.Rows}, err
}

// exact says that SQLite reads every value as it was: it knows no objects for blobs.
func (m chunkImage) exact() bool {
	_, rows, _ := strings.Cut(m.text, `"rows":`)
	return !strings.Contains(rows, `{"`) // inside a text its quote has a backslash
}

// newChunkUndo is nil for a chunk that has to be undone row by row.
func newChunkUndo(u *undoer, t *tableLayout, c Change) (*chunkUndo, error) {
	w := &chunkUndo{u: u, t: t, at: c.At}
	if err := decodeNumbers(c.PK, &w.pk); err != nil {
		return nil, err
	}

	var err error
	if w.after, err = parseChunk(c.After); err != nil {
		return nil, err
	}
	if w.before, err = parseChunk(c.Before); err != nil {
		return nil, err
	}

	known := t.imageColumns()
	for _, name := range slices.Concat(w.after.columns, w.pk.Keys) {
		if !containsFold(known, name) {
			return nil, nil
		}
	}

	for _, key := range w.pk.Keys {
		if !containsFold(w.after.columns, key) {
			return nil, nil
		}
	}

	changes := len(w.before.rows) > 0
	if changes && (w.pk.Column != "" || !w.before.exact() || !slices.Equal(w.before.columns, w.after.columns)) {
		return nil, nil
	}

	return w, nil
}

// where picks the rows of an image, and its arguments.
func (w *chunkUndo) where(m chunkImage) (text string, args []any, err error) {
	if w.pk.Column != "" {
		from, err := wholeNumber(w.pk.From)
		return quote(w.t.name) + "." + quote(w.pk.Column) + " BETWEEN ? AND ?", []any{from, from + w.pk.Count - 1}, err
	}
	return "(" + w.keys() + ") IN (" + m.selectKeys(w.pk.Keys) + ")", []any{m.text}, nil
}

// keys are the names of the key columns, each with its table.
func (w *chunkUndo) keys() string {
	out := make([]string, len(w.pk.Keys))
	for i, key := range w.pk.Keys {
		out[i] = quote(w.t.name) + "." + quote(key)
	}
	return strings.Join(out, ", ")
}

// selectKeys reads the keys of the image that is its only parameter.
func (m chunkImage) selectKeys(keys []string) string {
	out := make([]string, len(keys))
	for i, key := range keys {
		out[i] = m.value("value", key)
	}
	return "SELECT " + strings.Join(out, ", ") + " FROM json_each(?, '$.rows')"
}

// value reads a column of a row of the image.
func (m chunkImage) value(row, column string) string {
	at := slices.IndexFunc(m.columns, func(name string) bool { return strings.EqualFold(name, column) })
	return fmt.Sprintf("json_extract(%s, '$[%d]')", row, at)
}

// matches says that the rows are as an image has them, and that nothing else of them was changed.
// Values that SQLite stored in another form than they were given in look different.
func (w *chunkUndo) matches(ctx context.Context, m chunkImage) (bool, error) {
	where, args, err := w.where(m)
	if err != nil {
		return false, err
	}

	known := m.columns
	if w.pk.Column != "" {
		known = append(slices.Clone(known), w.pk.Column)
	}

	for _, name := range []string{createdAt, updatedAt} {
		if containsFold(w.t.columns, name) && !containsFold(known, name) {
			known = append(slices.Clone(known), name)
			where += " AND " + quote(name) + " IS '" + strings.ReplaceAll(w.at, "'", "''") + "'"
		}
	}

	more, err := w.u.otherDefaults(ctx, w.t, known)
	if err != nil {
		return false, err
	}

	rows, err := w.u.tx.SQL().QueryContext(ctx, "SELECT "+selection(m.columns)+" FROM "+quote(w.t.name)+" WHERE "+where+more, args...)
	if err != nil {
		return false, err
	}
	defer rows.Close()

	// Rows are compared as texts, and counted because a table without a key can have equal ones.
	want := make(map[string]int, len(m.rows))
	for _, row := range m.rows {
		want[string(row)]++
	}

	values, found := make([]any, len(m.columns)), 0
	var text []byte
	for rows.Next() {
		if err := rows.Scan(pointers(values)...); err != nil {
			return false, err
		}

		text = appendRow(text[:0], values)
		if want[string(text)] == 0 {
			return false, rows.Err()
		}

		want[string(text)]--
		found++
	}

	return found == len(m.rows), rows.Err()
}

// reverse deletes the rows that were not there before the chunk, and gives the others the
// values that they had. It is not done when it did not give exactly these.
func (w *chunkUndo) reverse(ctx context.Context) (removed int64, done bool, err error) {
	where, args, err := w.where(w.after)
	if err != nil {
		return 0, false, err
	}

	changed := len(w.before.rows)
	if changed > 0 {
		where += " AND (" + w.keys() + ") NOT IN (" + w.before.selectKeys(w.pk.Keys) + ")"
		args = append(args, w.before.text)
	}

	if changed < len(w.after.rows) {
		result, err := w.u.tx.SQL().ExecContext(ctx, "DELETE FROM "+quote(w.t.name)+" WHERE "+where, args...)
		if err != nil {
			return 0, false, err
		}
		if removed, err = result.RowsAffected(); err != nil {
			return 0, false, err
		}
	}
	// The keys matched other rows than were written; the caller rolls back.
	if int(removed) != len(w.after.rows)-changed {
		return 0, false, nil
	}
	if changed == 0 {
		return removed, true, nil
	}

	if _, err := w.u.tx.SQL().ExecContext(ctx, w.update(), w.before.text); refused(err) {
		return 0, false, nil
	} else if err != nil {
		return 0, false, err
	}

	done, err = w.matches(ctx, w.before)
	return removed, done, err
}

// update writes the values of the image before into the rows of its keys.
func (w *chunkUndo) update() string {
	var set, match []string
	for _, name := range w.before.columns {
		if containsFold(w.pk.Keys, name) {
			match = append(match, quote(w.t.name)+"."+quote(name)+" = "+w.before.value("was.value", name))
		} else {
			set = append(set, quote(name)+" = "+w.before.value("was.value", name))
		}
	}

	return "UPDATE OR ABORT " + quote(w.t.name) + " SET " + strings.Join(set, ", ") + " FROM json_each(?, '$.rows') AS was WHERE " + strings.Join(match, " AND ")
}
