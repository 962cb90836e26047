package sqlite

import (
	"reflect"
	"strings"
	"testing"

	"modernc.org/libc"
	msqlite "modernc.org/sqlite"
)

// An unknown layout of the driver's data is detected, not misread.
func TestRowChangeOfAnotherDriver(t *testing.T) {
	for name, data := range map[string]any{
		"nothing":          struct{}{},
		"no thread":        struct{ pCsr uintptr }{},
		"no handle":        struct{ tls *libc.TLS }{},
		"another thread":   struct{ tls, pCsr uintptr }{},
		"a pointer handle": struct{ tls, pCsr *libc.TLS }{},
		"a signed handle": struct {
			tls  *libc.TLS
			pCsr int64
		}{},
	} {
		if _, err := newHookReader(reflect.ValueOf(data)); err == nil || !strings.Contains(err.Error(), "unknown form (struct {") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := newHookReader(reflect.ValueOf(msqlite.SQLitePreUpdateData{})); err != nil {
		t.Errorf("the driver in use: %v", err)
	}
}
