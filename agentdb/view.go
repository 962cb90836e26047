package agentdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"rouse/agentdb/changelog"
	"rouse/agentdb/schema"
	"rouse/agentdb/sqltext"
	"rouse/agentdb/sqlvalue"
	"rouse/agentdb/view"
	"rouse/internal/storage/sqlite"
)

// ViewResult is the result of a view and the time its rows were read.
type ViewResult struct {
	Name        string `json:"name"`
	RenderHint  string `json:"render_hint"`
	RefreshedAt string `json:"refreshed_at"`
	Rows
}

// DroppedView is the result of Drop.
type DroppedView struct {
	Dropped bool   `json:"dropped"`
	Name    string `json:"name"`
}

// Views manages the saved queries of a database.
type Views struct{ db *DB }

// Save saves or changes a query. A changed view keeps its creation time and its pin. Save runs
// the SQL once, with NULL for parameters without a default, and returns an error if the SQL
// fails.
func (s *Views) Save(ctx context.Context, by changelog.By, v view.View) (view.View, error) {
	if err := v.Check(); err != nil {
		return view.View{}, err
	}

	values := map[string]any{}
	for _, p := range v.Params {
		values[p.Name] = p.Default
	}
	// Reject a broken view now and not when it is first shown.
	if _, err := s.db.Query(ctx, QuerySpec{SQL: v.SQL, Named: values, Limit: 1, redefines: v.Name}); err != nil {
		return view.View{}, err
	}

	return write(ctx, s.db, by, "define_view", func(_ context.Context, tx *sqlite.Tx) (view.View, error) {
		if err := schema.NameFree(tx, "name", v.Name); err != nil {
			return view.View{}, err
		}
		return view.Store(tx, by, v)
	})
}

// List lists the saved views by name.
func (s *Views) List(ctx context.Context) ([]view.View, error) {
	out, err := view.Read(ctx, s.db.db.Read())
	if err != nil {
		return nil, s.db.Health.explain(ctx, err)
	}
	return append([]view.View{}, out...), nil
}

// Run queries a view with the given parameter values. If no values are given, it stores the
// result.
func (s *Views) Run(ctx context.Context, name string, given map[string]any) (ViewResult, error) {
	v, _, err := view.Need(ctx, s.db.db.Read(), name)
	if err != nil {
		return ViewResult{}, err
	}
	if len(given) == 0 {
		// Only the result for the defaults is stored, because Show returns it.
		return s.refresh(ctx, v)
	}

	out, _, err := s.query(ctx, v, given)
	return out, err
}

// Check returns an *Error if Show cannot run a view: the view does not exist, or a parameter has
// no default.
func (s *Views) Check(ctx context.Context, name string) error {
	v, _, err := view.Need(ctx, s.db.db.Read(), name)
	if err != nil {
		return err
	}

	_, err = v.Values(nil)
	return err
}

// Show returns the stored result of a view. It runs the view first if there is no result yet, or
// if the view's refresh interval has passed.
func (s *Views) Show(ctx context.Context, name string) (ViewResult, error) {
	v, stored, err := view.Need(ctx, s.db.db.Read(), name)
	if err != nil {
		return ViewResult{}, err
	}

	if at, err := time.Parse(sqlvalue.TimeLayout, v.RefreshedAt); err == nil && stored != "" {
		every, err := time.ParseDuration(v.Refresh)
		if err != nil || time.Since(at) < every {
			return storedResult(v, stored)
		}
	}
	return s.refresh(ctx, v)
}

func storedResult(v view.View, text string) (ViewResult, error) {
	out := ViewResult{Name: v.Name, RenderHint: v.RenderHint, RefreshedAt: v.RefreshedAt}
	if err := sqlvalue.Decode(text, &out.Rows); err != nil {
		return out, fmt.Errorf("the stored result of the view %s cannot be read: %w", v.Name, err)
	}
	return out, nil
}

// Refresh runs the views that are refreshed at the end of a run. A view that fails keeps its last
// result, and Refresh returns its error.
func (s *Views) Refresh(ctx context.Context) error {
	views, err := s.List(ctx)
	if err != nil {
		return err
	}

	var errs []error
	for _, v := range views {
		if v.Refresh == view.RefreshOnRun {
			if _, err := s.refresh(ctx, v); err != nil {
				errs = append(errs, fmt.Errorf("view %s: %w", v.Name, err))
			}
		}
	}

	return errors.Join(errs...)
}

// refresh runs a view and stores the result unless the view has changed meanwhile. The quota does
// not apply, because the result replaces the previous one.
func (s *Views) refresh(ctx context.Context, v view.View) (ViewResult, error) {
	out, text, err := s.query(ctx, v, nil)
	if err != nil {
		return ViewResult{}, err
	}

	err = s.db.db.Do(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(`update _views set result = ?, refreshed_at = ? where name = ? and sql = ?`, text, out.RefreshedAt, v.Name, v.SQL)
		return err
	})
	if err == nil {
		err = s.db.Shipped(ctx)
	}
	if err != nil {
		return ViewResult{}, s.db.Health.explain(ctx, err)
	}

	return out, nil
}

// query returns the result of a view, and its rows as JSON.
func (s *Views) query(ctx context.Context, v view.View, given map[string]any) (out ViewResult, text string, err error) {
	out = ViewResult{Name: v.Name, RenderHint: v.RenderHint, RefreshedAt: sqlvalue.Now()}
	values, err := v.Values(given)
	if err != nil {
		return out, "", err
	}
	if out.Rows, err = s.db.Query(ctx, QuerySpec{SQL: v.SQL, Named: values}); err != nil {
		return out, "", err
	}

	data, err := json.Marshal(out.Rows)
	return out, string(data), err
}

// Drop deletes a saved view.
func (s *Views) Drop(ctx context.Context, by changelog.By, name string) (DroppedView, error) {
	if by.Key != "" { // a repeated call would not find the view
		if stored, err := recallAcknowledged(ctx, s.db, by, "drop_view"); stored != nil || err != nil {
			return decodeResult[DroppedView](stored, err)
		}
	}

	v, _, err := view.Need(ctx, s.db.db.Read(), name)
	if err != nil {
		return DroppedView{}, err
	}

	return write(ctx, s.db, by, "drop_view", func(_ context.Context, tx *sqlite.Tx) (DroppedView, error) {
		if _, err := changelog.Log(tx, by, sqlvalue.Now(), changelog.Entry{Op: changelog.OpRaw, SQL: "drop view " + sqltext.Quote(v.Name)}); err != nil {
			return DroppedView{}, err
		}
		_, err := tx.Exec(`delete from _views where name = ?`, v.Name)
		return DroppedView{Dropped: true, Name: v.Name}, err
	})
}

// Pin sets whether a view is shown on the first page of its agent.
func (s *Views) Pin(ctx context.Context, by changelog.By, name string, pinned bool) error {
	v, _, err := view.Need(ctx, s.db.db.Read(), name)
	if err != nil {
		return err
	}

	_, err = write(ctx, s.db, by, "pin_view", func(_ context.Context, tx *sqlite.Tx) (struct{}, error) {
		_, err := tx.Exec(`update _views set pinned = ? where name = ?`, pinned, v.Name)
		return struct{}{}, err
	})
	return err
}
