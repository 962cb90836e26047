package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"rouse/internal/domain"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// RiverJob holds the arguments of the River job that brings a run to a node. River's tables are in
// the database of the ledger, so that an attempt and its job end in one transaction.
type RiverJob struct {
	Run   int64  `json:"run"`
	Job   string `json:"job,omitempty"`
	Agent string `json:"agent,omitempty"`
}

// Kind implements river.JobArgs.
func (RiverJob) Kind() string { return "run" }

// InsertOpts implements river.JobArgsWithInsertOpts. A run has at most one unfinished job. The
// ledger decides on retries.
func (RiverJob) InsertOpts() river.InsertOpts {
	return river.InsertOpts{MaxAttempts: 1, UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable, rivertype.JobStateRunning, rivertype.JobStateScheduled,
	}}}
}

// RiverFetchCooldown is the shortest time between two fetches of jobs.
const RiverFetchCooldown = time.Millisecond

// AnyQueue is the River queue for runs that any node may execute.
const AnyQueue = "any"

// Queue returns the River queue of a node, or AnyQueue for "".
func Queue(node string) string {
	if node == "" {
		return AnyQueue
	}
	// River accepts lower-case letters, digits, and single dashes and underscores. The checksum
	// keeps queue names unique.
	plain := strings.Join(strings.FieldsFunc(strings.ToLower(node), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }), "-")
	return fmt.Sprintf("node_%s_%08x", strings.TrimRight(plain[:min(len(plain), 40)], "-"), crc32.ChecksumIEEE([]byte(node)))
}

// clientID returns the name of the node's River client.
func (n Node) clientID() string { return fmt.Sprintf("%s/%d", n.Name, n.ID) }

// RiverClient returns the name of this node's River client.
func (m *Membership) RiverClient() string { return m.node.clientID() }

// joined makes a transaction of database/sql on a pgx connection usable as a pgx.Tx.
type joined struct{ *pgxConn }

type pgxConn = pgx.Conn

// Commit implements pgx.Tx. The transaction belongs to database/sql, which ends it.
func (joined) Commit(context.Context) error { return pgx.ErrTxClosed }

// Rollback implements pgx.Tx.
func (joined) Rollback(context.Context) error { return pgx.ErrTxClosed }

// LargeObjects implements pgx.Tx.
func (joined) LargeObjects() pgx.LargeObjects { return pgx.LargeObjects{} }

// Conn implements pgx.Tx.
func (j joined) Conn() *pgx.Conn { return j.pgxConn }

// newRiver returns a client that only inserts jobs.
func newRiver(schema string, log *slog.Logger) (*river.Client[pgx.Tx], error) {
	return river.NewClient(riverpgxv5.New(nil), &river.Config{Schema: schema, FetchCooldown: RiverFetchCooldown, Logger: log})
}

// RiverSchema returns the schema of River's tables.
func (l *Nodes) RiverSchema() string { return l.river.Schema() }

// RunFor is a run that can start now, and its node.
type RunFor struct {
	Run        int64
	Job, Agent string
	Node       string // empty for any node
}

// SendRuns inserts River jobs for runs. It skips runs with an unfinished job.
func (l *Nodes) SendRuns(ctx context.Context, runs []RunFor) error {
	params := make([]river.InsertManyParams, len(runs))
	for i, r := range runs {
		params[i] = river.InsertManyParams{Args: RiverJob{r.Run, r.Job, r.Agent}, InsertOpts: &river.InsertOpts{Queue: Queue(r.Node)}}
	}
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		return onTx(tx, func(ctx context.Context, pg pgx.Tx) error {
			_, err := l.river.InsertManyTx(ctx, pg, params)
			return err
		})
	})
}

// onTx calls use with a transaction as a pgx.Tx.
func onTx(tx *store.Tx, use func(context.Context, pgx.Tx) error) error {
	return tx.Raw(func(ctx context.Context, conn any) error { return use(ctx, joined{conn.(*stdlib.Conn).Conn()}) })
}

// SentRun is a run that is running or has an unfinished River job.
type SentRun struct {
	Run        int64
	Agent, Job string
	On         bool   // whether it is running
	Node       string // the node that executes it, if it is running
	Queue      string // the River queue, if it is not running yet
}

// SentRuns returns the running runs and those with an unfinished River job.
func (l *Nodes) SentRuns(ctx context.Context) ([]SentRun, error) {
	return store.List(store.Reads(ctx, l.DB), func(r *SentRun) []any {
		return []any{&r.Run, &r.Agent, &r.Job, &r.On, &r.Node, &r.Queue}
	}, `
		select r.id, r.agent, r.job, true, coalesce(n.home, ''), ''
		from runs r join attempts a on a.run = r.id and a.number = r.attempt left join nodes n on n.id = a.node
		where r.state = 'running' and r.state <> 'finished'
		union all
		select r.id, r.agent, r.job, false, '', j.queue
		from river_job j join runs r on r.id = (j.args->>'run')::bigint
		where j.kind = 'run' and j.state in ('available', 'pending', 'retryable', 'running', 'scheduled') and r.state in ('queued', 'waiting')`)
}

// EndJob finishes the River job of an attempt. It does not use river.JobCompleteTx, which only the
// job's worker can call: another node ends the attempts of a dead one.
func (l *Nodes) EndJob(tx *store.Tx, a record.Attempt, state domain.AttemptState) {
	if l.DB.Postgres == nil {
		return
	}
	as := map[domain.AttemptState]string{domain.AttemptFailed: "discarded", domain.AttemptInterrupted: "discarded"}[state]
	tx.Run(`update river_job set state = (case when metadata ? 'cancel_attempted_at' then 'cancelled' else $1 end)::river_job_state, finalized_at = now() where id = (select job from attempts where run = $2 and number = $3) and finalized_at is null`,
		cmp.Or(as, "completed"), a.Run, a.Number)
}

// CancelJob cancels the River job of a running run. River notifies the node that executes it.
func (l *Nodes) CancelJob(tx *store.Tx, r record.Run) error {
	if l.DB.Postgres == nil {
		return nil
	}
	job, err := store.Value[int64](tx, `select job from attempts where run = $1 and number = $2`, r.ID, r.Attempt)
	if err != nil || job == 0 {
		return err
	}
	return onTx(tx, func(ctx context.Context, pg pgx.Tx) error {
		_, err := l.river.JobCancelTx(ctx, pg, job)
		if errors.Is(err, rivertype.ErrNotFound) { // it was deleted, which also ends the attempt
			return nil
		}
		return err
	})
}

// TakeBack removes the River jobs of nodes that are gone or accept no more runs. The leader then
// sends the runs to other nodes.
func (l *Nodes) TakeBack(ctx context.Context) error {
	if _, err := l.DB.Postgres.ExecContext(ctx, `delete from river_job where kind = 'run' and state in ('available', 'pending', 'retryable', 'scheduled') and queue <> $1
		and not exists (select 1 from nodes where nodes.queue = river_job.queue and gone_at = 0 and lanes > 0)`, AnyQueue); err != nil {
		return err
	}
	_, err := l.DB.Postgres.ExecContext(ctx, `update river_job set state = 'discarded', finalized_at = now() where kind = 'run' and state = 'running'
		and not exists (select 1 from nodes where gone_at = 0 and name || '/' || id = attempted_by[array_upper(attempted_by, 1)])`)
	return err
}

// depose removes a leader that is gone, and starts an election. River itself would wait up to 15
// seconds.
const depose = `with led as (delete from river_leader where not exists (select 1 from nodes where gone_at = 0 and name || '/' || id = leader_id) returning leader_id)
	select pg_notify(current_schema() || '.river_leadership', json_build_object('action', 'resigned', 'leader_id', leader_id)::text) from led`

// Lead reports whether this process leads: it starts runs, fires schedules, sends notices and
// removes old records. River elects the leader among the nodes with triggers. A process with a file
// always leads.
func (l *Nodes) Lead(ctx context.Context) (bool, error) {
	m := l.member.Load()
	if m == nil {
		return true, nil
	}
	leader, err := l.riverLeader(ctx)
	return leader == m.node.clientID(), err
}

// Leader returns the id of the leading node, or 0 without a leader.
func (l *Nodes) Leader(ctx context.Context) (int64, error) {
	leader, err := l.riverLeader(ctx)
	if err != nil || leader == "" {
		return 0, err
	}
	var id int64
	_, err = fmt.Sscanf(leader[strings.LastIndex(leader, "/")+1:], "%d", &id)
	return id, err
}

func (l *Nodes) riverLeader(ctx context.Context) (string, error) {
	return store.Value[string](store.Reads(ctx, l.DB), `select coalesce(max(leader_id), '') from river_leader where expires_at > now()`)
}

// JobCount is the number of River jobs in one state of a queue.
type JobCount struct {
	Name, State string
	Jobs        int
}

// RiverJobs counts the unfinished River jobs. It also returns paused queues, with the state
// "paused".
func (l *Nodes) RiverJobs(ctx context.Context) ([]JobCount, error) {
	return store.List(store.Reads(ctx, l.DB), func(c *JobCount) []any { return []any{&c.Name, &c.State, &c.Jobs} },
		`select queue, state::text, count(*) from river_job where kind = 'run' and finalized_at is null group by queue, state
		union all select name, 'paused', 0 from river_queue where paused_at is not null order by 1, 2`)
}
