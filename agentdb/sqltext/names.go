package sqltext

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"rouse/agentdb/dberr"
)

// MaxName is the maximum length of an identifier in bytes.
const MaxName = 128

// Columns that the host adds to every table. Their values are ISO-8601 timestamps in UTC.
const (
	ColumnCreated = "_created_at"
	ColumnUpdated = "_updated_at"
	ColumnDeleted = "_deleted_at"
)

// CheckTable returns an error if name is not valid for a table or an index.
func CheckTable(field, name string) error {
	if err := checkIdentifier(field, name); err != nil {
		return err
	}
	if IsReservedTable(name) {
		return dberr.Invalid(field, "the name %q is reserved: names that begin with _ or sqlite_ belong to the host; choose another", name)
	}
	return nil
}

// CheckColumn returns an error if name is not valid for a column.
func CheckColumn(field, name string) error {
	if err := checkIdentifier(field, name); err != nil {
		return err
	}
	if IsReservedColumn(name) {
		return dberr.Invalid(field, "the column name %q is reserved for the host; leave it out or choose another", name)
	}
	return nil
}

func checkIdentifier(field, name string) error {
	switch {
	case name == "":
		return dberr.Invalid(field, "a name is missing")
	case len(name) > MaxName:
		return dberr.Invalid(field, "the name %.20s… has %d characters; %d are allowed", name, len(name), MaxName)
	case !IsIdentifier(name):
		return dberr.Invalid(field, "%q is not a name: use letters A-Z, digits and _, beginning with a letter or _", name)
	}
	return nil
}

// IsIdentifier reports whether SQL accepts a name without quotes.
func IsIdentifier(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// IsReservedTable reports whether a table name is reserved for the host or SQLite.
func IsReservedTable(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "_") || strings.HasPrefix(name, "sqlite_")
}

// IsReservedColumn reports whether a column name is reserved. The host has reserved columns, and a
// column must not hide one of SQLite's names for the row ID.
func IsReservedColumn(name string) bool {
	return IsHostColumn(name) || slices.Contains([]string{"rowid", "_rowid_", "oid"}, strings.ToLower(name))
}

// IsHostColumn reports whether the host writes the column with this name.
func IsHostColumn(name string) bool {
	return slices.Contains([]string{ColumnCreated, ColumnUpdated, ColumnDeleted}, strings.ToLower(name))
}

// Quote quotes an identifier for SQL.
func Quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// QuoteAll quotes identifiers and joins them with commas.
func QuoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = Quote(name)
	}
	return strings.Join(quoted, ", ")
}

// ToColumn converts a heading of a file to a column name: "Größe (m²)" becomes Gro_e_m2. It returns
// "" if the heading has no usable character.
func ToColumn(heading string) string {
	var b strings.Builder
	gap := false
	// NFKD separates letters from their accents, and splits m² into m and 2.
	for _, r := range norm.NFKD.String(heading) {
		switch {
		case r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9':
			if gap && b.Len() > 0 {
				b.WriteByte('_')
			}
			gap = false
			b.WriteRune(r)
		case !unicode.Is(unicode.Mn, r): // accents vanish, all other characters separate words
			gap = true
		}
	}

	name := b.String()
	if name != "" && name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}

	// Columns of the host keep their names, so that an import can skip them.
	if IsReservedColumn(name) && !IsHostColumn(name) {
		name = "c_" + name
	}

	return name[:min(len(name), MaxName-8)] // leave room for the suffix of a duplicate
}

// ToColumns converts the headings of a file to the column names of a new table. A repeated name
// gets the suffix _2, and a heading without a usable character gets its position.
func ToColumns(headings []string) []string {
	names := make([]string, len(headings))
	taken := make(map[string]bool, len(headings))
	for i, heading := range headings {
		name := ToColumn(heading)
		if name == "" {
			name = fmt.Sprintf("column_%d", i+1)
		}
		names[i] = Unique(name, taken)
	}

	return names
}

// Unique appends _2, _3 and so on until a name is not taken, and marks it as taken. It ignores
// case.
func Unique(name string, taken map[string]bool) string {
	candidate := name
	for n := 2; taken[strings.ToLower(candidate)]; n++ {
		candidate = fmt.Sprintf("%s_%d", name, n)
	}
	taken[strings.ToLower(candidate)] = true
	return candidate
}
