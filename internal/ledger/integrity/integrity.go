// Package integrity proves what the ledger promises from its rows, and from the files of its large values.
package integrity

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/internal/ledger/blob"
	"rouse/internal/ledger/store"
	"rouse/internal/storage/sqlite"
)

// intact is the check that the file itself is sound.
const intact = "intact"

// Check is a promise of the ledger that can be proved from its rows.
type Check struct {
	Name    string `json:"name"`
	Promise string `json:"promise"`
	// Clock says that a clock that was set back breaks it too, so that what is found is a warning.
	Clock bool `json:"clock,omitempty"`

	// query finds the rows that break it; find does where one query cannot. say words a row, by its columns: one that
	// begins with t_ is an instant.
	query, say string
	find       func(context.Context, *auditor) error
}

// Violation is what breaks a promise.
type Violation struct {
	Check string `json:"check"`
	Text  string `json:"text"`
	Clock bool   `json:"clock,omitempty"` // a clock that was set back explains it as well
}

// Options hear how an audit goes on. All of them are needed.
type Options struct {
	Begin func(Check)
	Found func(Violation) error // an error ends the audit
}

// Checks are all checks, in the order in which they are made.
func Checks() []Check {
	return slices.Concat(auditTime, auditRuns(), auditMoney, auditTold, auditKept())
}

// auditor is one audit: all of it reads the same instant of the ledger.
type auditor struct {
	db    *store.DB
	blobs *blob.Blobs
	tx    *sql.Tx
	check Check
	found func(Violation) error
}

// Audit proves what the ledger promises from its rows and from the files of its large values, all at one instant and
// while others write. It changes nothing, and holds no more than a row of what it reads.
func Audit(ctx context.Context, db *store.DB, blobs *blob.Blobs, o Options) (err error) {
	tx, err := store.BeginRead(ctx, db)
	if err != nil {
		return fmt.Errorf("the ledger cannot be audited: %w", err)
	}
	defer func() { err = errors.Join(err, ignoreDone(tx.Rollback())) }() // it only read

	for _, check := range Checks() {
		o.Begin(check)
		a := &auditor{db: db, blobs: blobs, tx: tx, check: check, found: o.Found}
		find := check.find
		if find == nil {
			find = func(ctx context.Context, a *auditor) error { return a.each(ctx, a.check.say, a.check.query) }
		}

		switch err := find(ctx, a); {
		case err == nil:
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case sqlite.Corrupt(err): // which is found, and hinders no other check
			if err := o.Found(Violation{Check: intact, Text: fmt.Sprintf("the check %s could not be made, because the ledger is damaged: %v", check.Name, err)}); err != nil {
				return err
			}
		default:
			return fmt.Errorf("the audit ended at the check %s: %w", check.Name, err)
		}
	}
	return nil
}

// ignoreDone is for a transaction that its context may have ended.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// report reports a violation of the check that is made.
func (a *auditor) report(format string, args ...any) error {
	return a.found(Violation{Check: a.check.Name, Text: fmt.Sprintf(format, args...), Clock: a.check.Clock})
}

// each reports each row of a query.
func (a *auditor) each(ctx context.Context, say, query string, args ...any) error {
	return a.rows(ctx, func(row []any) error { return a.report(say, row...) }, query, args...)
}

// rows hands on each row of a query: integers, texts, and instants of columns that begin with t_.
func (a *auditor) rows(ctx context.Context, use func([]any) error, query string, args ...any) error {
	rows, err := a.tx.QueryContext(ctx, query, args...) //nolint:sqlclosecheck,rowserrcheck // eachRow closes them
	return store.EachRow(rows, err, func(names []string, row []any) error {
		for i, v := range row {
			n, isInt := v.(int64)
			b, isBytes := v.([]byte)
			switch {
			case isInt && strings.HasPrefix(names[i], "t_"):
				row[i] = store.Instant(n).Format(time.RFC3339)
			case isBytes:
				row[i] = string(b)
			}
		}
		return use(row)
	})
}
