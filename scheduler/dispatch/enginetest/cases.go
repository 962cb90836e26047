package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/node"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/record"
	"rouse/scheduler/dispatch"
)

// once checks that each run is executed once, on any node, and that the lanes of jobs and agents
// apply to all nodes together. Every node gets work, because the job "many" has more runs than two
// nodes have lanes.
func once(c *cluster) {
	c.lanes, c.perAgent = 12, 50
	taken := newCounter()
	var mu sync.Mutex
	done, by := map[int64]int{}, map[string]int{}
	all := make(chan struct{}) // closed when each node has work
	c.policy = func(job string) dispatch.Policy {
		return dispatch.Policy{Resume: true, Concurrency: map[string]int{"one": 1, "two": 2, "many": -1}[job]}
	}
	c.execute = func(ctx context.Context, node string, run ledger.Run) ledger.Result {
		taken.add(1, run.Job, run.Agent)
		defer taken.add(-1, run.Job, run.Agent)
		mu.Lock()
		done[run.ID]++
		if by[node]++; by[node] == 1 && len(by) == c.Engine.nodes {
			close(all)
		}
		mu.Unlock()

		if run.Job == "many" {
			select {
			case <-all: // no node executes all of them
			case <-ctx.Done():
			}
		}
		return success("")
	}

	c.start()
	var ids []int64
	for i := range 150 {
		job, agent := []string{"one", "two", "many"}[i%3], fmt.Sprint("agent", i%9)
		if job == "many" {
			agent = "" // without an agent, the run can go to any node
		}
		ids = append(ids, c.enqueue(agent, job))
	}
	c.untilIdle()

	for _, id := range ids {
		if r := c.run(id); r.Outcome != domain.OutcomeSuccess || r.Attempt != 1 || done[id] != 1 {
			c.t.Errorf("run %d: %s, attempt %d, done %d times", id, r.Outcome, r.Attempt, done[id])
		}
	}
	for name, most := range map[string]int{"one": 1, "two": 2} {
		if taken.most[name] > most {
			c.t.Errorf("%d runs of %s were on at once", taken.most[name], name)
		}
	}
}

// inOrder starts runs that share a lane and checks that they begin in the order of their
// acceptance.
func inOrder(c *cluster, name func(i int) (agent, job string), lane func(ledger.Run) string) {
	var mu sync.Mutex
	begun, taken := map[string][]int64{}, newCounter()
	c.execute = func(_ context.Context, _ string, run ledger.Run) ledger.Result {
		taken.add(1, lane(run))
		defer taken.add(-1, lane(run))
		mu.Lock()
		defer mu.Unlock()
		begun[lane(run)] = append(begun[lane(run)], run.ID)
		return success("")
	}

	c.start()
	for i := range 120 {
		c.enqueue(name(i))
	}
	c.untilIdle()

	for name, ids := range begun {
		if !slices.IsSorted(ids) {
			c.t.Errorf("the runs of %s began in the order %v", name, ids)
		}
		if taken.most[name] > 1 {
			c.t.Errorf("%d runs of %s were on at once", taken.most[name], name)
		}
	}
}

// order checks that runs of a job with one lane begin in the order of their acceptance.
func order(c *cluster) {
	inOrder(c, func(i int) (string, string) { return "", fmt.Sprint("job", i%3) }, func(r ledger.Run) string { return r.Job })
}

// agentOrder checks that runs of an agent with one lane begin in the order of their acceptance,
// also if their jobs differ.
func agentOrder(c *cluster) {
	c.perAgent, c.policy = 1, unlimited
	inOrder(c, func(i int) (string, string) { return fmt.Sprint("agent", i%3), fmt.Sprint("job", i%5) }, func(r ledger.Run) string { return r.Agent })
}

// daemonLanes checks that a node runs no more runs at once than it has lanes. Further runs wait.
func daemonLanes(c *cluster) {
	c.lanes, c.perAgent, c.policy = 2, 100, unlimited
	on := newCounter()
	c.execute = func(_ context.Context, node string, _ ledger.Run) ledger.Result {
		on.add(1, node)
		time.Sleep(2 * time.Millisecond) // gives further runs time to begin
		on.add(-1, node)
		return success("")
	}

	for i := range 40 {
		c.enqueue("", fmt.Sprint("job", i))
	}
	c.start()
	c.untilIdle()
	for node, most := range on.most {
		if most > 2 {
			c.t.Errorf("%s did %d runs at once in two lanes", node, most)
		}
	}
}

// deadline checks that a run which has waited too long is skipped without a start.
func deadline(c *cluster) {
	c.policy = func(job string) dispatch.Policy {
		if job == "soon" {
			return dispatch.Policy{StartDeadline: time.Millisecond}
		}
		return dispatch.Policy{StartDeadline: time.Hour}
	}
	soon, later := c.enqueue("", "soon"), c.enqueue("", "later")
	c.until("the end of the deadline", func() bool { return time.Since(c.run(soon).QueuedAt) > 300*time.Millisecond })
	c.start()
	if r := c.untilFinished(soon); r.Outcome != domain.OutcomeSkipped || r.Attempt != 0 || !r.StartedAt.IsZero() {
		c.t.Errorf("%+v", r)
	}
	if r := c.untilFinished(later); r.Outcome != domain.OutcomeSuccess {
		c.t.Errorf("%+v", r)
	}
}

// cancelled checks that a request to any node cancels a run, regardless of the run's node and of
// the executor's result. A queued run never begins.
func cancelled(c *cluster) {
	started := make(chan string, 10)
	c.execute = func(ctx context.Context, node string, _ ledger.Run) ledger.Result {
		started <- node
		return untilStopped(ctx)
	}
	c.start()
	running, queued := c.enqueue("", "job"), c.enqueue("", "job")
	at := c.other(<-started)

	for _, id := range []int64{queued, running} {
		asked := time.Now()
		if _, err := at.l.RequestCancel(c.t.Context(), id, "enough"); err != nil {
			c.t.Fatal(err)
		}
		r := c.untilFinished(id)
		c.t.Logf("run %d was cancelled after %s", id, time.Since(asked).Round(time.Millisecond))
		if r.Outcome != domain.OutcomeCancelled || r.Error != "enough" || (r.Attempt == 0) != (id == queued) {
			c.t.Errorf("%+v", r)
		}
	}
}

// paused checks that runs of a paused job wait on all nodes while other runs do not. The end of the
// pause starts them.
func paused(c *cluster) {
	c.start()
	pause := pause.Pause{Scope: pause.Job, Name: "held"}
	if _, err := c.nodes[0].l.Pauses.Set(c.t.Context(), pause); err != nil {
		c.t.Fatal(err)
	}

	var held []int64
	for i := range 6 {
		held = append(held, c.accept(ledger.Request{Key: fmt.Sprint("schedule/held/", i), Job: "held", Trigger: domain.TriggerSchedule}))
	}
	for range 6 {
		c.untilFinished(c.enqueue("", "free"))
	}
	for _, id := range held {
		if r := c.run(id); r.State != domain.StateQueued {
			c.t.Errorf("in the pause: %+v", r)
		}
	}

	if _, err := c.other(c.nodes[0].name).l.Pauses.End(c.t.Context(), pause.Scope, pause.Name); err != nil {
		c.t.Fatal(err)
	}
	for _, id := range held {
		if r := c.untilFinished(id); r.Outcome != domain.OutcomeSuccess {
			c.t.Errorf("after the pause: %+v", r)
		}
	}
}

// answers checks that a run which waits for an answer takes no lane. It continues with the answer,
// which any node may receive.
func answers(c *cluster) {
	c.lanes = 1
	c.execute = func(_ context.Context, _ string, run ledger.Run) ledger.Result {
		if run.Job == "asks" && run.Attempt == 1 {
			return ledger.Result{Wait: &inbox.Question{Title: "q", Message: "Go on?"}}
		}
		return success("")
	}
	c.start()
	id := c.enqueue("", "asks")
	c.until("the question", func() bool { return c.run(id).WaitsForPerson() })
	if r := c.untilFinished(c.enqueue("", "other")); r.Outcome != domain.OutcomeSuccess {
		c.t.Errorf("%+v", r)
	}

	items, err := c.l.Inbox.List(c.t.Context())
	if err != nil || len(items) != 1 {
		c.t.Fatal(items, err)
	}
	made, err := c.l.Nodes.OfAttempts(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.other(made[1]).l.Answer(c.t.Context(), items[0].ID, "yes"); err != nil {
		c.t.Fatal(err)
	}
	if r := c.untilFinished(id); r.Outcome != domain.OutcomeSuccess || r.Attempt != 2 || r.Parks != 1 {
		c.t.Errorf("%+v", r)
	}
}

// late checks that the result of an attempt that has ended changes nothing.
func late(c *cluster) {
	started, hold := make(chan struct{}), make(chan struct{})
	c.execute = func(_ context.Context, _ string, run ledger.Run) ledger.Result {
		if run.Attempt == 1 {
			close(started)
			<-hold
			return success("late")
		}
		return success("second")
	}
	c.start()
	id := c.enqueue("", "job")
	<-started
	if err := c.l.Interrupt(c.t.Context(), ledger.Attempt{Run: id, Number: 1}, "a test", nil); err != nil {
		c.t.Fatal(err)
	}

	if c.Engine.nodes > 1 { // a single node waits for its own attempt
		c.until("the second attempt", func() bool { return c.run(id).Attempt == 2 })
	}
	close(hold)
	if r := c.untilFinished(id); r.Summary != "second" || r.Attempt != 2 || r.Interruptions != 1 {
		c.t.Errorf("%+v", r)
	}
	attempts, err := c.l.Runs.Attempts(c.t.Context(), id)
	if err != nil || len(attempts) != 2 || attempts[0].State != domain.AttemptInterrupted || attempts[1].State != domain.AttemptDone {
		c.t.Errorf("%+v (%v)", attempts, err)
	}
}

// restart checks that a run that does not end within the drain period continues after a restart, up
// to its last interruption. Queued runs stay queued.
func restart(c *cluster) {
	c.drain = time.Nanosecond
	started := make(chan int, 10)
	c.execute = func(ctx context.Context, _ string, run ledger.Run) ledger.Result {
		if run.Job == "short" {
			return success("")
		}
		started <- run.Attempt
		return untilStopped(ctx)
	}
	c.start()
	id := c.enqueue("", "job")
	next := c.enqueue("", "job")
	for attempt := 1; attempt <= 4; attempt++ {
		if got := <-started; got != attempt {
			c.t.Fatalf("attempt %d, want %d", got, attempt)
		}
		if r := c.run(next); r.State != domain.StateQueued {
			c.t.Errorf("the one behind it: %+v", r)
		}
		c.reopen()
	}

	if r := c.untilFinished(id); r.Outcome != domain.OutcomeInterrupted || r.Interruptions != 4 || r.Attempt != 4 {
		c.t.Errorf("%+v", r)
	}
	<-started // the next run
	if _, err := c.nodes[0].l.RequestCancel(c.t.Context(), next, "enough"); err != nil {
		c.t.Fatal(err)
	}
	c.untilFinished(next)
}

// leftRunning checks that the attempts of a dead process are ended, and that their runs continue or
// end according to their jobs.
func leftRunning(c *cluster) {
	c.policy = func(job string) dispatch.Policy { return dispatch.Policy{Resume: job == "resumes"} }
	l := c.prepare()
	resumes, stays := c.enqueue("", "resumes"), c.enqueue("", "stays")
	for _, id := range []int64{resumes, stays} {
		if _, _, err := l.StartAttempt(c.t.Context(), id); err != nil {
			c.t.Fatal(err)
		}
	}

	c.start()
	if r := c.untilFinished(resumes); r.Outcome != domain.OutcomeSuccess || r.Attempt != 2 || r.Interruptions != 1 {
		c.t.Errorf("%+v", r)
	}
	if r := c.untilFinished(stays); r.Outcome != domain.OutcomeInterrupted || r.Attempt != 1 {
		c.t.Errorf("%+v", r)
	}
}

// lost checks that another node executes the runs of a node that was declared dead, and that the
// lost node can no longer write.
func lost(c *cluster) {
	if c.Engine.nodes < 2 {
		c.t.Skip("there is no other node")
	}
	started, hold := make(chan string, 10), make(chan struct{})
	c.execute = func(_ context.Context, node string, run ledger.Run) ledger.Result {
		started <- node
		if run.Attempt == 1 {
			<-hold
		}
		return success(node)
	}
	c.start()
	id := c.enqueue("", "job")
	first := <-started
	var frozen *clusterNode
	for _, n := range c.nodes {
		if n.name == first {
			frozen = n
		}
	}

	// Mark the node as gone, as the other nodes do if a frozen node does not renew its lease.
	begun := time.Now()
	for _, statement := range []string{`update nodes set gone_at = 1, why = 'a test' where name = '` + first + `'`, `select pg_notify('rouse_' || 'nodes'::regclass::oid, '')`} {
		if _, err := c.db.ExecContext(c.t.Context(), statement); err != nil {
			c.t.Fatal(err)
		}
	}
	second := <-started
	c.t.Logf("it went on after %s", time.Since(begun).Round(time.Millisecond))
	if second == first {
		c.t.Errorf("the run went on at %s", second)
	}
	close(hold)

	if err := <-frozen.over; !errors.Is(err, ledger.ErrLeaseLost) {
		c.t.Errorf("the lost node ended with %v", err)
	}
	frozen.over <- nil
	if _, err := frozen.l.Enqueue(c.t.Context(), ledger.Request{Job: "late", Trigger: domain.TriggerManual}); !errors.Is(err, ledger.ErrLeaseLost) {
		c.t.Errorf("a lost node writes: %v", err)
	}
	if r := c.untilFinished(id); r.Outcome != domain.OutcomeSuccess || r.Summary != second || r.Attempt != 2 || r.Interruptions != 1 {
		c.t.Errorf("%+v", r)
	}
	made, err := c.l.Nodes.OfAttempts(c.t.Context(), id)
	if err != nil || made[1] != first || made[2] != second {
		c.t.Errorf("%v (%v)", made, err)
	}
}

// names checks that only one node with a given name can join.
func names(c *cluster) {
	if !c.shared {
		c.t.Skip("there are no nodes")
	}
	join := func() (*node.Membership, error) {
		return c.open().Nodes.Join(c.t.Context(), node.Node{Name: "north", Host: "here", PID: 1, Triggers: true})
	}
	first, err := join()
	if err != nil {
		c.t.Fatal(err)
	}
	taken, ok := errors.AsType[*node.NameTakenError](func() error { _, err := join(); return err }())
	if !ok || taken.Other.ID != first.Node().ID {
		c.t.Errorf("%v", taken)
	}
	if err := first.Leave(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	again, err := join()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := again.Leave(c.t.Context()); err != nil {
		c.t.Error(err)
	}
}

// leads checks that one node leads, and that another one takes over at once when it ends.
func leads(c *cluster) {
	c.start()
	leader := func() *clusterNode {
		var found *clusterNode
		c.until("that one leads", func() bool {
			found = nil
			for _, n := range c.nodes {
				lead, err := n.l.Nodes.Lead(c.t.Context())
				if err != nil {
					c.t.Fatal(err)
				}
				if lead && found != nil {
					c.t.Errorf("%s leads, and so does %s", found.name, n.name)
				}
				if lead {
					found = n
				}
			}
			return found != nil
		})
		return found
	}
	for len(c.nodes) > 1 {
		first := leader()
		c.nodes = slices.DeleteFunc(c.nodes, func(n *clusterNode) bool { return n == first })
		first.end()
		if err := errors.Join(<-first.over, first.m.Leave(c.t.Context())); err != nil {
			c.t.Error(err)
		}
		begun := time.Now()
		leader()
		c.t.Logf("another one leads after %s", time.Since(begun).Round(time.Millisecond))
	}
	leader()
}

// placement checks that the runs of a job with a configured node run only on that node, and wait
// while it is missing.
func placement(c *cluster) {
	if c.Engine.nodes < 2 {
		c.t.Skip("there is no other node")
	}
	c.policy = func(job string) dispatch.Policy {
		p := unlimited(job)
		if job == "there" {
			p.Node = "node9"
		}
		return p
	}
	c.execute = func(_ context.Context, node string, _ ledger.Run) ledger.Result { return success(node) }
	c.start()
	there := c.enqueue("", "there")
	for range 6 {
		c.untilFinished(c.enqueue("", "anywhere"))
	}
	if r := c.run(there); r.State != domain.StateQueued {
		c.t.Errorf("without its node: %+v", r)
	}

	c.startNode("node9")
	for _, id := range []int64{there, c.enqueue("", "there")} {
		if r := c.untilFinished(id); r.Summary != "node9" {
			c.t.Errorf("%+v", r)
		}
	}
}

// leaves checks that no run is lost when a node leaves, and that the other nodes go on.
func leaves(c *cluster) {
	if c.Engine.nodes < 2 {
		c.t.Skip("there is no other node")
	}
	c.policy = unlimited
	c.start()
	var ids []int64
	for i := range 60 {
		ids = append(ids, c.enqueue("", fmt.Sprint("job", i%4)))
		if i == 20 {
			gone := c.nodes[0]
			c.nodes = c.nodes[1:]
			gone.end()
			if err := <-gone.over; err != nil {
				c.t.Error(err)
			}
			if err := gone.m.Leave(c.t.Context()); err != nil {
				c.t.Error(err)
			}
		}
	}
	for _, id := range ids {
		if r := c.untilFinished(id); r.Outcome != domain.OutcomeSuccess || r.Attempt != 1 {
			c.t.Errorf("%+v", r)
		}
	}
}

// moves checks that the runs of an agent stay on the node that has the agent's database while that
// node is free. If it is busy or gone, another node executes the runs, and later runs stay there.
// Runs wait for a node that has the only copy of the agent's files.
func moves(c *cluster) {
	if c.Engine.nodes < 2 {
		c.t.Skip("there is no other node")
	}
	hold := make(chan struct{})
	c.lanes, c.perAgent = 1, 1
	c.execute = func(_ context.Context, node string, run ledger.Run) ledger.Result {
		if run.Job == "busy" {
			<-hold
		}
		return success(node)
	}
	c.start()
	home := c.untilFinished(c.enqueue("clerk", "job")).Summary
	for range 5 {
		if r := c.untilFinished(c.enqueue("clerk", "job")); r.Summary != home {
			c.t.Errorf("the agent of %s was taken by %s, though that was free", home, r.Summary)
		}
	}

	c.policy = func(job string) dispatch.Policy {
		p := unlimited(job)
		if job == "busy" {
			p.Node = home
		}
		return p
	}
	busy := c.enqueue("", "busy")
	c.until("its node is busy", func() bool { return c.run(busy).State == domain.StateRunning })
	moved := c.untilFinished(c.enqueue("clerk", "job"))
	if moved.Summary == home {
		c.t.Errorf("%s did two runs at once in one lane", home)
	}
	if waited := moved.StartedAt.Sub(moved.QueuedAt); waited < 4*time.Second {
		c.t.Errorf("the agent moved after %s", waited)
	}
	close(hold)
	c.untilFinished(busy)
	for range 3 {
		if r := c.untilFinished(c.enqueue("clerk", "job")); r.Summary != moved.Summary {
			c.t.Errorf("the agent went back from %s to %s", moved.Summary, r.Summary)
		}
	}

	if _, err := c.db.ExecContext(c.t.Context(), `insert into agent_homes (agent, node, since, kept) values ('files', 'node9', 0, 0), ('comes', 'node9', 0, 1)`); err != nil {
		c.t.Fatal(err)
	}
	waits := c.enqueue("files", "job")
	c.untilFinished(c.enqueue("comes", "job")) // its node is missing, so the run does not wait for it
	if r := c.run(waits); r.State != domain.StateQueued {
		c.t.Errorf("without the node that alone has its files: %+v", r)
	}
	c.startNode("node9")
	if r := c.untilFinished(waits); r.Summary != "node9" {
		c.t.Errorf("%+v", r)
	}
}

// obstacles checks that a run with an obstacle on one node is executed on another node. If no node
// can start the run, it waits without an attempt, its reason is recorded, and other runs continue.
// The run starts when the obstacle is gone.
func obstacles(c *cluster) {
	c.perAgent = 1
	var gone atomic.Bool
	c.obstacles = func(node string, run ledger.Run) []ledger.Obstacle {
		if run.Job == "picky" && node == "node1" && c.Engine.nodes > 1 || run.Job == "blocked" && !gone.Load() {
			return []ledger.Obstacle{{Kind: "secret", Source: "secret/key", Text: "the secret key is missing"}}
		}
		return nil
	}
	c.execute = func(_ context.Context, node string, _ ledger.Run) ledger.Result { return success(node) }
	c.start()
	for range 4 {
		if r := c.untilFinished(c.enqueue("", "picky")); c.Engine.nodes > 1 && r.Summary == "node1" {
			c.t.Errorf("it was done where something is in its way: %+v", r)
		}
	}

	blocked := c.enqueue("clerk", "blocked")
	c.until("that the run is blocked", func() bool { return c.run(blocked).Blocked.Now() })
	for range 3 {
		c.untilFinished(c.enqueue("clerk", "other"))
	}
	if r := c.run(blocked); r.State != domain.StateQueued || r.Attempt != 0 || record.ObstaclesText(r.Blocked.By) != "secret: the secret key is missing" {
		c.t.Errorf("%+v", r)
	}
	gone.Store(true)
	c.nodes[0].d.Reconsider() // as a daemon does after receiving the secret
	if r := c.untilFinished(blocked); r.Outcome != domain.OutcomeSuccess || r.Attempt != 1 {
		c.t.Errorf("%+v", r)
	}
}

// stranded checks that River jobs of missing nodes, and jobs that a person changed in River, do not
// stop or repeat a run.
func stranded(c *cluster) {
	if !c.shared {
		c.t.Skip("there are no nodes")
	}
	id := c.enqueue("clerk", "job")
	for _, state := range []string{"'available', null, '{}'", "'running', now(), '{lost/1}'"} {
		_, err := c.db.ExecContext(c.t.Context(), `insert into river_job (kind, queue, max_attempts, args, unique_key, unique_states, state, attempted_at, attempted_by)
			values ('run', 'node_gone', 1, jsonb_build_object('run', $1::bigint), $2, B'11111111', `+state+`)`, id, []byte(state))
		if err != nil {
			c.t.Fatal(err)
		}
	}
	c.start()
	if r := c.untilFinished(id); r.Outcome != domain.OutcomeSuccess || r.Attempt != 1 {
		c.t.Errorf("%+v", r)
	}

	// Retry the job in River by hand.
	if _, err := c.db.ExecContext(c.t.Context(), `update river_job set state = 'available', finalized_at = null, max_attempts = 2 where state = 'completed'`); err != nil {
		c.t.Fatal(err)
	}
	c.until("that nothing is left in River", func() bool {
		jobs, err := c.l.Nodes.RiverJobs(c.t.Context())
		return err == nil && len(jobs) == 0
	})
	if r := c.run(id); r.Attempt != 1 {
		c.t.Errorf("done again: %+v", r)
	}
}
