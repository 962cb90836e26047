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
	Count int      // as SQLite numbers them: ? is one more than the largest, ?7 is 7, a new name is one more
	Names []string // without :, @ or $, each once
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

// EachParameter calls found for each parameter of SQL, which has its mark (?, :, @ or $) at at.
func EachParameter(sql string, found func(at, end int)) {
	for i := 0; i < len(sql); {
		next, _ := NextToken(sql, i)
		// Not inside a text or a comment, which are one token; and a $ may stand within a name.
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

// Filter returns the values of the parameters that SQL has.
func (p Parameters) Filter(named map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range named {
		if slices.Contains(p.Names, strings.TrimLeft(name, ":@$")) {
			out[name] = value
		}
	}
	return out
}

// Check returns an error unless the values fit the parameters. SQLite would take a missing value for
// NULL, and the driver ignores a surplus one.
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
