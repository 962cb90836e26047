package agentdb

import (
	"context"
	"errors"
	"slices"
	"strings"

	sqlite3 "modernc.org/sqlite/lib"

	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/schema"
	"rouse/agentdb/sqltext"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/sqlite"
)

// ExecuteSpec holds SQL that may write, and its parameters.
type ExecuteSpec struct {
	SQL    string         // one or more statements
	Params []any          // for ?; single statements only
	Named  map[string]any // for :name, @name and $name
}

// Executed is the result of Execute.
type Executed struct {
	RowsAffected int64    `json:"rows_affected"`
	Warning      string   `json:"warning,omitempty"`
	SelectRows   int64    `json:"select_rows_drained,omitempty"` // rows of SELECT statements, not part of the result
	Warnings     []string `json:"warnings,omitempty"`
}

// Execute runs statements in one transaction. They can access only the agent's tables. Unlike a
// query, they see deleted rows.
func (db *DB) Execute(ctx context.Context, by changelog.By, spec ExecuteSpec) (Executed, error) {
	s, err := newScript(spec.SQL)
	if err != nil {
		return Executed{}, err
	}
	if len(spec.Params) > 0 && len(s.statements) > 1 {
		return Executed{}, dberr.Invalid("params", "the SQL has %d statements, so params must be an object of values for :name; a list is for one statement", len(s.statements))
	}
	if s.args, err = (QuerySpec{Params: spec.Params, Named: spec.Named}).args(spec.SQL); err != nil {
		return Executed{}, err
	}

	run := func() (Executed, error) {
		return confined(ctx, db, by, changelog.OpRaw, func(ctx context.Context, tx *sqlite.Tx) (Executed, error) {
			err := runScript(ctx, tx, by, s)
			return s.done, err
		})
	}

	var done Executed
	// Only ALTER and DROP can lose data that the changelog cannot restore.
	if s.alters() {
		done, err = withBackup(ctx, db, by, run)
	} else {
		done, err = run()
	}

	if err == nil {
		done.Warnings = db.Quota.warnings(ctx, done.Warnings)
	}

	return done, err
}

// script is SQL that passed the text checks.
type script struct {
	text       string
	statements []sqltext.Statement
	args       []any

	done Executed // reset when the transaction begins
}

func newScript(text string) (*script, error) {
	statements, err := sqltext.SplitScript(text)
	if err != nil {
		return nil, err
	}

	s := &script{text: text, statements: statements}
	for i := range statements {
		if err := statements[i].Check(text); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// alters reports whether the script changes or drops existing tables, views, indexes or triggers.
func (s *script) alters() bool {
	return slices.ContainsFunc(s.statements, func(st sqltext.Statement) bool {
		first, _, _ := strings.Cut(st.Verb(), " ")
		return first == "ALTER" || first == "DROP"
	})
}

// runScript runs a script inside a confined write.
func runScript(ctx context.Context, tx *sqlite.Tx, by changelog.By, s *script) error {
	s.done = Executed{}
	at := sqlvalue.Now()
	// Log the SQL before the rows it changes, so that the changelog shows the cause first.
	if _, err := changelog.Log(tx, by, at, changelog.Entry{Op: changelog.OpRaw, SQL: s.text}); err != nil {
		return err
	}

	for i := range s.statements {
		statement := &s.statements[i]
		if err := s.run(ctx, tx, by, at, statement); err != nil {
			return scriptError(ctx, tx, s, statement, err)
		}
	}

	return nil
}

func (s *script) run(ctx context.Context, tx *sqlite.Tx, by changelog.By, at string, statement *sqltext.Statement) error {
	g := authorizerOf(ctx)
	g.verb = statement.Verb()
	defer func() { g.verb = "" }()

	if !g.ddl() {
		changes, err := tx.RecordChanges(ctx, func(ctx context.Context) error { return s.exec(ctx, tx, statement) })
		if err != nil {
			return err
		}
		return changelog.LogRows(ctx, tx, by, at, changelog.OpRaw, changes)
	}

	before, err := changelog.ReadObjects(ctx, tx)
	if err != nil {
		return err
	}

	err = changelog.ChangeSchema(ctx, tx, by, at, "", func() (string, error) {
		if err := s.exec(ctx, tx, statement); err != nil {
			return "", err
		}

		// From here on, the host reads and writes its own tables.
		g.verb = ""
		after, err := changelog.ReadObjects(ctx, tx)
		if err != nil {
			return "", err
		}
		if err := checkObjects(before, after); err != nil {
			return "", err
		}
		if err := viewsFree(tx, before, after); err != nil {
			return "", err
		}

		ran, err := changelog.SyncTables(ctx, tx, by, at, before, after)
		return strings.Join(append([]string{statement.Text}, ran...), ";\n") + ";", err
	})
	if err != nil {
		return err
	}

	return g.refresh(ctx, tx)
}

// exec runs one statement with the authorizer enabled.
func (s *script) exec(ctx context.Context, tx *sqlite.Tx, statement *sqltext.Statement) error {
	return tx.WithAuthorizer(func() error {
		switch verb := statement.Verb(); verb {
		case "SELECT", "VALUES":
			// Counting does all the work in the first step, which a deadline can interrupt.
			var n int64
			err := tx.SQL().QueryRowContext(ctx, "SELECT count(*) FROM (\n"+statement.Text+"\n)", s.args...).Scan(&n)
			s.done.SelectRows += n
			return err
		case "INSERT", "REPLACE", "UPDATE", "DELETE":
			result, err := tx.SQL().ExecContext(ctx, statement.Text, s.args...)
			if err != nil {
				return err
			}

			n, err := result.RowsAffected()
			s.done.RowsAffected += n
			if statement.UpdatesAll() {
				s.done.Warning = "an UPDATE without WHERE changed every row of its table, deleted ones included"
			}
			return err
		case "CREATE TRIGGER":
			if statement.UpdatesAll() {
				s.done.Warning = "the trigger holds an UPDATE without WHERE: each time it fires it changes every row of that table, deleted ones included"
			}
		}

		_, err := tx.SQL().ExecContext(ctx, statement.Text, s.args...)
		return err
	})
}

// scriptError turns SQLite's error for a statement into a message the agent can act on.
func scriptError(ctx context.Context, tx *sqlite.Tx, s *script, statement *sqltext.Statement, err error) error {
	var bad *dberr.Error
	if errors.As(err, &bad) || ctx.Err() != nil || errors.Is(err, sqlite.ErrTooManyChanges) {
		return err
	}

	text := dberr.SQLText(err)
	where := sqltext.Excerpt(s.text, statement.Offset)
	if at := sqltext.Locate(statement.Text, text); at >= 0 {
		where = sqltext.Excerpt(s.text, statement.Offset+at)
	}

	switch code := sqlite.Code(err); {
	case code == sqlite3.SQLITE_AUTH:
		return &dberr.Error{Kind: dberr.KindRejected, Field: "sql", Retryable: true, Message: text + authorizerOf(ctx).describeDenied(tx) + ": SQL reaches the agent's own tables, with SQLite's own functions, and nothing else; db_schema lists them", Place: where}
	case dberr.Refused(err):
		return dberr.Invalid("sql", "%s; nothing was written", dberr.RowText(err)).At(where)
	case code == sqlite3.SQLITE_ERROR, code == sqlite3.SQLITE_RANGE, code == sqlite3.SQLITE_READONLY:
		return dberr.Invalid("sql", "%s%s; nothing was written", text, suggest(ctx, sqlite.Prepared{Tx: tx}, text)).At(where)
	case code == 0 && strings.Contains(err.Error(), "missing"):
		return dberr.Invalid("params", "the SQL has more parameters than were given: %v", err)
	}

	return err
}

// viewsFree returns an error if a new table or view has the name of a saved view.
func viewsFree(tx *sqlite.Tx, before, after []changelog.Object) error {
	for _, o := range after {
		if o.Type != "table" && o.Type != "view" || slices.ContainsFunc(before, func(p changelog.Object) bool { return p.Type == o.Type && p.Name == o.Name }) {
			continue
		}
		if err := schema.ViewFree(tx, o.Name); err != nil {
			return err
		}
	}
	return nil
}

// checkObjects returns an error if a schema change has a forbidden effect. It compares the
// schemas, so the SQL text does not matter.
func checkObjects(before, after []changelog.Object) error {
	for _, o := range changelog.Tables(after) {
		host := 0
		var ids int
		for _, name := range o.Columns {
			if sqltext.IsHostColumn(name) {
				host++
			} else if sqltext.IsReservedColumn(name) {
				ids++
			}
		}

		// A table with only some of them would be treated as a host table, and writes to it would
		// fail.
		if host != 0 && host != 3 {
			return dberr.Invalid("sql", "the table %s would have some of the columns %s, %s and %s and not all: they belong to the host; leave them out, or use db_create_table", o.Name, sqltext.ColumnCreated, sqltext.ColumnUpdated, sqltext.ColumnDeleted)
		}
		if ids > 0 {
			return dberr.Invalid("sql", "the table %s would have a column named rowid, _rowid_ or oid, which hides SQLite's own; choose another name", o.Name)
		}

		i := slices.IndexFunc(before, func(p changelog.Object) bool { return p.Type == "table" && p.Page == o.Page })
		if i >= 0 && len(o.Columns) < len(before[i].Columns) {
			return dberr.Invalid("sql", "dropping a column of %s would lose its values for ever: leave it unused, or rename it", o.Name)
		}
	}

	if len(changelog.Tables(after)) < len(changelog.Tables(before)) {
		return dberr.Invalid("sql", "a table cannot get a name that begins with _ or sqlite_: those belong to the host")
	}

	return nil
}
