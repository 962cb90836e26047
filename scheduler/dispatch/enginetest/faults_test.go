//go:build unix

package enginetest_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/ledgertest"
)

// record makes PostgreSQL record the state changes of runs and the processes that made them, in an
// order in which no lane is free too early. It also records each write of a node that was declared
// dead.
const record = `
	create table work (run bigint, attempt bigint, worker text not null, begun_at timestamptz not null default clock_timestamp(), primary key (run, attempt));
	create table told (run bigint, n bigint, worker text not null, primary key (run, n));
	create table history (seq bigint generated always as identity, run bigint not null, job text not null, attempt bigint not null, state text not null, worker text not null);
	create table trespass (worker text not null, what text not null, at timestamptz not null default clock_timestamp());
	create function app() returns text language sql as $$ select current_setting('application_name') $$;
	create function told() returns trigger language plpgsql as $$ begin
		if old.state is distinct from new.state or old.attempt is distinct from new.attempt then
			insert into history (run, job, attempt, state, worker) values (new.id, new.job, new.attempt, new.state, app());
		end if;
		return new;
	end $$;
	create trigger told after update on runs for each row execute function told();
	create function fenced() returns trigger language plpgsql as $$ begin
		insert into trespass (worker, what) select app(), tg_table_name from nodes where name || '/' || pid = app() and gone_at <> 0;
		return null;
	end $$;
	create trigger fenced_runs after insert or update on runs for each statement execute function fenced();
	create trigger fenced_attempts after insert or update on attempts for each statement execute function fenced();
	create trigger fenced_events after insert on events for each statement execute function fenced();`

// faultTest holds three processes that use one ledger, and the faults that hit them.
type faultTest struct {
	t        *testing.T
	server   *postgresServer // nil if the test did not start the server
	url      string
	db       *sql.DB
	l        *ledger.Ledger // ledger of the process that requests runs
	feed     chan struct{}  // closed when no more runs are requested
	left     chan string    // kinds of the remaining faults
	mu       sync.Mutex
	accepted map[string]int64 // runs by request
	hits     []hit
	healthy  map[string]time.Time // time since which a worker is healthy, by its slot
	hurt     map[string]time.Time // time of its last fault
}

// hit is a fault that ended a worker's lease, or should have.
type hit struct {
	kind, slot string
	node       int64
	at         time.Time
	leads      bool
	others     []string // slots that were healthy at that time
}

// The kinds of faults and their percentages. A restart of PostgreSQL hits all workers.
var kinds = []struct {
	name string
	of   int
}{{"kill", 46}, {"terminate", 24}, {"short cut", 9}, {"one-way cut", 9}, {"long cut", 3}, {"freeze", 4}, {"terminate all", 4}, {"restart", 1}}

// TestFaults kills, freezes and disconnects processes that share a ledger, and restarts its
// database, while they work. It checks that each accepted run has one outcome, that no run has two
// attempts at once, and that a node without its lease writes no data.
func TestFaults(t *testing.T) {
	if os.Getenv("ROUSE_TEST_POSTGRES") == "" {
		t.Skip("ROUSE_TEST_POSTGRES is not set; .ci/run sets it")
	}
	faults := 40
	if text := os.Getenv("ROUSE_TEST_FAULTS"); text != "" {
		if _, err := fmt.Sscan(text, &faults); err != nil {
			t.Fatalf("ROUSE_TEST_FAULTS=%q: %v", text, err)
		}
	}

	f := &faultTest{t: t, feed: make(chan struct{}), left: make(chan string, faults), accepted: map[string]int64{}, healthy: map[string]time.Time{}, hurt: map[string]time.Time{}}
	if f.server = startPostgres(t); f.server != nil {
		f.url = f.server.url
	} else {
		f.url, _ = ledgertest.Postgres(t)
	}
	f.l, f.db = ledgertest.OpenOn(t, f.url), ledgertest.OpenPostgres(t, f.url)
	if _, err := f.db.ExecContext(t.Context(), record); err != nil {
		t.Fatal(err)
	}

	t.Setenv("ROUSE_TEST_WORKER_HOMES", t.TempDir())
	counts := f.plan(faults)
	var feeding, workers sync.WaitGroup
	feeding.Go(f.ask)
	begun := time.Now()
	last := make([]*process, 3)
	for i := range last {
		workers.Go(func() { last[i] = f.slot(fmt.Sprintf("slot%d", i+1)) })
	}
	workers.Wait()
	took := time.Since(begun).Round(time.Second)
	if !t.Failed() {
		f.killLeaders(last, 4)
	}
	close(f.feed)
	feeding.Wait()
	if !t.Failed() {
		f.drained()
	}
	for _, p := range last {
		if p != nil {
			p.end(t)
		}
	}
	if t.Failed() {
		return
	}

	t.Logf("%d faults in %s: %s", faults, took, counts)
	f.checkRuns()
	f.checkHistory()
	f.checkRows()
	f.report()
	ledgertest.Audited(t, f.l)
}

// plan draws the faults. Rare faults come at least once.
func (f *faultTest) plan(faults int) string {
	var all []string
	counts := map[string]int{}
	for _, k := range kinds {
		if k.name == "restart" && f.server == nil {
			f.t.Log("PostgreSQL is not restarted: it is not this test's own")
			continue
		}
		for range max(1, faults*k.of/100) {
			all = append(all, k.name)
		}
	}
	for len(all) < faults {
		all = append(all, "kill")
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, k := range all[:faults] {
		counts[k]++
		f.left <- k
	}
	close(f.left)

	var said []string
	for _, k := range kinds {
		said = append(said, fmt.Sprintf("%s %d", k.name, counts[k.name]))
	}
	return strings.Join(said, ", ")
}

// ask requests runs until the faults are over: scheduled runs that two processes request, files
// that two claims name, and jobs with few lanes, retries and long work.
func (f *faultTest) ask() {
	for i := 0; ; i++ {
		select {
		case <-f.feed:
			return
		case <-time.After(time.Duration(20+rand.IntN(60)) * time.Millisecond):
		}

		// A queue that grew while no worker was running would measure its own length instead of the
		// time of a takeover.
		if c, err := f.l.Runs.Counts(f.t.Context()); err == nil && c.Queued+c.Waiting > 20 {
			i--
			continue
		}

		key := fmt.Sprintf("schedule/%d", i)
		r := ledger.Request{Key: key, Job: []string{"one", "two", "many", "many", "retries", "long"}[i%6], Trigger: domain.TriggerSchedule}
		if i%5 == 0 {
			r.Job, r.Agent = rowsJob, rowsAgent(i/5)
		}
		if i%7 == 0 {
			claim := claim.Claim{Job: "file", Path: fmt.Sprintf("/in/%d", i), Hash: fmt.Sprint(i), Size: 1}
			r = ledger.Request{Job: "file", Trigger: domain.TriggerWatch, Claim: &claim}
			key = claim.Path
		}
		for asked := 0; asked < 2; {
			a, err := f.l.Enqueue(f.t.Context(), r)
			if err != nil { // the server is unreachable or the write is unconfirmed: request the run again
				if f.t.Context().Err() != nil {
					return
				}
				time.Sleep(50 * time.Millisecond)
				continue
			}

			f.mu.Lock()
			if was := f.accepted[key]; was != 0 && was != a[0].Run {
				f.t.Errorf("%s became two runs, %d and %d", key, was, a[0].Run)
			}
			f.accepted[key] = a[0].Run
			f.mu.Unlock()
			asked++
		}
	}
}

// slot keeps a worker running and inflicts faults on it. It returns the last worker.
func (f *faultTest) slot(name string) *process {
	p := f.newProxy()
	w := f.worker(name, 0, p)
	for generation := 1; ; {
		select {
		case <-w.over: // it lost its lease after the check
			f.gone(name)
			p.heal()
			w = f.worker(name, generation, p)
			generation++
			continue
		case <-time.After(time.Duration(rand.IntN(700)) * time.Millisecond):
		}

		kind, ok := <-f.left
		if !ok || f.t.Failed() {
			return w
		}
		f.gone(name)
		if alive := f.inflict(kind, name, w, p); alive {
			f.mu.Lock()
			f.healthy[name] = time.Now()
			f.mu.Unlock()
			continue
		}
		// A quarter of the workers return with the same name. They must wait until the other nodes
		// know that the old worker is gone.
		if rand.IntN(4) > 0 {
			generation++
		}
		w = f.worker(name, generation, p)
	}
}

func (f *faultTest) worker(slot string, generation int, p *proxy) *process {
	w := startProcess(f.t, fmt.Sprintf("%s-%d", slot, generation), p.url(f.url), f.url)
	f.mu.Lock()
	f.healthy[slot] = time.Now()
	f.mu.Unlock()
	return w
}

// killLeaders kills the leader several times without other faults. Another node must lead within
// five seconds.
func (f *faultTest) killLeaders(workers []*process, times int) {
	p := f.newProxy()
	for i := range times {
		time.Sleep(2 * time.Second) // the nodes know each other and have work
		var first int64
		if err := f.db.QueryRowContext(f.t.Context(), leader).Scan(&first); err != nil {
			f.t.Fatal(err)
		}
		at := slices.IndexFunc(workers, func(w *process) bool { return w != nil && w.node == first })
		if at < 0 {
			f.t.Fatalf("node %d leads, which is none of the workers", first)
		}

		f.mu.Lock()
		f.hits = append(f.hits, hit{kind: "kill", node: first, at: time.Now(), leads: true, others: []string{"two of them"}})
		f.mu.Unlock()
		workers[at].kill()
		for begun, now := time.Now(), first; now == first; time.Sleep(10 * time.Millisecond) {
			if err := f.db.QueryRowContext(f.t.Context(), leader).Scan(&now); err != nil {
				f.t.Fatal(err)
			}
			if time.Since(begun) > 5*time.Second {
				f.t.Fatal("nobody took over the lead in five seconds")
			}
		}
		workers[at] = f.worker(fmt.Sprint("calm", i), 0, p)
	}
}

// leader selects the id of the leading node, or 0 if there is none, as Nodes.Lead does.
const leader = `select coalesce(max(split_part(leader_id, '/', 2)::bigint), 0) from river_leader where expires_at > now()`

func (f *faultTest) gone(slot string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.healthy, slot)
	f.hurt[slot] = time.Now()
}

// inflict causes one fault. It returns false if the worker has ended.
func (f *faultTest) inflict(kind, slot string, w *process, p *proxy) (alive bool) {
	switch kind {
	case "kill":
		f.note(kind, slot, w)
		w.kill()
		return false
	case "terminate":
		f.terminate(w.application())
		return true
	case "terminate all":
		f.terminate("slot%")
		return true
	case "short cut", "one-way cut", "long cut":
		up, down := true, true
		if kind == "one-way cut" {
			up = rand.IntN(2) == 0
			down = !up
		}
		length := time.Duration(100+rand.IntN(900)) * time.Millisecond
		if kind == "long cut" {
			length = 5*time.Second + time.Duration(rand.IntN(1500))*time.Millisecond
			f.note(kind, slot, w)
		}
		if rand.IntN(3) == 0 {
			p.drop()
		}
		p.cut(up, down)
		time.Sleep(length)
		p.heal()
		return f.goesOn(w, kind)
	case "freeze":
		f.note(kind, slot, w)
		w.freeze()
		time.Sleep(5*time.Second + time.Duration(rand.IntN(2000))*time.Millisecond)
		w.thaw()
		return f.goesOn(w, kind)
	case "restart":
		f.server.restart(f.t)
		return f.goesOn(w, kind)
	}
	f.t.Errorf("no such fault: %s", kind)
	return true
}

// goesOn reports whether a worker goes on after a fault. A worker that has lost its lease must end.
func (f *faultTest) goesOn(w *process, kind string) bool {
	for deadline := time.Now().Add(15 * time.Second); ; {
		var gone int64
		err := f.db.QueryRowContext(f.t.Context(), `select gone_at from nodes where id = $1`, w.node).Scan(&gone)
		select {
		case <-w.over:
			return false
		case <-time.After(50 * time.Millisecond):
		}
		switch {
		case err == nil && gone == 0 && kind != "restart":
			return true
		case err == nil && gone == 0 && time.Now().After(deadline.Add(-12*time.Second)): // it had enough time to give up by itself
			return true
		case time.Now().After(deadline):
			f.t.Errorf("%s lost its lease by a %s, and does not end (%v)", w.name, kind, err)
			w.kill()
			return false
		}
	}
}

func (f *faultTest) terminate(application string) {
	_, err := f.db.ExecContext(f.t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity where application_name like $1 and pid <> pg_backend_pid()`, application)
	if err != nil && f.server == nil {
		f.t.Errorf("connections could not be ended: %v", err)
	}
}

// note records a fault after which other workers must take over the worker's runs.
func (f *faultTest) note(kind, slot string, w *process) {
	var first int64
	_ = f.db.QueryRowContext(f.t.Context(), leader).Scan(&first) // 0 while the server is unreachable
	f.mu.Lock()
	defer f.mu.Unlock()
	h := hit{kind: kind, slot: slot, node: w.node, at: time.Now(), leads: first == w.node}
	for other, since := range f.healthy {
		if other != slot && time.Since(since) > time.Second {
			h.others = append(h.others, other)
		}
	}
	f.hits = append(f.hits, h)
}

// drained waits until no work is left.
func (f *faultTest) drained() {
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		left, err := f.l.Runs.Unfinished(f.t.Context())
		if err == nil && len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%d runs are left, the first is %+v (%v)", len(left), left[:min(len(left), 1)], err)
		}
	}
}

// rows returns the rows of a query as text. The query should find no rows.
func (f *faultTest) rows(query string) []string {
	f.t.Helper()
	found, err := f.db.QueryContext(f.t.Context(), query)
	if err != nil {
		f.t.Fatal(err)
	}
	defer found.Close()
	var all []string
	for found.Next() {
		var text string
		if err := found.Scan(&text); err != nil {
			f.t.Fatal(err)
		}
		all = append(all, text)
	}
	if err := found.Err(); err != nil {
		f.t.Fatal(err)
	}
	return all
}

// checkRuns checks that no run is lost or duplicated, and that each run has the outcome of its last
// attempt.
func (f *faultTest) checkRuns() {
	f.t.Helper()
	var runs int
	if err := f.db.QueryRowContext(f.t.Context(), `select count(*) from runs`).Scan(&runs); err != nil || runs != len(f.accepted) {
		f.t.Errorf("%d runs for %d requests (%v)", runs, len(f.accepted), err)
	}
	for what, query := range map[string]string{
		"without an outcome":                       `select id::text from runs where state <> 'finished' or outcome = ''`,
		"with other than one outcome":              `select r.id::text || ': ' || count(h.seq) from runs r left join history h on h.run = r.id and h.state = 'finished' group by r.id having count(h.seq) <> 1`,
		"whose attempts have gaps":                 `select r.id::text from runs r left join attempts a on a.run = r.id group by r.id, r.attempt having count(a.number) <> r.attempt or max(a.number) <> r.attempt or min(a.number) <> 1`,
		"with an attempt in progress":              `select run::text from attempts where state = 'running'`,
		"whose outcome is not of the last attempt": `select id::text || ': ' || summary from runs where outcome = 'success' and summary <> (select 'attempt ' || a.number || ' by ' || n.name from attempts a join nodes n on n.id = a.node where a.run = runs.id and a.number = runs.attempt)`,
		"whose end is by another process":          `select h.run::text from history h join runs r on r.id = h.run and r.outcome = 'success' join attempts a on a.run = h.run and a.number = h.attempt join nodes n on n.id = a.node where h.state = 'finished' and h.worker <> n.name || '/' || n.pid`,
		"that succeeded and were never done":       `select id::text from runs where outcome = 'success' and not exists (select 1 from work w where w.run = runs.id and w.attempt = runs.attempt)`,
		"with other outcomes":                      `select id::text || ': ' || outcome || ' ' || error from runs where outcome not in ('success', 'interrupted')`,
		"interrupted without being so":             `select id::text from runs where outcome = 'interrupted' and interruptions < 4`,
	} {
		if found := f.rows(query); len(found) > 0 {
			f.t.Errorf("%d runs %s: %v", len(found), what, found[:min(len(found), 10)])
		}
	}
	if found := f.rows(`select worker || ' ' || what || ' ' || count(*) from trespass group by worker, what`); len(found) > 0 {
		f.t.Errorf("nodes wrote that were taken for dead: %v", found)
	}
}

// checkHistory replays the recorded history. It checks that attempts of a run follow each other,
// and that lanes hold.
func (f *faultTest) checkHistory() {
	f.t.Helper()
	found, err := f.db.QueryContext(f.t.Context(), `select run, job, attempt, state from history order by seq`)
	if err != nil {
		f.t.Fatal(err)
	}
	defer found.Close()

	type place struct {
		attempt int
		on      bool
	}
	at, on := map[int64]place{}, map[string]int{}
	doubled := 0
	for found.Next() {
		var run int64
		var job, state string
		var attempt int
		if err := found.Scan(&run, &job, &attempt, &state); err != nil {
			f.t.Fatal(err)
		}
		was, runs := at[run], state == string(domain.StateRunning)
		switch {
		case runs && (was.on || attempt != was.attempt+1), !runs && attempt != was.attempt:
			doubled++
			f.t.Errorf("run %d: attempt %d is %s after attempt %d (on: %t)", run, attempt, state, was.attempt, was.on)
		case runs:
			on[job]++
		case was.on:
			on[job]--
		}
		at[run] = place{attempt, runs}
		if most := map[string]int{"one": 1, "two": 2}[job]; most > 0 && on[job] > most {
			f.t.Errorf("%d runs of %s at once", on[job], job)
		}
	}
	if err := found.Err(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Logf("double-owned outcomes: %d", doubled)
}

// report logs how soon other workers took over the runs, and how soon a new leader followed.
func (f *faultTest) report() {
	f.t.Helper()
	noticed, rescues, takeovers := map[string][]time.Duration{}, map[string][]time.Duration{}, map[string][]time.Duration{}
	for _, h := range f.hits {
		// The attempts that were running then and were interrupted, and the next ones.
		found, err := f.db.QueryContext(f.t.Context(), `select a.finished_at, b.started_at from attempts a join attempts b on b.run = a.run and b.number = a.number + 1
			where a.node = $1 and a.state = 'interrupted' and a.started_at <= $2 and a.finished_at >= $2`, h.node, h.at.UnixMilli())
		if err != nil {
			f.t.Fatal(err)
		}
		for found.Next() {
			var ended, at int64
			if err := found.Scan(&ended, &at); err != nil {
				f.t.Fatal(err)
			}
			if len(h.others) > 0 { // another worker was there to take over
				noticed[h.kind] = append(noticed[h.kind], time.UnixMilli(ended).Sub(h.at))
				rescues[h.kind] = append(rescues[h.kind], time.UnixMilli(at).Sub(h.at))
			}
		}
		if err := found.Err(); err != nil {
			f.t.Fatal(err)
		}
		found.Close()

		if !h.leads || len(h.others) == 0 {
			continue
		}
		var gone int64
		if err := f.db.QueryRowContext(f.t.Context(), `select gone_at from nodes where id = $1`, h.node).Scan(&gone); err != nil {
			f.t.Fatal(err)
		}
		if gone != 0 {
			takeovers[h.kind] = append(takeovers[h.kind], time.UnixMilli(gone).Sub(h.at))
		}
	}

	for _, k := range kinds {
		if all := rescues[k.name]; len(all) > 0 {
			f.t.Logf("rescue after a %s: its attempts were ended after %s; the next ones, which need lanes, began after %s", k.name, spread(noticed[k.name]), spread(all))
		}
		if all := takeovers[k.name]; len(all) > 0 {
			f.t.Logf("takeover of the lead after a %s: %s", k.name, spread(all))
		}
	}
	if stray := f.rows(`select w.run || '/' || w.attempt from work w join attempts a on a.run = w.run and a.number = w.attempt
		where w.begun_at > to_timestamp(a.finished_at / 1000.0) + interval '1 second'`); len(stray) > 0 {
		f.t.Logf("work that began though its attempt was over, before its process knew: %v", stray)
	}
}

func spread(all []time.Duration) string {
	slices.Sort(all)
	of := func(p int) time.Duration { return all[(len(all)-1)*p/100].Round(time.Millisecond) }
	return fmt.Sprintf("%d, p50 %s, p99 %s, max %s", len(all), of(50), of(99), of(100))
}
