package agentdb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/lineage"
	"rouse/agentdb/schema"
	"rouse/agentdb/sqltext"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/sqlite"
)

// View is a query that the agent saved under a name (OSA-60).
type View struct {
	Name        string      `json:"name"`
	SQL         string      `json:"sql"`
	RenderHint  string      `json:"render_hint"`
	Refresh     string      `json:"refresh"` // manual, on_run, or a duration
	Description string      `json:"description"`
	Params      []ViewParam `json:"params,omitempty"`
	Pinned      bool        `json:"pinned"`
	CreatedAt   string      `json:"created_at"`
	RefreshedAt string      `json:"refreshed_at,omitempty"` // of the stored result
}

// ViewResult is what a view answers, and when the rows were read.
type ViewResult struct {
	Name        string `json:"name"`
	RenderHint  string `json:"render_hint"`
	RefreshedAt string `json:"refreshed_at"`
	Rows
}

// DroppedView is the result of DropView.
type DroppedView struct {
	Dropped bool   `json:"dropped"`
	Name    string `json:"name"`
}

// Render hints and words for refresh, OSA-60.
const (
	refreshManual = "manual"
	refreshOnRun  = "on_run"
	leastRefresh  = time.Second
	maxViewSQL    = 16 << 10 // bytes
)

// RenderHints say how a view wants to be shown.
var RenderHints = []string{"table", "bar", "line", "pie", "number"}

// DefineView saves a query, or changes one that is there: it keeps when it was made and
// whether it is pinned. The SQL has to work now, with NULL for a parameter without a default.
func (db *DB) DefineView(ctx context.Context, by changelog.By, v View) (View, error) {
	if err := v.check(); err != nil {
		return View{}, err
	}

	values := map[string]any{}
	for _, p := range v.Params {
		values[p.Name] = p.Default
	}
	// A view that does not work is refused now and not when somebody looks at it.
	if _, err := db.Query(ctx, QuerySpec{SQL: v.SQL, Named: values, Limit: 1, redefines: v.Name}); err != nil {
		return View{}, err
	}

	params, err := json.Marshal(append([]ViewParam{}, v.Params...))
	if err != nil {
		return View{}, err
	}

	return write(ctx, db, by, "define_view", func(ctx context.Context, tx *sqlite.Tx) (View, error) {
		if err := schema.NameFree(tx, "name", v.Name); err != nil {
			return View{}, err
		}

		at := sqlvalue.Now()
		if _, err := changelog.Log(tx, by, at, changelog.Entry{Op: changelog.OpRaw, SQL: "define view " + sqltext.Quote(v.Name) + " as " + v.SQL}); err != nil {
			return View{}, err
		}

		_, err := tx.Exec(`insert into _views(name, sql, render_hint, refresh, description, created_at, updated_at, run_id, params, ledger) values (?7, ?2, ?3, ?4, ?5, ?6, ?6, ?1, ?8, `+lineage.OfRun+`)
			on conflict(name) do update set sql = ?2, render_hint = ?3, refresh = ?4, description = ?5, updated_at = ?6, run_id = ?1, params = ?8, ledger = `+lineage.OfRun+`, result = null, refreshed_at = null`,
			by.Run, v.SQL, v.RenderHint, v.Refresh, v.Description, at, v.Name, string(params))
		if err != nil {
			return View{}, err
		}

		saved, _, err := scanView(tx.QueryRow(selectView+whereName, v.Name).Scan)
		return saved, err
	})
}

func (v *View) check() error {
	if err := sqltext.CheckTable("name", v.Name); err != nil {
		return err
	}
	if !slices.Contains(RenderHints, v.RenderHint) {
		return dberr.Invalid("render_hint", "render_hint must be one of %s, not %q", strings.Join(RenderHints, ", "), v.RenderHint)
	}
	if len(v.SQL) > maxViewSQL {
		return dberr.Invalid("sql", "the SQL of a view can have 16 KiB")
	}

	if v.Refresh != refreshManual && v.Refresh != refreshOnRun {
		if d, err := time.ParseDuration(v.Refresh); err != nil || d < leastRefresh {
			return dberr.Invalid("refresh", `refresh must be manual, on_run, or a duration of a second or more such as "5m", not %q`, v.Refresh)
		}
	}

	return v.checkParams()
}

const (
	selectView = `select name, sql, render_hint, refresh, description, pinned, created_at, coalesce(refreshed_at, ''), coalesce(result, ''), params from _views `
	whereName  = "where name = ?"
)

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

// Views lists the saved views by name.
func (db *DB) Views(ctx context.Context) ([]View, error) {
	out, err := sqlite.Collect(ctx, db.db.Read(), func(scan sqlite.Scanner) (View, error) {
		v, _, err := scanView(scan)
		return v, err
	}, selectView+"order by name")
	if err != nil {
		return nil, db.explain(ctx, err)
	}
	return append([]View{}, out...), nil
}

func (db *DB) view(ctx context.Context, name string) (View, string, error) {
	v, result, err := scanView(db.db.Read().QueryRowContext(ctx, selectView+whereName, name).Scan)
	if !errors.Is(err, sql.ErrNoRows) {
		return v, result, err
	}

	all, err := db.Views(ctx)
	if err != nil {
		return v, "", err
	}

	names := make([]string, len(all))
	for i, v := range all {
		names[i] = v.Name
	}

	return v, "", &dberr.Error{Kind: dberr.KindNotFound, Field: "name", Retryable: true, Message: fmt.Sprintf("there is no saved view %q%s", name, sqltext.DidYouMean(name, names))}
}

// RunView asks a view now, with values for its parameters by their names. What it answers by
// its defaults alone is kept.
func (db *DB) RunView(ctx context.Context, name string, given map[string]any) (ViewResult, error) {
	v, _, err := db.view(ctx, name)
	if err != nil {
		return ViewResult{}, err
	}
	if len(given) == 0 {
		// Only the answer to the defaults is stored: it is what ShowView shows.
		return db.refresh(ctx, v)
	}

	out, _, err := db.runViewQuery(ctx, v, given)
	return out, err
}

// CheckView says whether a view can be shown: an error is an *Error when it is not there, or has a
// parameter without a default.
func (db *DB) CheckView(ctx context.Context, name string) error {
	v, _, err := db.view(ctx, name)
	if err != nil {
		return err
	}

	_, err = v.values(nil)
	return err
}

// ShowView gives the stored result of a view. One that was never asked, or whose refresh is
// a duration that is over, is asked first.
func (db *DB) ShowView(ctx context.Context, name string) (ViewResult, error) {
	v, stored, err := db.view(ctx, name)
	if err != nil {
		return ViewResult{}, err
	}

	if at, err := time.Parse(sqlvalue.TimeLayout, v.RefreshedAt); err == nil && stored != "" {
		every, err := time.ParseDuration(v.Refresh)
		if err != nil || time.Since(at) < every {
			return v.stored(stored)
		}
	}
	return db.refresh(ctx, v)
}

func (v View) stored(text string) (ViewResult, error) {
	out := ViewResult{Name: v.Name, RenderHint: v.RenderHint, RefreshedAt: v.RefreshedAt}
	if err := sqlvalue.Decode(text, &out.Rows); err != nil {
		return out, fmt.Errorf("the stored result of the view %s cannot be read: %w", v.Name, err)
	}
	return out, nil
}

// RefreshViews queries the views again that want it at the end of a run. A view that does not
// work any more keeps its last result; its error is among those that are returned.
func (db *DB) RefreshViews(ctx context.Context) error {
	views, err := db.Views(ctx)
	if err != nil {
		return err
	}

	var errs []error
	for _, v := range views {
		if v.Refresh == refreshOnRun {
			if _, err := db.refresh(ctx, v); err != nil {
				errs = append(errs, fmt.Errorf("view %s: %w", v.Name, err))
			}
		}
	}

	return errors.Join(errs...)
}

// refresh asks a view and keeps the answer, unless the view was changed meanwhile. The
// quota does not hold it up: a result takes the place of the last.
func (db *DB) refresh(ctx context.Context, v View) (ViewResult, error) {
	out, text, err := db.runViewQuery(ctx, v, nil)
	if err != nil {
		return ViewResult{}, err
	}

	err = db.db.Do(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(`update _views set result = ?, refreshed_at = ? where name = ? and sql = ?`, text, out.RefreshedAt, v.Name, v.SQL)
		return err
	})
	if err == nil {
		err = db.Shipped(ctx)
	}
	if err != nil {
		return ViewResult{}, db.explain(ctx, err)
	}

	return out, nil
}

// runViewQuery gives the answer, and its rows as JSON.
func (db *DB) runViewQuery(ctx context.Context, v View, given map[string]any) (out ViewResult, text string, err error) {
	out = ViewResult{Name: v.Name, RenderHint: v.RenderHint, RefreshedAt: sqlvalue.Now()}
	values, err := v.values(given)
	if err != nil {
		return out, "", err
	}
	if out.Rows, err = db.Query(ctx, QuerySpec{SQL: v.SQL, Named: values}); err != nil {
		return out, "", err
	}

	data, err := json.Marshal(out.Rows)
	return out, string(data), err
}

// DropView forgets a saved view.
func (db *DB) DropView(ctx context.Context, by changelog.By, name string) (DroppedView, error) {
	if by.Key != "" { // a call that was made already finds no view any more
		if stored, err := db.recallAcknowledged(ctx, by, "drop_view"); stored != nil || err != nil {
			return decodeResult[DroppedView](stored, err)
		}
	}

	v, _, err := db.view(ctx, name)
	if err != nil {
		return DroppedView{}, err
	}

	return write(ctx, db, by, "drop_view", func(_ context.Context, tx *sqlite.Tx) (DroppedView, error) {
		if _, err := changelog.Log(tx, by, sqlvalue.Now(), changelog.Entry{Op: changelog.OpRaw, SQL: "drop view " + sqltext.Quote(v.Name)}); err != nil {
			return DroppedView{}, err
		}
		_, err := tx.Exec(`delete from _views where name = ?`, v.Name)
		return DroppedView{Dropped: true, Name: v.Name}, err
	})
}

// PinView has a view stand on the first page of its agent, or no longer.
func (db *DB) PinView(ctx context.Context, by changelog.By, name string, pinned bool) error {
	v, _, err := db.view(ctx, name)
	if err != nil {
		return err
	}

	_, err = write(ctx, db, by, "pin_view", func(_ context.Context, tx *sqlite.Tx) (struct{}, error) {
		_, err := tx.Exec(`update _views set pinned = ? where name = ?`, pinned, v.Name)
		return struct{}{}, err
	})
	return err
}
