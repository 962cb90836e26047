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

// ViewResult is what a view answers, and when the rows were read.
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

// Views are the saved queries of a database.
type Views struct{ db *DB }

// Save saves a query, or changes one that is there: it keeps when it was made and
// whether it is pinned. The SQL has to work now, with NULL for a parameter without a default.
func (s *Views) Save(ctx context.Context, by changelog.By, v view.View) (view.View, error) {
	if err := v.Check(); err != nil {
		return view.View{}, err
	}

	values := map[string]any{}
	for _, p := range v.Params {
		values[p.Name] = p.Default
	}
	// A view that does not work is refused now and not when somebody looks at it.
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

// Run asks a view now, with values for its parameters by their names. What it answers by
// its defaults alone is kept.
func (s *Views) Run(ctx context.Context, name string, given map[string]any) (ViewResult, error) {
	v, _, err := view.Need(ctx, s.db.db.Read(), name)
	if err != nil {
		return ViewResult{}, err
	}
	if len(given) == 0 {
		// Only the answer to the defaults is stored: it is what Show shows.
		return s.refresh(ctx, v)
	}

	out, _, err := s.query(ctx, v, given)
	return out, err
}

// Check says whether a view can be shown: an error is an *Error when it is not there, or has a
// parameter without a default.
func (s *Views) Check(ctx context.Context, name string) error {
	v, _, err := view.Need(ctx, s.db.db.Read(), name)
	if err != nil {
		return err
	}

	_, err = v.Values(nil)
	return err
}

// Show gives the stored result of a view. One that was never asked, or whose refresh is
// a duration that is over, is asked first.
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

// Refresh queries the views again that want it at the end of a run. A view that does not
// work any more keeps its last result; its error is among those that are returned.
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

// refresh asks a view and keeps the answer, unless the view was changed meanwhile. The
// quota does not hold it up: a result takes the place of the last.
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

// query gives the answer, and its rows as JSON.
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

// Drop forgets a saved view.
func (s *Views) Drop(ctx context.Context, by changelog.By, name string) (DroppedView, error) {
	if by.Key != "" { // a call that was made already finds no view any more
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

// Pin has a view stand on the first page of its agent, or no longer.
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
