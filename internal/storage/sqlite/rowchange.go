package sqlite

import (
	"fmt"
	"reflect"

	"modernc.org/libc"
	msqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// RowChange is one row as a statement, a trigger or a cascade changed it.
type RowChange struct {
	Table          string
	Old, New       []any // in the order of the table's columns, generated ones included as nil; nil: there was, or is, no row
	OldRow, NewRow int64 // row ids; 0 in tables without them
}

// rowChange reads the values of the pre-update hook. The driver's own code ends a text at its first
// NUL, and reads an unset pointer for a virtual generated column.
func rowChange(d *msqlite.SQLitePreUpdateData) (RowChange, error) {
	r, err := newHookReader(reflect.ValueOf(d).Elem())
	if err != nil {
		return RowChange{}, err
	}

	c := RowChange{Table: d.TableName}
	if d.Op != sqlite3.SQLITE_INSERT {
		c.Old, c.OldRow = r.row(sqlite3.Xsqlite3_preupdate_old), d.OldRowID
	}

	if d.Op != sqlite3.SQLITE_DELETE {
		c.New, c.NewRow = r.row(sqlite3.Xsqlite3_preupdate_new), d.NewRowID
	}

	return c, nil
}

// newHookReader reads unexported fields of the driver. If a later version has others, the write
// whose rows should be recorded is refused.
func newHookReader(data reflect.Value) (hookReader, error) {
	tls, db := data.FieldByName("tls"), data.FieldByName("pCsr")
	if !tls.IsValid() || tls.Type() != reflect.TypeFor[*libc.TLS]() || !db.IsValid() || !db.CanUint() {
		return hookReader{}, fmt.Errorf("the SQLite driver hands row changes over in an unknown form (%s)", data.Type())
	}
	return hookReader{(*libc.TLS)(tls.UnsafePointer()), uintptr(db.Uint())}, nil
}

type hookReader struct {
	tls *libc.TLS
	db  uintptr
}

func (r hookReader) row(column func(tls *libc.TLS, db uintptr, i int32, value uintptr) int32) []any {
	const pointer = 8
	at := r.tls.Alloc(pointer)
	defer r.tls.Free(pointer)

	out := make([]any, sqlite3.Xsqlite3_preupdate_count(r.tls, r.db))
	for i := range out {
		if column(r.tls, r.db, int32(i), at) == sqlite3.SQLITE_OK {
			out[i] = r.value(libc.AtomicLoadPUintptr(at))
		}
	}
	return out
}

func (r hookReader) value(at uintptr) any {
	switch sqlite3.Xsqlite3_value_type(r.tls, at) {
	case sqlite3.SQLITE_INTEGER:
		return sqlite3.Xsqlite3_value_int64(r.tls, at)
	case sqlite3.SQLITE_FLOAT:
		return sqlite3.Xsqlite3_value_double(r.tls, at)
	case sqlite3.SQLITE_TEXT:
		text := sqlite3.Xsqlite3_value_text(r.tls, at)
		return string(r.bytes(text, at))
	case sqlite3.SQLITE_BLOB:
		blob := sqlite3.Xsqlite3_value_blob(r.tls, at)
		return append([]byte{}, r.bytes(blob, at)...)
	}
	return nil
}

// bytes are SQLite's own; the caller copies them.
func (r hookReader) bytes(from, value uintptr) []byte {
	n := sqlite3.Xsqlite3_value_bytes(r.tls, value)
	// SQLite returns no pointer for an empty blob.
	if n == 0 || from == 0 {
		return nil
	}
	return libc.GoBytes(from, int(n))
}
