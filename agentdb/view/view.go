// Package view defines saved views: named queries of an agent, with their parameters.
package view

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/lineage"
	"rouse/agentdb/sqltext"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/sqlite"
)

// Expression returns the view as a common table expression. It replaces the parameters by their
// defaults, because a parameter in the combined query would belong to the outer query.
func (v View) Expression() (string, error) {
	values, err := v.Values(nil)
	var bad *dberr.Error
	if errors.As(err, &bad) {
		bad.Message += ", and is asked with db_run_view: like a table a view has the defaults of its parameters alone"
		return "", bad
	}

	text, err := sqltext.CheckSelect(v.SQL)
	if err != nil {
		return "", err
	}

	var b strings.Builder
	done := 0
	sqltext.EachParameter(text, func(at, end int) {
		if name := text[at+1 : end]; name != "" {
			b.WriteString(text[done:at] + sqlLiteral(values[name]))
			done = end
		}
	})
	return fmt.Sprintf("%s AS (\n%s\n)", sqltext.Quote(v.Name), b.String()+text[done:]), nil
}

// sqlLiteral returns a parameter value as SQL. v is a string, an int64, a sqlvalue.Real or nil.
func sqlLiteral(v any) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case sqlvalue.Real:
		return strconv.FormatFloat(float64(v), 'e', -1, 64) // the exponent keeps it a REAL
	case string:
		return "'" + strings.ReplaceAll(v, "'", "''") + "'"
	}
	return "NULL"
}

// View is a named query that the agent saved.
type View struct {
	Name        string  `json:"name"`
	SQL         string  `json:"sql"`
	RenderHint  string  `json:"render_hint"`
	Refresh     string  `json:"refresh"` // manual, on_run, or a duration
	Description string  `json:"description"`
	Params      []Param `json:"params,omitempty"`
	Pinned      bool    `json:"pinned"`
	CreatedAt   string  `json:"created_at"`
	RefreshedAt string  `json:"refreshed_at,omitempty"` // time of the stored result
}

const refreshManual = "manual"

// RefreshOnRun is the Refresh value of a view that is refreshed at the end of each run.
const RefreshOnRun = "on_run"

const leastRefresh = time.Second

const maxViewSQL = 16 << 10 // bytes

// RenderHints lists the ways to display a view.
var RenderHints = []string{"table", "bar", "line", "pie", "number"}

// Check returns an error if the definition is invalid.
func (v *View) Check() error {
	if err := sqltext.CheckTable("name", v.Name); err != nil {
		return err
	}
	if !slices.Contains(RenderHints, v.RenderHint) {
		return dberr.Invalid("render_hint", "render_hint must be one of %s, not %q", strings.Join(RenderHints, ", "), v.RenderHint)
	}
	if len(v.SQL) > maxViewSQL {
		return dberr.Invalid("sql", "the SQL of a view can have 16 KiB")
	}

	if v.Refresh != refreshManual && v.Refresh != RefreshOnRun {
		if d, err := time.ParseDuration(v.Refresh); err != nil || d < leastRefresh {
			return dberr.Invalid("refresh", `refresh must be manual, on_run, or a duration of a second or more such as "5m", not %q`, v.Refresh)
		}
	}

	return v.checkParams()
}

const selectView = `select name, sql, render_hint, refresh, description, pinned, created_at, coalesce(refreshed_at, ''), coalesce(result, ''), params from _views `

const whereName = "where name = ?"

func scanView(scan sqlite.Scanner) (v View, result string, err error) {
	var params string
	if err = scan(&v.Name, &v.SQL, &v.RenderHint, &v.Refresh, &v.Description, &v.Pinned, &v.CreatedAt, &v.RefreshedAt, &result, &params); err != nil {
		return v, result, err
	}

	if err = sqlvalue.Decode(params, &v.Params); err != nil {
		err = fmt.Errorf("the parameters of the view %s cannot be read: %w", v.Name, err)
	}
	return v, result, err
}

// Find returns the view with the given name and reports whether it exists.
func Find(ctx context.Context, q *sql.DB, name string) (View, bool, error) {
	v, _, err := scanView(q.QueryRowContext(ctx, selectView+whereName, name).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return v, false, nil
	}
	return v, err == nil, err
}

// Read returns the saved views in the order of their names.
func Read(ctx context.Context, q sqlite.Querier) ([]View, error) {
	return sqlite.Collect(ctx, q, func(scan sqlite.Scanner) (View, error) {
		v, _, err := scanView(scan)
		return v, err
	}, selectView+"order by name")
}

// Need returns a view and its stored result. If the view does not exist, the error suggests a
// similar name.
func Need(ctx context.Context, q *sql.DB, name string) (View, string, error) {
	v, result, err := scanView(q.QueryRowContext(ctx, selectView+whereName, name).Scan)
	if !errors.Is(err, sql.ErrNoRows) {
		return v, result, err
	}

	all, err := Read(ctx, q)
	if err != nil {
		return v, "", err
	}

	names := make([]string, len(all))
	for i, v := range all {
		names[i] = v.Name
	}

	return v, "", &dberr.Error{Kind: dberr.KindNotFound, Field: "name", Retryable: true, Message: fmt.Sprintf("there is no saved view %q%s", name, sqltext.DidYouMean(name, names))}
}

// Store saves a new view or replaces an existing one.
func Store(tx *sqlite.Tx, by changelog.By, v View) (View, error) {
	params, err := json.Marshal(append([]Param{}, v.Params...))
	if err != nil {
		return View{}, err
	}

	at := sqlvalue.Now()
	if _, err := changelog.Log(tx, by, at, changelog.Entry{Op: changelog.OpRaw, SQL: "define view " + sqltext.Quote(v.Name) + " as " + v.SQL}); err != nil {
		return View{}, err
	}

	_, err = tx.Exec(`insert into _views(name, sql, render_hint, refresh, description, created_at, updated_at, run_id, params, ledger) values (?7, ?2, ?3, ?4, ?5, ?6, ?6, ?1, ?8, `+lineage.OfRun+`)
		on conflict(name) do update set sql = ?2, render_hint = ?3, refresh = ?4, description = ?5, updated_at = ?6, run_id = ?1, params = ?8, ledger = `+lineage.OfRun+`, result = null, refreshed_at = null`,
		by.Run, v.SQL, v.RenderHint, v.Refresh, v.Description, at, v.Name, string(params))
	if err != nil {
		return View{}, err
	}

	saved, _, err := scanView(tx.QueryRow(selectView+whereName, v.Name).Scan)
	return saved, err
}
