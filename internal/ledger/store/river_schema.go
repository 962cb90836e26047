package store

import (
	"context"
	"database/sql"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// migrateRiver creates or updates River's tables. Each migration runs in its own transaction,
// because some depend on an earlier commit.
func migrateRiver(ctx context.Context, conn *sql.Conn, schema string) error {
	m, err := rivermigrate.New(riverpgxv5.New(nil), &rivermigrate.Config{Schema: schema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	return OnSession(conn, func(pg *pgx.Conn) error {
		for {
			var done *rivermigrate.MigrateResult
			err := pgx.BeginFunc(ctx, pg, func(tx pgx.Tx) (err error) {
				done, err = m.MigrateTx(ctx, tx, rivermigrate.DirectionUp, &rivermigrate.MigrateOpts{MaxSteps: 1}) //nolint:staticcheck // a single step
				return err
			})
			if err != nil || len(done.Versions) == 0 {
				return err
			}
		}
	})
}
