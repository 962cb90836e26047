// Package integrity audits a ledger: it checks the rows, and the files of large values, for
// violations of the ledger's guarantees.
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

// intact is the name of the check of the SQLite file.
const intact = "intact"

// Check is a guarantee of the ledger that can be verified from its rows.
type Check struct {
	Name    string `json:"name"`
	Promise string `json:"promise"`
	// whether a clock that was set back can also break the guarantee; a violation is then only a
	// warning
	Clock bool `json:"clock,omitempty"`

	// query finds the violating rows. find replaces query if a single query is not enough. say is
	// the format of a row's message. Columns with the prefix t_ are times.
	query, say string
	find       func(context.Context, *auditor) error
}

// Violation is a violation of a guarantee.
type Violation struct {
	Check string `json:"check"`
	Text  string `json:"text"`
	Clock bool   `json:"clock,omitempty"` // whether a clock that was set back may be the cause
}

// Options holds the callbacks of an audit. All are required.
type Options struct {
	Begin func(Check)
	Found func(Violation) error // an error ends the audit
}

// Checks returns all checks in the order of execution.
func Checks() []Check {
	return slices.Concat(auditTime, auditRuns(), auditMoney, auditTold, auditKept())
}

// auditor is one audit. All its queries see the same state of the ledger.
type auditor struct {
	db    *store.DB
	blobs *blob.Blobs
	tx    *sql.Tx
	check Check
	found func(Violation) error
}

// Audit checks the rows and the large values of the ledger for violations. It reads a consistent
// snapshot while other processes write. It changes no data, and holds only one row in memory at a
// time.
func Audit(ctx context.Context, db *store.DB, blobs *blob.Blobs, o Options) (err error) {
	tx, err := store.BeginRead(ctx, db)
	if err != nil {
		return fmt.Errorf("the ledger cannot be audited: %w", err)
	}
	defer func() { err = errors.Join(err, ignoreDone(tx.Rollback())) }() // it was only used to read

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
		case sqlite.Corrupt(err): // report the damage and continue with the other checks
			if err := o.Found(Violation{Check: intact, Text: fmt.Sprintf("the check %s could not be made, because the ledger is damaged: %v", check.Name, err)}); err != nil {
				return err
			}
		default:
			return fmt.Errorf("the audit ended at the check %s: %w", check.Name, err)
		}
	}
	return nil
}

// ignoreDone ignores the error of a transaction that was already ended by its context.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// report reports a violation of the current check.
func (a *auditor) report(format string, args ...any) error {
	return a.found(Violation{Check: a.check.Name, Text: fmt.Sprintf(format, args...), Clock: a.check.Clock})
}

// each reports every row of a query as a violation.
func (a *auditor) each(ctx context.Context, say, query string, args ...any) error {
	return a.rows(ctx, func(row []any) error { return a.report(say, row...) }, query, args...)
}

// rows calls use with each row of a query. The values are integers, strings, and formatted times
// for columns with the prefix t_.
func (a *auditor) rows(ctx context.Context, use func([]any) error, query string, args ...any) error {
	rows, err := a.tx.QueryContext(ctx, query, args...) //nolint:sqlclosecheck,rowserrcheck // EachRow closes them
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
