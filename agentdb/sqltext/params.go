package sqltext

import (
	"slices"
	"strconv"
	"strings"

	"rouse/agentdb/dberr"
	"rouse/internal/text"
)

// Parameters are the parameters of an SQL text.
type Parameters struct {
	// Count is the highest parameter number in SQLite's numbering: ? and a new name get the next
	// number, ?7 is number 7.
	Count int
	Names []string // without :, @ or $, and without duplicates
}

// ParametersOf returns the parameters of SQL.
func ParametersOf(sql string) (p Parameters) {
	EachParameter(sql, func(at, end int) {
		mark, name := sql[at], sql[at+1:end]
		switch {
		case mark == '?' && name != "":
			n, err := strconv.Atoi(name)
			if err == nil {
				p.Count = max(p.Count, n)
			}
		case mark == '?':
			p.Count++
		case name != "" && !slices.Contains(p.Names, name):
			p.Names = append(p.Names, name)
			p.Count++
		}
	})
	return p
}

// EachParameter calls found with the start and end of each parameter. The mark (?, :, @ or $) is at
// the start.
func EachParameter(sql string, found func(at, end int)) {
	for i := 0; i < len(sql); {
		next, _ := NextToken(sql, i)
		// Strings and comments are single tokens, so their contents are skipped. A $ may also be
		// part of a name.
		if strings.IndexByte("?:@$", sql[i]) < 0 || sql[i] == '$' && i > 0 && wordByte(sql[i-1]) {
			i = next
			continue
		}

		end := next
		for end < len(sql) && wordByte(sql[end]) {
			end++
		}

		found(i, end)
		i = max(end, next)
	}
}

// Filter returns the values of the parameters that occur in the SQL.
func (p Parameters) Filter(named map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range named {
		if slices.Contains(p.Names, strings.TrimLeft(name, ":@$")) {
			out[name] = value
		}
	}
	return out
}

// Check returns an error unless the values match the parameters. SQLite would treat a missing value
// as NULL, and the driver ignores a surplus value.
func (p Parameters) Check(list []any, named map[string]any) error {
	if named == nil && len(list) == 0 && p.Count > 0 {
		return dberr.Invalid("params", "the SQL has more parameters than were given: %d, and no values", p.Count)
	}
	if len(list) > p.Count {
		return dberr.Invalid("params", "the SQL has %s and %d values were given", text.Plural(p.Count, "parameter"), len(list))
	}
	if named == nil && len(list) < p.Count {
		return dberr.Invalid("params", "the SQL has more parameters than were given: %d, and %d values", p.Count, len(list))
	}

	var given, surplus, missing []string
	for name := range named {
		name = strings.TrimLeft(name, ":@$")
		if given = append(given, name); !slices.Contains(p.Names, name) {
			surplus = append(surplus, name)
		}
	}

	for _, name := range p.Names {
		if named != nil && !slices.Contains(given, name) {
			missing = append(missing, ":"+name)
		}
	}

	slices.Sort(surplus)
	switch {
	case len(missing) > 0:
		return dberr.Invalid("params", "the SQL has more parameters than were given: there is no value for %s", strings.Join(missing, ", "))
	case len(surplus) > 0:
		return dberr.Invalid("params", "the SQL has no parameter %s", strings.Join(surplus, ", "))
	case named != nil && p.Count > len(p.Names):
		return dberr.Invalid("params", "the SQL has a parameter without a name (?), so params must be a list of values, or every parameter must have a name")
	}

	return nil
}
