package ledger_test

import (
	"reflect"
	"testing"
)

// TestLedgerTakesValues fails on a method that takes a function, by itself or in a request: it could run inside a
// transaction. These functions run outside of transactions.
func TestLedgerTakesValues(t *testing.T) {
	t.Parallel()
	allowed := map[string]bool{
		"Backup":      true, // reports its progress
		"RedactWith":  true, // removes secrets from texts
		"Maint.Prune": true, // asks how long the runs of a job are kept
		"Snapshot":    true, // has other databases copied while the ledger is not written
	}

	for _, m := range methodsOfLedger() {
		seen := map[reflect.Type]bool{}
		for n := 1; n < m.Type.NumIn(); n++ { // the first is the ledger, or its part
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
