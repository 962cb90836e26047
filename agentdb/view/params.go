package view

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"rouse/agentdb/dberr"
	"rouse/agentdb/sqltext"
	"rouse/agentdb/sqlvalue"
	"rouse/agentdb/tabular"
)

// Param is a parameter of a saved view. The SQL refers to it as :name.
type Param struct {
	Name string `json:"name"`
	Type string `json:"type"` // text (the default), integer or real
	// Default value; nil if the parameter is required.
	Default any `json:"default,omitempty"`
}

// Types of a view parameter.
const (
	paramText    = "text"
	paramInteger = "integer"
	paramReal    = "real"
)

const maxViewParams = 20

// checkParams checks that the declared parameters match the SQL, and the defaults their types.
func (v *View) checkParams() error {
	if len(v.Params) > maxViewParams {
		return dberr.Invalid("params", "a view can have %d parameters", maxViewParams)
	}

	want := sqltext.ParametersOf(v.SQL)
	// If there are more parameters than names, the SQL contains a ?.
	if want.Count > len(want.Names) {
		return dberr.Invalid("sql", "a parameter of a view has a name: write :name and declare it in params, instead of ?")
	}

	var declared, without []string
	v.Params = slices.Clone(v.Params)
	for i := range v.Params {
		p := &v.Params[i]
		p.Name = strings.TrimLeft(p.Name, ":@$")
		if p.Type = strings.ToLower(p.Type); p.Type == "" {
			p.Type = paramText
		}

		field := "params[" + strconv.Itoa(i) + "]"
		switch {
		case p.Type != paramText && p.Type != paramInteger && p.Type != paramReal:
			return dberr.Invalid(field+".type", "the type of the parameter %s must be text, integer or real, not %q", p.Name, p.Type)
		case slices.Contains(declared, p.Name):
			return dberr.Invalid(field+".name", "the parameter %s is declared twice", p.Name)
		case !slices.Contains(want.Names, p.Name):
			return dberr.Invalid(field+".name", "the SQL has no parameter :%s", p.Name)
		}

		declared = append(declared, p.Name)
		if p.Default == nil {
			without = append(without, p.Name)
			continue
		}

		var err error
		if p.Default, err = p.value(p.Default, field+".default"); err != nil {
			return err
		}
	}

	for _, name := range want.Names {
		if !slices.Contains(declared, name) {
			return dberr.Invalid("params", "the SQL uses :%s, which params does not declare", name)
		}
	}

	if len(without) > 0 && v.Refresh != refreshManual {
		return dberr.Invalid("params", "a view that is refreshed by itself needs a default for every parameter, and %s has none", strings.Join(without, ", "))
	}

	return nil
}

// Values returns the parameter values for one query: the given ones, and defaults for the rest.
func (v View) Values(given map[string]any) (map[string]any, error) {
	out := map[string]any{}
	var missing, surplus []string
	for name := range given {
		if !slices.ContainsFunc(v.Params, func(p Param) bool { return p.Name == name }) {
			surplus = append(surplus, name)
		}
	}

	for _, p := range v.Params {
		value, ok := given[p.Name]
		switch {
		case ok:
			var err error
			if out[p.Name], err = p.bound(value, "params."+p.Name); err != nil {
				return nil, err
			}
		case p.Default == nil:
			missing = append(missing, p.Name)
		default:
			var err error
			if out[p.Name], err = p.bound(p.Default, "params."+p.Name); err != nil {
				return nil, err
			}
		}
	}

	slices.Sort(surplus)
	if len(missing) > 0 {
		return nil, dberr.Invalid("params", "the view %s needs a value for %s", v.Name, strings.Join(missing, ", "))
	}
	if len(surplus) > 0 {
		return nil, dberr.Invalid("params", "the view %s has no parameter %s; %s", v.Name, strings.Join(surplus, ", "), v.signature())
	}

	return out, nil
}

// signature describes the parameters of a view for a message.
func (v View) signature() string {
	if len(v.Params) == 0 {
		return "it has none"
	}

	out := make([]string, len(v.Params))
	for i, p := range v.Params {
		out[i] = p.Name + " (" + p.Type + ")"
	}
	return "it has " + strings.Join(out, ", ")
}

// bound returns a value in the form for a query parameter.
func (p Param) bound(v any, field string) (any, error) {
	value, err := p.value(v, field)
	if n, ok := value.(float64); ok {
		return sqlvalue.Real(n), err
	}
	return value, err
}

// value converts a value to the parameter's type. It parses texts as numbers, because values from
// a command line are always texts.
func (p Param) value(v any, field string) (any, error) {
	if v == nil {
		return nil, nil
	}

	stored, err := sqlvalue.Storable(v)
	if err != nil {
		return nil, dberr.Invalid(field, "the parameter %s cannot be used: %v", p.Name, err)
	}

	text, isText := stored.(string)
	switch _, isWhole := stored.(int64); {
	case p.Type == paramText && !isText:
		return tabular.CellText(stored), nil
	case p.Type == paramText, p.Type == paramInteger && isWhole:
		return stored, nil
	case isText:
		stored = tabular.Number(json.Number(text))
	}

	switch n := stored.(type) {
	case int64:
		if p.Type == paramReal {
			return float64(n), nil
		}
		return n, nil
	case float64:
		if p.Type == paramReal {
			return n, nil
		}
	}

	return nil, dberr.Invalid(field, "the parameter %s is of type %s, and %q is not", p.Name, p.Type, tabular.CellText(stored))
}
