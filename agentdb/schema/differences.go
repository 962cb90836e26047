package schema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// differences returns a warning with the differences between an existing table and the
// specification, or nil if they match. An id column that the host added is not a difference.
func (s TableSpec) differences(t Table) []string {
	var out []string
	key := s.primaryKey()
	for _, want := range s.Columns {
		want.PrimaryKey = slices.Contains(key, want.Name)
		switch has := t.Column(want.Name); {
		case has == nil:
			out = append(out, "it has no column "+want.Name)
		case has.properties(sqlDefault(*has)) != want.properties(wantedDefault(want)):
			out = append(out, fmt.Sprintf("%s is %s, not %s", has.Name, has.properties(sqlDefault(*has)), want.properties(wantedDefault(want))))
		}
	}

	var more []string
	for _, c := range t.Columns {
		wanted := slices.ContainsFunc(s.Columns, func(w Column) bool { return strings.EqualFold(w.Name, c.Name) })
		if !wanted && (len(key) > 0 || !strings.EqualFold(c.Name, "id")) {
			more = append(more, c.Name)
		}
	}
	if len(more) > 0 {
		out = append(out, "it also has "+strings.Join(more, ", "))
	}

	for _, index := range s.Indexes {
		if !slices.ContainsFunc(t.Indexes, index.same) {
			out = append(out, fmt.Sprintf("it has no index %s as asked for", index.Name))
		}
	}

	if len(out) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("the table %s exists and stays as it is, but differs from what was asked for: %s", t.Name, strings.Join(out, "; "))}
}

// same reports whether two indexes are equivalent, regardless of their names.
func (i Index) same(other Index) bool {
	return i.Unique == other.Unique && slices.EqualFunc(i.Columns, other.Columns, strings.EqualFold)
}

// properties returns the declaration of a column as SQL, without its name.
func (c Column) properties(def string) string {
	typ, err := c.columnType("")
	if err != nil { // declared in SQL with another type
		typ = cmp.Or(strings.ToUpper(c.Type), "without a type")
	}

	switch {
	case c.PrimaryKey:
		typ += " PRIMARY KEY"
	case c.Nullable != nil && !*c.Nullable:
		typ += " NOT NULL"
	}
	if def != "" {
		typ += " DEFAULT " + def
	}
	return typ
}

// wantedDefault returns the default of a specified column as SQL, or "" if it has no default. The
// specification must be valid.
func wantedDefault(c Column) string {
	if len(c.Default) == 0 || string(c.Default) == "null" {
		return ""
	}
	literal, err := c.defaultLiteral("")
	if err != nil {
		return string(c.Default)
	}
	return literal
}

// sqlDefault returns the default of an existing column as SQL, or "" if it has no default. The
// schema holds it as SQL in a JSON string.
func sqlDefault(c Column) (def string) {
	if json.Unmarshal(c.Default, &def) != nil || strings.EqualFold(def, "null") {
		return ""
	}
	return def
}
