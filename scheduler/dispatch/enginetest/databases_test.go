//go:build unix

package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/placement"
	"rouse/agentdb/pool"
	"rouse/internal/ledger"
	"rouse/internal/ledger/node"
)

// rowsJob is the job with runs that write into the database of their agent. The database moves to
// the worker that executes the run.
const (
	rowsJob    = "rows"
	rowsAgents = 4
	rowsPerRun = 3
)

func rowsAgent(n int) string { return fmt.Sprint("clerk", n%rowsAgents) }

// openHomes opens the databases of a worker, in a folder that exists when the worker returns.
func openHomes(ctx context.Context, l *ledger.Ledger, name string, log *slog.Logger) (*pool.Pool, *placement.Manager, error) {
	dir := filepath.Join(os.Getenv("ROUSE_TEST_WORKER_HOMES"), name)
	pool, err := pool.New(pool.Options{Dir: filepath.Join(dir, "agents"), Ledger: l, Logger: log})
	if err != nil {
		return nil, nil, err
	}
	return pool, placement.New(ctx, pool, placement.Options{Ledger: l, Node: name, Agents: filepath.Join(dir, "agents"), Storage: filepath.Join(dir, "storage"), State: filepath.Join(dir, "replica"), Logger: log}), nil
}

// writeRows makes the calls of a run one by one, each until it succeeds, and reports each of them.
// Reported rows must not be lost.
func (w *worker) writeRows(ctx context.Context, run ledger.Run) error {
	for n := range rowsPerRun {
		for {
			err := w.writeRow(ctx, run, n)
			if err == nil {
				break
			}
			if errors.As(err, new(*node.AgentElsewhereError)) || errors.Is(err, ledger.ErrLeaseLost) {
				return err // another worker executes the run
			}
			fmt.Fprintln(os.Stderr, "not written:", err)
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return nil
}

func (w *worker) writeRow(ctx context.Context, run ledger.Run, n int) error {
	if err := w.keeper.Acquire(ctx, run.Agent); err != nil {
		return err
	}
	db, release, err := w.pool.Get(ctx, run.Agent)
	if err != nil {
		return err
	}
	defer release()

	for _, call := range []struct{ key, sql string }{
		{"table", `create table if not exists rows (run integer, n integer, worker text)`},
		{fmt.Sprint("row", n), fmt.Sprintf(`insert into rows (run, n, worker) values (%d, %d, '%s')`, run.ID, n, w.name)},
	} {
		if _, err := db.Execute(ctx, changelog.By{Run: run.ID, Key: call.key}, agentdb.ExecuteSpec{SQL: call.sql}); err != nil {
			return err
		}
	}
	_, err = w.direct.ExecContext(ctx, `insert into told (run, n, worker) values ($1, $2, $3) on conflict do nothing`, run.ID, n, w.name)
	return err
}

// checkRows compares the agent's database with the reported rows and with the runs. Each reported
// row exists, no row exists twice, and each successful run has all its rows.
func (f *faultTest) checkRows() {
	f.t.Helper()
	told := f.rows(`select run || '/' || n from told order by run, n`)
	pool, keeper, err := openHomes(f.t.Context(), f.l, "reader", slog.New(slog.DiscardHandler))
	if err != nil {
		f.t.Fatal(err)
	}
	defer keeper.Close()
	defer pool.Close()
	there := map[string]int{}
	for n := range rowsAgents {
		f.readRows(pool, rowsAgent(n), there)
	}

	for _, row := range told {
		if there[row] != 1 {
			f.t.Errorf("the row %s, which was told of, is there %d times", row, there[row])
		}
	}
	for row, n := range there {
		if n != 1 {
			f.t.Errorf("the row %s is there %d times", row, n)
		}
	}
	runs := f.rows(`select id::text from runs where job = '` + rowsJob + `' and outcome = 'success'`)
	for _, run := range runs {
		for n := range rowsPerRun {
			if there[fmt.Sprintf("%s/%d", run, n)] != 1 {
				f.t.Errorf("run %s succeeded, and its row %d is not there once", run, n)
			}
		}
	}
	moves := f.rows(`select sum(lease - 1)::text from agent_homes where agent like 'clerk%'`)
	f.t.Logf("the agents' databases hold %d rows of %d runs; %d were told of, and databases moved %s times", len(there), len(runs), len(told), strings.Join(moves, ""))
}

// readRows returns the number of rows of an agent.
func (f *faultTest) readRows(pool *pool.Pool, agent string, there map[string]int) {
	f.t.Helper()
	db, release, err := pool.Get(f.t.Context(), agent)
	if err != nil {
		f.t.Fatal(err)
	}
	defer release()
	for from := 0; ; {
		got, err := db.Query(f.t.Context(), agentdb.QuerySpec{SQL: fmt.Sprintf(`select run || '/' || n as row from rows order by run, n limit 200 offset %d`, from)})
		if err != nil {
			f.t.Fatal(err)
		}
		for _, r := range got.Rows {
			there[r["row"].(string)]++
		}
		if from += len(got.Rows); len(got.Rows) == 0 {
			return
		}
	}
}
