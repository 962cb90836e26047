package schema

import (
	"fmt"
	"strings"

	"rouse/agentdb/dberr"
	"rouse/agentdb/sqltext"
)

// Additions returns the statements that add columns, and the statements that drop them again.
func (t *Table) Additions(add []Column) (up, down []string, err error) {
	taken := t.ColumnNames()
	for i, c := range add {
		field := fmt.Sprintf("add_columns[%d]", i)
		if err := sqltext.CheckColumn(field+".name", c.Name); err != nil {
			return nil, nil, err
		}

		if sqltext.ContainsFold(taken, c.Name) {
			bad := dberr.Invalid(field+".name", "the table %s already has a column %s", t.Name, c.Name)
			// The same call cannot succeed later.
			bad.Retryable = false
			return nil, nil, bad
		}

		if c.PrimaryKey {
			return nil, nil, dberr.Invalid(field+".primary_key", "a column that is added cannot be the primary key; make a new table and copy the rows")
		}

		taken = append(taken, c.Name)
		def, _, err := c.definition(field, false, false)
		if err != nil {
			return nil, nil, err
		}
		if strings.Contains(def, " DEFAULT CURRENT_") {
			return nil, nil, dberr.Invalid(field+".default", "a column that is added needs a default that is always the same, and %s is not; leave the default out and set the column in the rows", c.Default)
		}

		// SQLite rejects NOT NULL without a default even for an empty table.
		if c.Nullable != nil && !*c.Nullable && !strings.Contains(def, " DEFAULT ") {
			typ, err := c.columnType(field)
			if err != nil {
				return nil, nil, err
			}
			def += " DEFAULT " + emptyValue(typ)
		}

		up = append(up, "ALTER TABLE "+sqltext.Quote(t.Name)+" ADD COLUMN "+def)
		// Drop the columns in reverse order.
		down = append([]string{"ALTER TABLE " + sqltext.Quote(t.Name) + " DROP COLUMN " + sqltext.Quote(c.Name)}, down...)
	}

	return up, down, nil
}

func emptyValue(typ string) string {
	switch typ {
	case TypeText:
		return "''"
	case typeBlob:
		return "X''"
	}
	return "0"
}

// Migrated is the result of Migrate and AlterTable.
type Migrated struct {
	Success     bool     `json:"success"`
	MigrationID int64    `json:"migration_id"`
	AppliedSQL  string   `json:"applied_sql"`
	Warnings    []string `json:"warnings,omitempty"`
}
