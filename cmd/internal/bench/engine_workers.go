package bench

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/scheduler/dispatch"
)

const (
	// engineLanes is how many runs are on at once in each process.
	engineLanes = 64
	// engineConnections are those of a process.
	engineConnections = 8
	// hangs is the job whose first attempts do not end by themselves.
	hangs = "hangs"
)

// engineWorker is a process that does runs, until its input is closed.
type engineWorker struct {
	name   string // of the node
	cmd    *exec.Cmd
	in     io.WriteCloser
	killed bool
}

// startWorker starts this program as a worker. The address goes by its input: other users see its arguments.
func (b *engineBench) startWorker(ctx context.Context, kind, url string) (*engineWorker, error) {
	w := &engineWorker{cmd: exec.CommandContext(ctx, b.self, "bench", ChildVerb, kind)}
	w.cmd.Stderr = os.Stderr
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}

	_, err = fmt.Fprintln(w.in, url)
	if err == nil {
		w.name, err = bufio.NewReader(out).ReadString('\n')
	}
	if err != nil {
		return nil, fmt.Errorf("the worker %s does not get ready: %w", kind, errors.Join(err, w.end()))
	}
	w.name = strings.TrimSpace(w.name)
	return w, nil
}

func (w *engineWorker) end() error {
	if w.killed {
		return nil
	}
	_ = w.in.Close() // it ends as well when that fails
	return w.cmd.Wait()
}

func (w *engineWorker) kill() error {
	w.killed = true
	if err := w.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = w.cmd.Wait() // it was killed
	return nil
}

// engineChild is a worker: it reads the address of its database, says when it is ready, and works until its input ends.
func engineChild(ctx context.Context, in io.Reader, out io.Writer, work func(ctx context.Context, db *sql.DB, ready func(name string)) error) (err error) {
	lines := bufio.NewReader(in)
	address, err := lines.ReadString('\n')
	if err != nil {
		return fmt.Errorf("no address was given: %w", err)
	}
	db, err := sql.Open("pgx", strings.TrimSpace(address))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(engineConnections)
	db.SetMaxIdleConns(engineConnections)

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, lines) // its end is what counts
		stop()
	}()
	return work(ctx, db, func(name string) { fmt.Fprintln(out, name) })
}

// workAsNode does the runs of a ledger as rouse serve does, but for what a run is: nothing.
func workAsNode(ctx context.Context, db *sql.DB, ready func(string)) (err error) {
	l, err := ledger.Open(ctx, ledger.Options{DB: db})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	m, err := l.Join(ctx, ledger.Node{Name: fmt.Sprint("node", os.Getpid()), Host: "here", PID: os.Getpid(), Triggers: true, Work: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Leave(context.WithoutCancel(ctx))) }()

	execute := unlimited{func(ctx context.Context, run ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
		if run.Job == hangs && run.Attempt == 1 {
			<-ctx.Done()
			return ledger.Result{}, ctx.Err()
		}
		return ledger.Result{Outcome: domain.OutcomeSuccess, Exit: domain.ExitFinalResponse}, nil
	}}
	d, err := dispatch.New(dispatch.Options{Ledger: l, Executor: resumed{execute}, Runs: engineLanes, RunsPerAgent: 1 << 20, Now: l.Now})
	if err != nil {
		return err
	}
	ready(m.Node().Name)
	return d.Run(ctx)
}

// resumed has runs go on after their process was killed.
type resumed struct{ unlimited }

// Policy implements dispatch.Executor.
func (resumed) Policy(string) dispatch.Policy { return dispatch.Policy{Resume: true, Concurrency: -1} }

// drainBare is drainNodes for the least that a queue in PostgreSQL can be: a table whose rows are claimed with for update skip locked, as many
// as there are free lanes, and completed one by one. It knows neither attempts nor events, leases nor lanes of others, and does not hear of what is queued.
func (b *engineBench) drainBare(ctx context.Context, processes int) (rate float64, err error) {
	err = b.inSchema(ctx, func(url string, db *sql.DB) error {
		for _, statement := range []string{
			`create table queue (id bigint generated always as identity primary key, state text not null default 'queued', started_at timestamptz, finished_at timestamptz)`,
			`create index waiting on queue (id) where state = 'queued'`,
		} {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		if _, err := db.ExecContext(ctx, `insert into queue (state) select 'queued' from generate_series(1, $1)`, b.runs); err != nil {
			return err
		}
		rate, err = b.drain(ctx, "engine-bare", url, db, processes, `select count(*) from queue where state = 'finished'`)
		return err
	})
	return rate, err
}

const (
	claimBare = `update queue set state = 'running', started_at = now() where id in (select id from queue where state = 'queued' order by id limit $1 for update skip locked) returning id`
	endBare   = `update queue set state = 'finished', finished_at = now() where id = $1 and state = 'running'`
)

func workBare(ctx context.Context, db *sql.DB, ready func(string)) error {
	var all sync.WaitGroup
	defer all.Wait()
	ready("bare")
	failed := make(chan error, 1)
	free := make(chan struct{}, engineLanes)
	for range engineLanes {
		free <- struct{}{}
	}
	for {
		// As many as there are lanes for.
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-free:
		}
		lanes := 1 + len(free)
		for range lanes - 1 {
			<-free
		}

		ids, err := claim(ctx, db, lanes)
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		for range lanes - len(ids) {
			free <- struct{}{}
		}
		for _, id := range ids {
			all.Go(func() {
				if _, err := db.ExecContext(ctx, endBare, id); err != nil {
					select {
					case failed <- ignoreEnd(ctx, err):
					default: // one is enough
					}
				}
				free <- struct{}{}
			})
		}
		if len(ids) == 0 {
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// claim takes rows of the bare queue.
func claim(ctx context.Context, db *sql.DB, most int) (ids []int64, err error) {
	rows, err := db.QueryContext(ctx, claimBare, most)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// ignoreEnd is for what fails because the measurement is over.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}
