package agentdb

import (
	"context"
	"database/sql"
	"os"

	"rouse/agentdb/schema"
	"rouse/agentdb/sqltext"
)

// Stats holds the sizes of an agent's database.
type Stats struct {
	Path           string       `json:"path"`
	Bytes          int64        `json:"bytes"` // file and WAL; limited by the quota
	LogBytes       int64        `json:"log_bytes"`
	Quota          int64        `json:"quota"` // 0 means no quota
	Tables         []TableStats `json:"tables"`
	Changes        int64        `json:"changes"` // rows of the changelog
	ChangelogBytes int64        `json:"changelog_bytes"`
	JournalBytes   int64        `json:"journal_bytes"` // call journal
	FreeBytes      int64        `json:"free_bytes"`    // unused space inside the file
}

// TableStats holds the sizes of one table.
type TableStats struct {
	Name    string `json:"name"`
	Rows    int64  `json:"rows"`    // live rows
	Deleted int64  `json:"deleted"` // deleted rows, which can be restored
	Bytes   int64  `json:"bytes"`   // including indexes
}

// Stats measures the database. It reads the whole file once.
func (db *DB) Stats(ctx context.Context) (Stats, error) {
	s := Stats{Path: db.path, Quota: db.Quota.limitBytes(), Tables: []TableStats{}}
	var err error
	if s.Bytes, err = db.Quota.fileSizes(); err != nil {
		return Stats{}, err
	}

	if info, err := os.Stat(db.path + "-wal"); err == nil {
		s.LogBytes = info.Size()
	}
	schema, err := db.Schema(ctx)
	if err != nil {
		return Stats{}, err
	}
	if err := measureTables(ctx, db.db.Read(), schema.Tables, &s); err != nil {
		return Stats{}, db.Health.explain(ctx, err)
	}

	return s, nil
}

func measureTables(ctx context.Context, db *sql.DB, tables []schema.Table, s *Stats) error {
	bytes, err := tableBytes(ctx, db)
	if err != nil {
		return err
	}

	for _, t := range tables {
		// RowCount counts live rows only. Without host columns, all rows are live.
		all := t.RowCount
		if t.HasHostColumns {
			if err := db.QueryRowContext(ctx, "select count(*) from "+sqltext.Quote(t.Name)).Scan(&all); err != nil {
				return err
			}
		}
		s.Tables = append(s.Tables, TableStats{t.Name, t.RowCount, all - t.RowCount, bytes[t.Name]})
	}

	s.ChangelogBytes, s.JournalBytes = bytes["_changelog"], bytes["_calls"]
	if err := db.QueryRowContext(ctx, "select count(*) from _changelog").Scan(&s.Changes); err != nil {
		return err
	}

	return db.QueryRowContext(ctx, "select f.freelist_count * p.page_size from pragma_freelist_count f, pragma_page_size p").Scan(&s.FreeBytes)
}

// tableBytes returns the size of each table including its indexes.
func tableBytes(ctx context.Context, db *sql.DB) (map[string]int64, error) {
	rows, err := db.QueryContext(ctx, `select m.tbl_name, sum(d.pgsize) from dbstat d join sqlite_schema m on m.name = d.name where d.aggregate = 1 group by 1`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	out := map[string]int64{}
	for rows.Next() {
		var name string
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			return nil, err
		}
		out[name] = n
	}

	return out, rows.Err()
}

// Schema returns the tables in creation order, with the number of their live rows, and the views.
func (db *DB) Schema(ctx context.Context) (schema.Schema, error) {
	tables, err := schema.ReadTables(ctx, db.db.Read(), "")
	if err != nil {
		return schema.Schema{}, db.Health.explain(ctx, err)
	}

	for i := range tables {
		t := &tables[i]
		query := "select count(*) from " + sqltext.Quote(t.Name)
		if t.HasHostColumns {
			query += " where " + sqltext.ColumnDeleted + " is null"
		}
		if err := db.db.Read().QueryRowContext(ctx, query).Scan(&t.RowCount); err != nil {
			return schema.Schema{}, db.Health.explain(ctx, err)
		}
	}

	if tables == nil {
		tables = []schema.Table{}
	}

	views, err := schema.ReadViews(ctx, db.db.Read())
	if err != nil {
		return schema.Schema{}, db.Health.explain(ctx, err)
	}

	return schema.Schema{Tables: tables, Views: views}, nil
}
