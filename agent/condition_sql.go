package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"rouse/agentdb"
)

// checkSQL asks the agent's database for one value.
func (q conditionChecker) checkSQL(ctx context.Context, g Condition) (value string, ok bool, err error) {
	named := map[string]any{"now": q.now}
	if strings.Contains(g.SQL, "last_") { // else the ledger need not look for them
		last, err := q.times(ctx, q.task.run)
		if err != nil {
			return "", false, err
		}
		named["last_success"], named["last_run"] = last.SuccessEnd, last.End // rows that the last run wrote are not new
	}

	db, release, err := q.databases.Get(ctx, q.task.agent.Name)
	if err != nil {
		return "", false, explainTimeout(ctx, g, err)
	}
	defer release()

	rows, err := db.Query(ctx, agentdb.QuerySpec{SQL: g.SQL, Named: named, AllowExtra: true, Limit: 2})
	if err != nil {
		return "", false, explainTimeout(ctx, g, q.explainSQLError(err))
	}

	switch {
	case len(rows.Columns) > 1:
		return "", false, fmt.Errorf("it gives %d columns, and a condition takes one value; write for example: select count(*) > 0 from …", len(rows.Columns))
	case len(rows.Rows) > 1:
		return "", false, errors.New("it gives more than one row, and a condition takes one value; write for example: select count(*) > 0 from …")
	case len(rows.Rows) == 0:
		return "no row", false, nil
	}

	seen := rows.Rows[0][rows.Columns[0]]
	switch v := seen.(type) {
	case nil:
		value = "NULL"
	case string:
		value = strconv.Quote(v)
	default:
		value = fmt.Sprint(v)
	}

	return value, truth(seen), nil
}

// explainSQLError says what the owner can do about a query that the database refuses.
func (q conditionChecker) explainSQLError(err error) error {
	var bad *agentdb.Error
	if !errors.As(err, &bad) {
		return err
	}
	if bad.Field == "params" {
		return fmt.Errorf("%w; a condition has :last_success, :last_run and :now", err)
	}

	if rest, ok := strings.CutPrefix(bad.Message, "no such table: "); ok {
		table, _, _ := strings.Cut(rest, ";")
		return fmt.Errorf("%w; create it (rouse call %s db_create_table …), or put a condition before this one that is false without it: sql: \"select count(*) from sqlite_schema where name = '%s'\"",
			err, q.task.agent.Name, strings.ReplaceAll(table, "'", "''"))
	}

	return err
}

// explainTimeout says that a condition took too long, where that is why it failed.
func explainTimeout(ctx context.Context, g Condition, err error) error {
	if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return fmt.Errorf("it took longer than %s and was stopped; make it quicker, or give it a longer timeout", g.Timeout)
	}
	return err
}
