package ledger_test

import (
	"reflect"
	"testing"
)

// TestLedgerTakesValues fails on a method with a function parameter, alone or in a request, because
// the function could run inside a transaction. The listed functions run outside of transactions.
func TestLedgerTakesValues(t *testing.T) {
	t.Parallel()
	allowed := map[string]bool{
		"Backup":      true, // reports its progress
		"RedactWith":  true, // removes secrets from texts
		"Maint.Prune": true, // returns the retention period of a job
		"Snapshot":    true, // copies other databases while writes are blocked
	}

	for _, m := range methodsOfLedger() {
		seen := map[reflect.Type]bool{}
		for n := 1; n < m.Type.NumIn(); n++ { // the first parameter is the ledger or its part
			if takesFunction(m.Type.In(n), seen) && !allowed[m.name] {
				t.Errorf("%s takes a function in %s", m.name, m.Type.In(n))
			}
		}
	}
}

func takesFunction(of reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[of] {
		return false
	}
	seen[of] = true
	switch of.Kind() {
	case reflect.Func:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return takesFunction(of.Elem(), seen)
	case reflect.Struct:
		for i := range of.NumField() {
			if of.Field(i).IsExported() && takesFunction(of.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}
