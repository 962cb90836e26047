package sqlite

import (
	"fmt"
	"reflect"

	"modernc.org/libc"
	msqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// RowChange is a change of one row by a statement, a trigger or a cascade.
type RowChange struct {
	Table string
	// Old and New are the column values in table order; generated columns are nil. Old is nil for
	// an insert, New for a delete.
	Old, New       []any
	OldRow, NewRow int64 // row ids; zero in tables without row ids
}

// rowChange reads the values of the pre-update hook. It does not use the driver's own code, which
// truncates a text at the first NUL and dereferences an unset pointer for a virtual generated
// column.
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

// newHookReader reads unexported fields of the driver. It returns an error if a later version of
// the driver changes them, so that no write goes unrecorded.
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

// bytes returns memory that SQLite owns. The caller must copy it.
func (r hookReader) bytes(from, value uintptr) []byte {
	n := sqlite3.Xsqlite3_value_bytes(r.tls, value)
	// SQLite returns a null pointer for an empty blob.
	if n == 0 || from == 0 {
		return nil
	}
	return libc.GoBytes(from, int(n))
}
