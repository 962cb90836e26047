package ledger_test

import (
	"reflect"
	"testing"

	"rouse/agentdb/ledger"
)

// TestRequestsAreValues checks that callers pass no functions to the ledger, because they could run inside a transaction.
func TestRequestsAreValues(t *testing.T) {
	allowed := map[string]string{
		"Audit":      "reports violations while it reads",
		"Backup":     "reports progress",
		"Prune":      "asks for the retention of a job before the transaction",
		"RedactWith": "replaces secrets in text, and calls nothing else",
		"Snapshot":   "copies other databases while no transaction is open",
	}

	l := reflect.TypeFor[*ledger.Ledger]()
	for m := range l.Methods() {
		for i := 1; i < m.Type.NumIn(); i++ {
			path := functionIn(m.Type.In(i), map[reflect.Type]bool{})
			if _, ok := allowed[m.Name]; path == "" || ok {
				continue
			}
			t.Errorf("Ledger.%s takes a function: %s; pass a value instead", m.Name, path)
		}
	}
}

// functionIn returns the path to the first exported function in a type, or "" if there is none.
func functionIn(typ reflect.Type, seen map[reflect.Type]bool) string {
	if seen[typ] {
		return ""
	}
	seen[typ] = true
	switch typ.Kind() {
	case reflect.Func:
		return typ.String()
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return functionIn(typ.Elem(), seen)
	case reflect.Struct:
		for f := range typ.Fields() {
			if path := functionIn(f.Type, seen); path != "" && f.IsExported() {
				return typ.Name() + "." + f.Name + " " + path
			}
		}
	}
	return ""
}
