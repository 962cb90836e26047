package agentdb

import (
	"context"
	"fmt"
	"strings"
)

// wholeChunk takes back a chunk of numbered rows that nobody has touched since, by one
// statement; an import of a million rows is a thousand of these. With done false nothing
// happened, and the rows have to be looked at one by one.
func (u *undoer) wholeChunk(ctx context.Context, c Change) (done bool, err error) {
	var pk chunkKey
	if err := decodeNumbers(c.PK, &pk); err != nil {
		return false, fmt.Errorf("row %d of the changelog cannot be read: %w", c.ID, err)
	}
	if pk.Column == "" || c.Before != "" {
		return false, nil
	}
	if since, err := u.following(ctx, c.ID, c.Table); len(since) > 0 || err != nil {
		return false, err
	}
	if err := u.sleep(ctx); err != nil {
		return false, err
	}
	t, err := u.target(ctx, c.Table)
	if err != nil || t == nil || t.parent {
		return false, err
	}
	from, err := wholeNumber(pk.From)
	if err != nil {
		return false, err
	}
	same, err := u.sameChunk(ctx, t, c, pk.Column, from)
	if !same || err != nil {
		return false, err
	}
	result, err := u.tx.SQL().ExecContext(ctx, "DELETE FROM "+quote(t.name)+" WHERE "+quote(pk.Column)+" BETWEEN ? AND ?", from, from+pk.Count-1)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return false, err
	}
	u.table(c.Table).Removed += n
	gone := strings.TrimSuffix(c.PK, "}") + `,"at":"` + c.At + `"}`
	_, err = logChange(u.tx, u.by, u.at, change{op: opRaw, table: c.Table, pk: gone, before: c.After})
	return true, err
}

// sameChunk says that the rows of a chunk are as they were written: it writes their image
// again. Values that SQLite stored in another form than they were given in look different.
func (u *undoer) sameChunk(ctx context.Context, t *target, c Change, key string, from int64) (bool, error) {
	var pk chunkKey
	if err := decodeNumbers(c.PK, &pk); err != nil {
		return false, err
	}
	names, err := imageColumns(c.After)
	if err != nil {
		return false, fmt.Errorf("row %d of the changelog cannot be read: %w", c.ID, err)
	}
	known := append([]string{key}, names...)
	rest := ""
	for _, name := range []string{createdAt, updatedAt} {
		if containsFold(t.columns, name) && !containsFold(names, name) {
			known = append(known, name)
			rest += " AND " + quote(name) + " IS '" + strings.ReplaceAll(c.At, "'", "''") + "'"
		}
	}
	for _, name := range names {
		if !containsFold(t.columns, name) {
			return false, nil
		}
	}
	more, err := u.untouched(ctx, t, known)
	if err != nil {
		return false, err
	}
	rows, err := u.tx.SQL().QueryContext(ctx, "SELECT "+selection(names)+" FROM "+quote(t.name)+" WHERE "+quote(key)+" BETWEEN ? AND ?"+rest+more+" ORDER BY "+quote(key), from, from+pk.Count-1)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	values := make([]any, int(pk.Count)*len(names))
	at := 0
	for rows.Next() {
		if at == len(values) {
			return false, rows.Err()
		}
		if err := rows.Scan(pointers(values[at : at+len(names)])...); err != nil {
			return false, err
		}
		at += len(names)
	}
	if err := rows.Err(); err != nil || at != len(values) {
		return false, err
	}
	return image(names, values) == c.After, nil
}

// imageColumns reads the columns of {"columns":[…],"rows":…} alone.
func imageColumns(text string) (names []string, err error) {
	head, _, ok := strings.Cut(text, `],"rows":[`)
	if !ok {
		return nil, fmt.Errorf("it has no rows")
	}
	err = decodeNumbers(strings.TrimPrefix(head, `{"columns":`)+"]", &names)
	return names, err
}
