// Package db contains the tools with which an agent uses its own database: its schema (db_schema,
// db_create_table, db_alter_table, db_migrate), rows (db_insert, db_upsert, db_update, db_delete,
// db_restore), SQL (db_query, db_execute), files (db_import, db_export) and saved queries
// (db_define_view, db_run_view, db_list_views, db_drop_view).
//
// # Design
//
// Each tool translates its arguments into a call of agentdb and the result into an envelope. A
// write names the run and the call's key. A resumed attempt therefore gets the first result again
// from the journal of agentdb. Errors that the agent can correct are envelopes. A database file
// that cannot be used is a Go error, because the run cannot continue without it.
package db
