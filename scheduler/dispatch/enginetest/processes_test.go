//go:build unix

package enginetest_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rouse/agentdb/placement"
	"rouse/agentdb/pool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/node"
	"rouse/scheduler/dispatch"
	"rouse/scheduler/dispatch/river"
)

// exitLost is the exit code of a worker that has lost its lease.
const exitLost = 3

// TestMain runs a worker if the process was started as one.
func TestMain(m *testing.M) {
	name := os.Getenv("ROUSE_TEST_WORKER")
	if name == "" {
		os.Exit(m.Run())
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := beWorker(ctx, name, os.Getenv("ROUSE_TEST_WORKER_LEDGER"), os.Getenv("ROUSE_TEST_WORKER_DIRECT"))
	stop()
	switch {
	case errors.Is(err, ledger.ErrLeaseLost):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitLost)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// worker executes the runs of the test.
type worker struct {
	dispatch.ExecutorFunc
	name   string
	direct *sql.DB // a connection without network faults
	pool   *pool.Pool
	keeper *placement.Manager
}

// Policy implements dispatch.Executor.
func (w *worker) Policy(job string) dispatch.Policy {
	p := dispatch.Policy{Resume: true, Concurrency: -1, Attempts: 5, Backoff: 100 * time.Millisecond, MaxBackoff: 100 * time.Millisecond, On: []domain.Outcome{domain.OutcomeError}}
	switch job {
	case "one":
		p.Concurrency = 1
	case "two":
		p.Concurrency = 2
	}
	return p
}

// Freeze implements dispatch.Executor.
func (w *worker) Freeze() func(context.Context, ledger.Run, ledger.Attempt) (ledger.Result, error) {
	return w.execute
}

func (w *worker) execute(ctx context.Context, run ledger.Run, a ledger.Attempt) (ledger.Result, error) {
	// Write on a connection without the fence, like the effects of tools. The server may be
	// unreachable for a moment.
	for tries := 0; ; tries++ {
		_, err := w.direct.ExecContext(ctx, `insert into work (run, attempt, worker) values ($1, $2, $3) on conflict (run, attempt) do update set worker = excluded.worker
			where work.worker = excluded.worker`, run.ID, a.Number, w.name)
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return ledger.Result{}, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}

	took := time.Duration(rand.IntN(40)) * time.Millisecond
	if run.Job == "long" {
		took = time.Duration(200+rand.IntN(1200)) * time.Millisecond
	}
	select {
	case <-ctx.Done():
		return ledger.Result{}, context.Cause(ctx)
	case <-time.After(took):
	}

	if run.Job == rowsJob {
		if err := w.writeRows(ctx, run); err != nil {
			return ledger.Result{}, err
		}
	}
	if run.Job == "retries" && a.Number == 1 {
		return ledger.Result{Outcome: domain.OutcomeError, Error: "flaky"}, nil
	}
	return ledger.Result{Outcome: domain.OutcomeSuccess, Exit: domain.ExitFinalResponse, Summary: fmt.Sprintf("attempt %d by %s", a.Number, w.name)}, nil
}

func beWorker(ctx context.Context, name, through, direct string) error {
	application := "&application_name=" + url.QueryEscape(fmt.Sprintf("%s/%d", name, os.Getpid()))
	db, err := sql.Open("pgx", through+application)
	if err != nil {
		return err
	}
	defer db.Close()
	own, err := sql.Open("pgx", direct+application)
	if err != nil {
		return err
	}
	defer own.Close()
	own.SetMaxOpenConns(4)
	db.SetMaxOpenConns(10)

	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	var l *ledger.Ledger
	var m *node.Membership
	for { // the server or the network may be unavailable for a moment
		if l, err = ledger.Open(ctx, ledger.Options{DB: db, Logger: log}); err == nil {
			m, err = l.Nodes.Join(ctx, node.Node{Name: name, Host: "here", PID: os.Getpid(), Triggers: true, Lanes: 8})
		}
		if err == nil {
			break
		}
		if l != nil {
			err = errors.Join(err, l.Close())
		}
		fmt.Fprintln(os.Stderr, "not joined:", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}

	pool, keeper, err := openHomes(ctx, l, name, log)
	if err != nil {
		return err
	}
	defer keeper.Close()
	defer pool.Close()
	jobs, err := pgxpool.New(ctx, through+application)
	if err != nil {
		return err
	}
	defer jobs.Close()
	d, err := dispatch.New(dispatch.Options{Ledger: l, Engine: river.New(river.Options{Ledger: l, Pool: jobs, Logger: log}), Executor: &worker{name: name, direct: own, pool: pool, keeper: keeper}, Runs: 8, RunsPerAgent: 100, Now: l.Now, Logger: log})
	if err != nil {
		return err
	}
	fmt.Println(m.Node().ID)
	if err := d.Run(ctx); err != nil {
		return err
	}
	return m.Leave(context.WithoutCancel(ctx))
}

// process is a worker in the view of its parent.
type process struct {
	name string
	node int64
	cmd  *exec.Cmd
	over chan struct{} // closed when it has ended
	dead atomic.Bool   // it was killed
}

func startProcess(t *testing.T, name, through, direct string) *process {
	program, err := os.Executable()
	if err != nil {
		t.Error(err)
		return nil
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^$")
	cmd.Env = append(os.Environ(), "ROUSE_TEST_WORKER="+name, "ROUSE_TEST_WORKER_LEDGER="+through, "ROUSE_TEST_WORKER_DIRECT="+direct)
	log, err := os.OpenFile(filepath.Join(logs(t), name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	p := &process{name: name, cmd: cmd, over: make(chan struct{})}
	line, err := bufio.NewReader(out).ReadString('\n')
	if p.node, _ = strconv.ParseInt(strings.TrimSpace(line), 10, 64); p.node == 0 {
		t.Errorf("the worker %s did not join: %v (see %s)", name, err, log.Name())
	}
	go func() {
		err := cmd.Wait()
		if exit, ok := errors.AsType[*exec.ExitError](err); !p.dead.Load() && (!ok || exit.ExitCode() != exitLost) && err != nil && t.Context().Err() == nil {
			t.Errorf("the worker %s ended: %v (see %s)", name, err, log.Name())
		}
		close(p.over)
	}()
	return p
}

// logs returns the folder for the logs of the workers. It is kept if the test fails.
func logs(t *testing.T) string {
	logsOnce.Do(func() {
		var err error
		if logsDir, err = os.MkdirTemp("", "rouse-workers"); err != nil { //nolint:usetesting // kept if the test fails
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if !t.Failed() {
				os.RemoveAll(logsDir)
			}
		})
	})
	return logsDir
}

var (
	logsOnce sync.Once
	logsDir  string
)

func (p *process) application() string { return fmt.Sprintf("%s/%d", p.name, p.cmd.Process.Pid) }

func (p *process) kill() {
	p.dead.Store(true)
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.over
}

func (p *process) freeze() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) } // as above
func (p *process) thaw()   { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// end ends a worker as if its service were stopped.
func (p *process) end(t *testing.T) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.over:
	case <-time.After(time.Minute):
		t.Errorf("the worker %s does not end", p.name)
		p.kill()
	}
}

// proxy simulates the network between a worker and its database.
type proxy struct {
	t      *testing.T
	target string
	listen net.Listener

	mu       sync.Mutex
	changed  chan struct{} // closed when a cut begins or ends
	up, down bool          // whether data of the worker and data of the database is cut off
	conns    map[net.Conn]bool
}

func (f *faultTest) newProxy() *proxy {
	at, err := url.Parse(f.url)
	if err != nil {
		f.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { l.Close() })
	p := &proxy{t: f.t, target: at.Host, listen: l, changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	go p.serve()
	return p
}

// url returns the database's URL through the proxy.
func (p *proxy) url(direct string) string {
	return strings.Replace(direct, p.target, p.listen.Addr().String(), 1)
}

func (p *proxy) serve() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			server, err := net.Dial("tcp", p.target)
			if err != nil {
				return // the server is unreachable
			}
			defer server.Close()
			p.mu.Lock()
			p.conns[client] = true
			p.mu.Unlock()
			defer func() {
				p.mu.Lock()
				delete(p.conns, client)
				p.mu.Unlock()
			}()

			over := make(chan struct{}, 2)
			go func() { p.copy(server, client, &p.up); over <- struct{}{} }()
			go func() { p.copy(client, server, &p.down); over <- struct{}{} }()
			<-over
		}()
	}
}

// copy forwards data in one direction and holds it back during a cut.
func (p *proxy) copy(to, from net.Conn, cut *bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		for n > 0 {
			p.mu.Lock()
			held, changed := *cut, p.changed
			p.mu.Unlock()
			if !held {
				break
			}
			<-changed
		}
		if _, e := to.Write(buffer[:n]); e != nil || err != nil {
			return
		}
	}
}

func (p *proxy) cut(up, down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up, p.down = up, down
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *proxy) heal() { p.cut(false, false) }

// drop closes all connections.
func (p *proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// postgresServer is a server that the test has started.
type postgresServer struct {
	url, bin, data string
	as             []string // command prefix that runs it as another user
	port           int
	mu             sync.Mutex
}

// startPostgres starts a server in its own folder. It logs the reason and returns nil if PostgreSQL
// is not available.
func startPostgres(t *testing.T) *postgresServer {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		t.Log("there is no initdb here: PostgreSQL is not restarted")
		return nil
	}
	s := &postgresServer{bin: filepath.Dir(found[len(found)-1])}
	if os.Getuid() == 0 {
		if _, err := exec.LookPath("runuser"); err != nil {
			t.Log("PostgreSQL does not run as root, and there is no runuser here: it is not restarted")
			return nil
		}
		s.as = []string{"runuser", "-u", "postgres", "--"}
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	l.Close()
	// Not t.TempDir, because the server's user cannot enter its parents.
	dir, err := os.MkdirTemp("", "rouse-postgres") //nolint:usetesting // as above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // for the minutes of a test
		t.Fatal(err)
	}
	s.data = filepath.Join(dir, "data")
	if out, err := s.run(t, "initdb", "-D", s.data, "-A", "trust", "-U", "rouse", "-N"); err != nil {
		t.Logf("initdb: %v\n%s", err, out)
		return nil
	}
	if err := s.start(t); err != nil {
		t.Logf("PostgreSQL does not start: %v", err)
		return nil
	}
	t.Cleanup(func() { _, _ = s.run(t, "pg_ctl", "-D", s.data, "-m", "immediate", "-w", "stop") })
	s.url = fmt.Sprintf("postgres://rouse@127.0.0.1:%d/postgres?sslmode=disable", s.port)
	return s
}

func (s *postgresServer) run(t *testing.T, name string, args ...string) ([]byte, error) {
	words := append(append([]string{}, s.as...), filepath.Join(s.bin, name))
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), words[0], append(words[1:], args...)...)
	cmd.Dir = "/"
	return cmd.CombinedOutput()
}

func (s *postgresServer) start(t *testing.T) error {
	// pg_ctl passes its output to the server, and Wait would wait for it. The output goes to the
	// log instead.
	_, err := s.run(t, "pg_ctl", "-D", s.data, "-w", "-l", s.data+"/log", "-o", fmt.Sprintf("-c listen_addresses=127.0.0.1 -p %d -k %s", s.port, s.data), "start")
	return err
}

// restart stops the server as a crash would, and starts it again.
func (s *postgresServer) restart(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if out, err := s.run(t, "pg_ctl", "-D", s.data, "-m", "immediate", "-w", "stop"); err != nil {
		t.Errorf("PostgreSQL does not stop: %v\n%s", err, out)
	}
	if err := s.start(t); err != nil {
		t.Errorf("PostgreSQL does not start again: %v", err)
	}
}
