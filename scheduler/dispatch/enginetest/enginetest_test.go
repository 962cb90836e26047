package enginetest_test

import (
	"testing"

	"rouse/scheduler/dispatch/enginetest"
)

func TestSQLite(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, enginetest.SQLite())
}

func TestPostgresOneNode(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, enginetest.Postgres(1))
}

func TestPostgresThreeNodes(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, enginetest.Postgres(3))
}
