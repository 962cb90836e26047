package changelog

import (
	"context"
	"slices"
	"strings"

	"rouse/internal/storage/sqlite"
)

// rename is a schema change that renamed a table or its columns.
type rename struct {
	change      int64
	was, became string            // names of the table
	columns     map[string]string // old name in lower case to new name
}

// allRenames returns all renames, the oldest first, including those of the undo itself.
func (u *undoer) allRenames(ctx context.Context) ([]rename, error) {
	// Read them once: a run can have very many entries.
	if u.renamed != nil {
		return u.renamed, nil
	}

	all, err := sqlite.Collect(ctx, u.tx.SQL(), func(scan sqlite.Scanner) ([]rename, error) {
		var id int64
		var before, after string
		if err := scan(&id, &before, &after); err != nil {
			return nil, err
		}

		was, err := parseObjects(before)
		if err != nil {
			return nil, unreadable(id, err)
		}
		became, err := parseObjects(after)
		if err != nil {
			return nil, unreadable(id, err)
		}
		return renamesBetween(id, Tables(was), Tables(became)), nil
	}, `select id, before, after from _changelog where op = 'schema' and before is not null and after is not null order by id`)
	u.renamed = append([]rename{}, slices.Concat(all...)...)
	return u.renamed, err
}

// renamesBetween compares tables before and after one statement, which keeps their order.
func renamesBetween(change int64, was, became []Object) (out []rename) {
	for i := range min(len(was), len(became)) {
		r := rename{change: change, was: was[i].Name, became: became[i].Name, columns: map[string]string{}}
		for k := range min(len(was[i].Columns), len(became[i].Columns)) {
			if old, name := was[i].Columns[k], became[i].Columns[k]; old != name {
				r.columns[strings.ToLower(old)] = name
			}
		}

		if r.was != r.became || len(r.columns) > 0 {
			out = append(out, r)
		}
	}
	return out
}

// renamesAfter returns the renames of a table since a change, the oldest first.
func (u *undoer) renamesAfter(ctx context.Context, change int64, table string) (out []rename, err error) {
	all, err := u.allRenames(ctx)
	for _, r := range all {
		// Each rename starts with the name that the previous one set.
		if r.change > change && strings.EqualFold(r.was, table) {
			out, table = append(out, r), r.became
		}
	}
	return out, err
}

// withCurrentNames returns a step with the current names of its table and columns.
func (u *undoer) withCurrentNames(ctx context.Context, s Step) (Step, error) {
	since, err := u.renamesAfter(ctx, s.Change, s.Table)
	for _, r := range since {
		s.Table, s.Key = r.became, r.apply(s.Key)
		for _, side := range []**Image{&s.Before, &s.After} {
			if *side != nil {
				m := r.apply(**side)
				*side = &m
			}
		}
	}

	return s, err
}

func (r rename) apply(m Image) Image {
	out := Image{Columns: make([]string, len(m.Columns)), Values: m.Values}
	for i, name := range m.Columns {
		if out.Columns[i] = name; r.columns[strings.ToLower(name)] != "" {
			out.Columns[i] = r.columns[strings.ToLower(name)]
		}
	}
	return out
}
