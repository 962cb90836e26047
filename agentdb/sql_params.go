package agentdb

import (
	"slices"
	"strconv"
	"strings"

	"rouse/agentdb/dberr"
	"rouse/internal/text"
)

// parameters are what SQL wants values for.
type parameters struct {
	count int      // as SQLite numbers them: ? is one more than the largest, ?7 is 7, a new name is one more
	names []string // without :, @ or $, each once
}

func parametersOf(sql string) (p parameters) {
	eachParameter(sql, func(at, end int) {
		mark, name := sql[at], sql[at+1:end]
		switch {
		case mark == '?' && name != "":
			n, err := strconv.Atoi(name)
			if err == nil {
				p.count = max(p.count, n)
			}
		case mark == '?':
			p.count++
		case name != "" && !slices.Contains(p.names, name):
			p.names = append(p.names, name)
			p.count++
		}
	})
	return p
}

// eachParameter says where each parameter of SQL stands, with its mark (?, :, @ or $) at at.
func eachParameter(sql string, found func(at, end int)) {
	for i := 0; i < len(sql); {
		next, _ := nextToken(sql, i)
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

// filter leaves out the values that no parameter asks for.
func (p parameters) filter(named map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range named {
		if slices.Contains(p.names, strings.TrimLeft(name, ":@$")) {
			out[name] = value
		}
	}
	return out
}

// check says what is wrong with the values for parameters: SQLite takes one that is missing
// for NULL, and the driver passes over one that nobody asked for.
func (p parameters) check(list []any, named map[string]any) error {
	if named == nil && len(list) == 0 && p.count > 0 {
		return dberr.Invalid("params", "the SQL has more parameters than were given: %d, and no values", p.count)
	}
	if len(list) > p.count {
		return dberr.Invalid("params", "the SQL has %s and %d values were given", text.Plural(p.count, "parameter"), len(list))
	}
	if named == nil && len(list) < p.count {
		return dberr.Invalid("params", "the SQL has more parameters than were given: %d, and %d values", p.count, len(list))
	}

	var given, surplus, missing []string
	for name := range named {
		name = strings.TrimLeft(name, ":@$")
		if given = append(given, name); !slices.Contains(p.names, name) {
			surplus = append(surplus, name)
		}
	}

	for _, name := range p.names {
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
	case named != nil && p.count > len(p.names):
		return dberr.Invalid("params", "the SQL has a parameter without a name (?), so params must be a list of values, or every parameter must have a name")
	}

	return nil
}
