package agentdb

import (
	"fmt"
	"rouse/agentdb/dberr"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

const maxName = 128 // bytes of an identifier, OSA-51

// Columns that the host adds to every table; their values are ISO-8601 UTC text (C-3).
const (
	createdAt = "_created_at"
	updatedAt = "_updated_at"
	deletedAt = "_deleted_at"
)

// checkTable says why a table or an index cannot have a name.
func checkTable(field, name string) error {
	if err := checkIdentifier(field, name); err != nil {
		return err
	}
	if reservedTable(name) {
		return dberr.Invalid(field, "the name %q is reserved: names that begin with _ or sqlite_ belong to the host; choose another", name)
	}
	return nil
}

// checkColumn says why a column cannot have a name.
func checkColumn(field, name string) error {
	if err := checkIdentifier(field, name); err != nil {
		return err
	}
	if reservedColumn(name) {
		return dberr.Invalid(field, "the column name %q is reserved for the host; leave it out or choose another", name)
	}
	return nil
}

func checkIdentifier(field, name string) error {
	switch {
	case name == "":
		return dberr.Invalid(field, "a name is missing")
	case len(name) > maxName:
		return dberr.Invalid(field, "the name %.20s… has %d characters; %d are allowed", name, len(name), maxName)
	case !identifier(name):
		return dberr.Invalid(field, "%q is not a name: use letters A-Z, digits and _, beginning with a letter or _", name)
	}
	return nil
}

func identifier(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// reservedTable holds for the system tables of today and of later versions.
func reservedTable(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "_") || strings.HasPrefix(name, "sqlite_")
}

// reservedColumn also holds for SQLite's own names of the row id, which a column would hide.
func reservedColumn(name string) bool {
	return hostColumn(name) || slices.Contains([]string{"rowid", "_rowid_", "oid"}, strings.ToLower(name))
}

func hostColumn(name string) bool {
	return slices.Contains([]string{createdAt, updatedAt, deletedAt}, strings.ToLower(name))
}

// quote writes an identifier for SQL.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = quote(name)
	}
	return strings.Join(quoted, ", ")
}

// toColumn makes a column name of a file's heading: "Größe (m²)" becomes Gro_e_m2. It
// gives "" when nothing usable is left.
func toColumn(heading string) string {
	var b strings.Builder
	gap := false
	// NFKD splits letters from their accents, and m² into m and 2.
	for _, r := range norm.NFKD.String(heading) {
		switch {
		case r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9':
			if gap && b.Len() > 0 {
				b.WriteByte('_')
			}
			gap = false
			b.WriteRune(r)
		case !unicode.Is(unicode.Mn, r): // accents vanish, all else separates
			gap = true
		}
	}

	name := b.String()
	if name != "" && name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}

	// The host's columns keep their names, by which an import leaves them out.
	if reservedColumn(name) && !hostColumn(name) {
		name = "c_" + name
	}

	return name[:min(len(name), maxName-8)] // room for the suffix of a duplicate
}

// toColumns names the columns of a new table after a file's headings. A repeated name
// gets _2, a heading without a usable letter its position.
func toColumns(headings []string) []string {
	names := make([]string, len(headings))
	taken := make(map[string]bool, len(headings))
	for i, heading := range headings {
		name := toColumn(heading)
		if name == "" {
			name = fmt.Sprintf("column_%d", i+1)
		}
		names[i] = unique(name, taken)
	}

	return names
}

// unique appends _2, _3, … until a name is not taken, whatever its case, and takes it.
func unique(name string, taken map[string]bool) string {
	candidate := name
	for n := 2; taken[strings.ToLower(candidate)]; n++ {
		candidate = fmt.Sprintf("%s_%d", name, n)
	}
	taken[strings.ToLower(candidate)] = true
	return candidate
}
