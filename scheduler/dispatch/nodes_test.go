package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"rouse/agentdb/ledger"
	"rouse/agentdb/ledger/ledgertest"
	"rouse/internal/domain"
	"rouse/scheduler/dispatch"
)

// node is a dispatcher that works on a ledger together with others, as a process of its own would.
type node struct {
	name string
	l    *ledger.Ledger
	m    *ledger.Membership
	over chan error
	stop context.CancelFunc
}

// join starts a node; its executor is told which one it is.
func join(t *testing.T, url, name string, policy func(job string) dispatch.Policy, execute func(ctx context.Context, node string, run ledger.Run) ledger.Result) *node {
	t.Helper()
	n := &node{name: name, l: ledgertest.OpenOn(t, url), over: make(chan error, 1)}
	var err error
	if n.m, err = n.l.Join(t.Context(), ledger.Node{Name: name, Host: "here", Triggers: true, Work: true}); err != nil {
		t.Fatal(err)
	}

	e := &executor{policy: policy, ExecutorFunc: func(ctx context.Context, run ledger.Run, _ ledger.Attempt) (ledger.Result, error) {
		return execute(ctx, name, run), nil
	}}
	d, err := dispatch.New(dispatch.Options{Ledger: n.l, Executor: e, Runs: 8, RunsPerAgent: 4, Now: n.l.Now})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	n.stop = stop
	go func() { n.over <- d.Run(ctx) }()
	t.Cleanup(func() { n.leave(t) })
	return n
}

// leave ends a node as a daemon ends.
func (n *node) leave(t *testing.T) {
	if n.stop == nil {
		return
	}
	n.stop()
	n.stop = nil
	if err := <-n.over; err != nil && !errors.Is(err, ledger.ErrLeaseLost) {
		t.Error(err)
	}
	if err := n.m.Leave(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

func until(t *testing.T, l *ledger.Ledger, what string, done func() bool) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		changed := l.Changed()
		if done() {
			return
		}
		select {
		case <-changed:
		case <-time.After(50 * time.Millisecond):
		case <-late:
			t.Fatalf("%s did not happen", what)
		}
	}
}

func runOf(t *testing.T, l *ledger.Ledger, id int64) ledger.Run {
	t.Helper()
	r, err := l.Run(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lanesTaken counts what is on, and the most that was.
type lanesTaken struct {
	mu       sync.Mutex
	now, max map[string]int
}

func (c *lanesTaken) add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[name] += n
	c.max[name] = max(c.max[name], c.now[name])
}

// Each run is done once, whichever node takes it; lanes of jobs and agents hold over all nodes, and all nodes have work.
func TestNodesShareTheWork(t *testing.T) {
	t.Parallel()
	url, _ := ledgertest.Postgres(t)
	taken := &lanesTaken{now: map[string]int{}, max: map[string]int{}}
	var mu sync.Mutex
	done, by := map[int64]int{}, map[string]int{}
	execute := func(_ context.Context, node string, run ledger.Run) ledger.Result {
		taken.add(run.Job, 1)
		taken.add(run.Agent, 1)
		time.Sleep(time.Millisecond) // so that runs are on at the same time
		taken.add(run.Job, -1)
		taken.add(run.Agent, -1)
		mu.Lock()
		defer mu.Unlock()
		done[run.ID]++
		by[node]++
		return success
	}
	policy := func(job string) dispatch.Policy {
		return dispatch.Policy{Resume: true, Concurrency: map[string]int{"one": 1, "two": 2, "many": -1}[job]}
	}

	var nodes []*node
	for _, name := range []string{"north", "south", "west"} {
		nodes = append(nodes, join(t, url, name, policy, execute))
	}
	l := nodes[0].l
	var ids []int64
	for i := range 300 {
		ids = append(ids, enqueue(t, l, fmt.Sprint("agent", i%9), []string{"one", "two", "many"}[i%3]))
	}
	until(t, l, "the end of all runs", func() bool {
		left, err := l.Unfinished(t.Context())
		return err == nil && len(left) == 0
	})

	for _, id := range ids {
		if r := runOf(t, l, id); r.Outcome != domain.OutcomeSuccess || r.Attempt != 1 || done[id] != 1 {
			t.Errorf("run %d: %s, attempt %d, done %d times", id, r.Outcome, r.Attempt, done[id])
		}
	}
	for name, most := range map[string]int{"one": 1, "two": 2, "agent0": 4} {
		if taken.max[name] > most {
			t.Errorf("%d runs of %s were on at once", taken.max[name], name)
		}
	}
	if len(by) != 3 {
		t.Errorf("only some nodes worked: %v", by)
	}
	ledgertest.Audited(t, l)
}

// What is asked of one node reaches the one that does the run.
func TestNodesHearOfEachOther(t *testing.T) {
	t.Parallel()
	url, _ := ledgertest.Postgres(t)
	started := make(chan string, 10)
	execute := func(ctx context.Context, node string, run ledger.Run) ledger.Result {
		if run.Job == "asks" && run.Attempt == 1 {
			return ledger.Result{Wait: &ledger.Question{Title: "q", Message: "Go on?"}}
		}
		if run.Job == "asks" {
			return success
		}
		started <- node
		<-ctx.Done()
		return ledger.Result{Outcome: domain.OutcomeError, Error: "it ended"}
	}
	north, south := join(t, url, "north", nil, execute), join(t, url, "south", nil, execute)
	names := map[string]*node{"north": south, "south": north} // the other one

	id := enqueue(t, north.l, "a", "long")
	other := names[<-started]
	asked := time.Now()
	if _, err := other.l.RequestCancel(t.Context(), id, "enough"); err != nil {
		t.Fatal(err)
	}
	until(t, other.l, "the end of the cancelled run", func() bool { return runOf(t, other.l, id).State == domain.StateFinished })
	if r := runOf(t, other.l, id); r.Outcome != domain.OutcomeCancelled || r.Error != "enough" {
		t.Errorf("%+v", r)
	}
	t.Logf("cancelled across nodes after %s", time.Since(asked))

	// An answer, a pause and its end.
	id = enqueue(t, south.l, "a", "asks")
	until(t, north.l, "the question", func() bool { return runOf(t, north.l, id).WaitsForPerson() })
	items, err := north.l.Inbox(t.Context())
	if err != nil || len(items) != 1 {
		t.Fatal(items, err)
	}
	if _, err := other.l.Answer(t.Context(), items[0].ID, "yes"); err != nil {
		t.Fatal(err)
	}
	until(t, north.l, "the end of the answered run", func() bool { return runOf(t, north.l, id).Outcome == domain.OutcomeSuccess })
}

// A node that is gone without a word has its runs done by another one. One that the others have taken for dead writes
// nothing any more.
func TestNodeIsLost(t *testing.T) {
	t.Parallel()
	url, schema := ledgertest.Postgres(t)
	started := make(chan string, 10)
	hold := make(chan struct{})
	execute := func(ctx context.Context, node string, run ledger.Run) ledger.Result {
		started <- node
		if run.Attempt == 1 {
			<-hold
		}
		return ledger.Result{Outcome: domain.OutcomeSuccess, Summary: node}
	}
	nodes := map[string]*node{"north": join(t, url, "north", nil, execute), "south": join(t, url, "south", nil, execute)}
	id := enqueue(t, nodes["north"].l, "", "job")
	first := <-started
	lost := nodes[first]
	delete(nodes, first)
	var other *node
	for _, n := range nodes {
		other = n
	}

	// As the others see a node that is frozen: nobody renews its lease.
	admin := ledgertest.OpenPostgres(t, url)
	if _, err := admin.ExecContext(t.Context(), `update nodes set gone_at = 1, why = 'a test' where name = $1`, first); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.ExecContext(t.Context(), `select pg_notify('rouse_' || 'nodes'::regclass::oid, '')`); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if second := <-started; second != other.name {
		t.Errorf("the run went on at %s", second)
	}
	t.Logf("rescued after %s (%s)", time.Since(begun), schema)
	close(hold)

	if err := <-lost.over; !errors.Is(err, ledger.ErrLeaseLost) {
		t.Errorf("the lost node ended with %v", err)
	}
	lost.over <- nil
	if _, err := lost.l.Enqueue(t.Context(), ledger.Request{Job: "late", Agent: "a", Trigger: domain.TriggerManual}); !errors.Is(err, ledger.ErrLeaseLost) {
		t.Errorf("a lost node writes: %v", err)
	}
	until(t, other.l, "the end of the run", func() bool { return runOf(t, other.l, id).State == domain.StateFinished })
	r := runOf(t, other.l, id)
	if r.Outcome != domain.OutcomeSuccess || r.Summary != other.name || r.Attempt != 2 || r.Interruptions != 1 {
		t.Errorf("%+v", r)
	}
	made, err := other.l.AttemptNodes(t.Context(), id)
	if err != nil || made[1] != first || made[2] != other.name {
		t.Errorf("%v (%v)", made, err)
	}
}

// One node of a name is at work; one that is dead is succeeded at once, and does not lead any more.
func TestNodeNames(t *testing.T) {
	t.Parallel()
	url, _ := ledgertest.Postgres(t)
	one, two, three := ledgertest.OpenOn(t, url), ledgertest.OpenOn(t, url), ledgertest.OpenOn(t, url)
	n := ledger.Node{Name: "north", Host: "here", PID: 1, Triggers: true}
	first, err := one.Join(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	taken, ok := errors.AsType[*ledger.NameTakenError](func() error { _, err := two.Join(t.Context(), n); return err }())
	if !ok || taken.Other.ID != first.Node().ID {
		t.Errorf("%v", taken)
	}

	n.Name = "south"
	second, err := three.Join(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	leads := func(l *ledger.Ledger, want bool) {
		t.Helper()
		if got, err := l.Lead(t.Context()); err != nil || got != want {
			t.Errorf("it leads: %v (%v), want %v", got, err, want)
		}
	}
	leads(one, true)
	leads(three, false)
	if err := first.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	leads(three, true)
	if err := second.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
}
