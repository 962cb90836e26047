package schema

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"rouse/internal/text"
)

const (
	renderChars   = 8000 // limit for a prompt
	renderColumns = 10   // columns per table if space is short
	renderViews   = 1000 // characters for view names if space is short
)

// String returns Text with at most 8,000 characters.
func (s Schema) String() string { return s.Text(renderChars) }

// Text describes the schema without rows. most is the maximum number of characters. If the text is
// too long, Text omits first the SQL of views, then columns after the tenth, then the oldest
// tables.
func (s Schema) Text(most int) string {
	if len(s.Tables) == 0 && len(s.Views) == 0 {
		return "The database has no tables yet.\n"
	}

	tables := slices.Clone(s.Tables)
	slices.SortStableFunc(tables, func(a, b Table) int { return cmp.Compare(a.createdAt, b.createdAt) })
	const all = 1 << 30
	views := viewNames(s.Views, min(renderViews, most/4))
	for _, out := range []func() string{
		func() string { return render(tables, all, 0) + viewTexts(s.Views) },
		func() string { return render(tables, all, 0) + views },
	} {
		if text := out(); utf8.RuneCountInString(text) <= most {
			return text
		}
	}

	for left := 0; ; left++ {
		out := render(tables[left:], renderColumns, left) + views
		if utf8.RuneCountInString(out) <= most || left == len(tables) {
			return out
		}
	}
}

// viewTexts returns views with their SQL.
func viewTexts(views []View) string {
	var b strings.Builder
	for _, v := range views {
		fmt.Fprintf(&b, "view %s:\n  %s\n", v.title(), strings.ReplaceAll(strings.TrimSpace(v.SQL), "\n", "\n  "))
	}
	return b.String()
}

// viewNames returns the names of views on one line. most is the maximum number of characters.
func viewNames(views []View, most int) string {
	if len(views) == 0 {
		return ""
	}

	names := make([]string, len(views))
	for i, v := range views {
		names[i] = v.title()
	}

	return "views, whose SQL db_schema has: " + text.Truncate(strings.Join(names, ", "), most) + "\n"
}

// title returns the name of a view with its parameters.
func (v View) title() string {
	out := v.Name
	if len(v.Params) > 0 {
		out += "(" + strings.Join(v.Params, ", ") + ")"
	}

	if v.Saved {
		out += " (saved)"
	}
	return out
}

func render(tables []Table, columns, left int) string {
	var b strings.Builder
	for _, t := range tables {
		fmt.Fprintf(&b, "%s (%d rows): %s\n", t.Name, t.RowCount, brief(t.Purpose))
		for i, c := range t.Columns {
			if i == columns {
				fmt.Fprintf(&b, "  … and %d more columns\n", len(t.Columns)-i)
				break
			}
			fmt.Fprintf(&b, "  %s %s%s\n", c.Name, c.Type, c.notes())
		}

		for _, index := range t.Indexes {
			if index.Unique {
				fmt.Fprintf(&b, "  unique: %s\n", strings.Join(index.Columns, ", "))
			}
		}
	}

	if left > 0 {
		fmt.Fprintf(&b, "%d older tables are left out here; db_schema lists them.\n", left)
	}

	return b.String()
}

func (c Column) notes() string {
	switch {
	case c.PrimaryKey:
		return " primary key"
	case c.Nullable != nil && !*c.Nullable:
		return " not null"
	}
	return ""
}

// brief shortens a purpose to one line.
func brief(purpose string) string { return text.Truncate(text.Collapse(purpose), 200) }
