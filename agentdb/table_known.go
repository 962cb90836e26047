package agentdb

import (
	"context"
	"sync"

	"rouse/agentdb/sqlite"
)

// knownTables keeps what was read of tables, while the schema stays the same.
type knownTables struct {
	mu      sync.Mutex
	version int64             // of the schema
	tables  map[string]*Table // by the name that was asked for
}

func (k *knownTables) find(version int64, name string) *Table {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.version != version {
		return nil
	}
	return k.tables[name]
}

func (k *knownTables) keep(version int64, name string, t *Table) {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.version != version || k.tables == nil {
		k.version, k.tables = version, map[string]*Table{}
	}
	k.tables[name] = t
}

// tableToWrite reads a table with its layout, or says which tables there are. Others have the same one: nobody changes it, and
// its purpose may have changed since.
func (db *DB) tableToWrite(ctx context.Context, tx *sqlite.Tx, name string) (*Table, error) {
	var version int64
	if err := tx.QueryRow("pragma schema_version").Scan(&version); err != nil {
		return nil, err
	}
	if t := db.known.find(version, name); t != nil {
		return t, nil
	}

	t, err := needTable(ctx, prepared{tx}, name)
	if err != nil {
		return nil, err
	}
	if t.layout, err = readLayout(ctx, tx, t.Name); err != nil {
		return nil, err
	}

	// A version that this transaction made itself is given again, to another schema, when it is rolled back: only what is
	// committed, which others see, too, is kept.
	var committed int64
	if err := db.db.Read().QueryRowContext(tx.Context(ctx), "pragma schema_version").Scan(&committed); err != nil {
		return nil, err
	}
	if committed == version {
		db.known.keep(version, name, t)
	}

	return t, nil
}
