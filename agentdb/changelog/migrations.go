package changelog

import (
	"strings"

	"rouse/agentdb/sqltext"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/sqlite"
)

const maxSlug = 48 // characters

// Migration is a row of _migrations.
type Migration struct {
	ID                          int64
	Slug, Description, Up, Down string
}

// RecordMigration stores a migration and returns its number.
func RecordMigration(tx *sqlite.Tx, by By, m Migration) (int64, error) {
	result, err := tx.Exec(`insert into _migrations(slug, description, up, down, at, run_id) values (?, ?, ?, ?, ?, ?)`,
		m.Slug, m.Description, m.Up, m.Down, sqlvalue.Now(), by.Run)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// Slug converts a description to a file name: "Add a unit!" becomes add-a-unit.
func Slug(description string) string {
	text := strings.ToLower(strings.ReplaceAll(sqltext.ToColumn(description), "_", "-"))
	text = strings.Trim(text, "-")
	if len(text) > maxSlug {
		text = text[:maxSlug]
		if i := strings.LastIndexByte(text, '-'); i > 0 { // cut at a word boundary
			text = text[:i]
		}
	}
	if text == "" {
		return "migration"
	}

	return text
}
