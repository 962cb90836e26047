package cluster

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/cmd/internal/replicate/target/s3test"
	"rouse/internal/ledger/ledgertest"
)

// cluster is a folder with a configuration for a ledger in PostgreSQL, and one home per node.
type cluster struct {
	dir, url, config string
	db               *sql.DB
}

func newCluster(t *testing.T, text string) cluster {
	t.Helper()
	url, _ := ledgertest.Postgres(t)
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nengine: {postgres: \"" + url + "\"}\n" + text})
	return cluster{dir, url, filepath.Join(dir, "rouse.yaml"), ledgertest.OpenPostgres(t, url)}
}

// at adds the flags for the configuration and the home of a node.
func (c cluster) at(node string, args ...string) []string {
	return append(args, "--config", c.config, "--home", filepath.Join(c.dir, node))
}

func (c cluster) serve(t *testing.T, node string, flags ...string) *endtoend.Program {
	t.Helper()
	p := endtoend.Rouse(t, c.at(node, append([]string{"serve", "--node", node}, flags...)...)...)
	p.UntilReady(t)
	return p
}

// count returns the result of a query for a number.
func (c cluster) count(t *testing.T, query string) (n int) {
	t.Helper()
	if err := c.db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (c cluster) engine(t *testing.T, node string) (e api.Engine) {
	t.Helper()
	p := endtoend.Rouse(t, c.at(node, "engine", "status", "--json")...)
	_ = p.Run() // exits 1 if there is a problem
	if err := json.Unmarshal(p.Out.Bytes(), &e); err != nil {
		t.Fatalf("%v in %s%s", err, p.Out.String(), p.Err.String())
	}
	return e
}

// fails executes a command that must fail, and returns its output.
func fails(t *testing.T, args ...string) string {
	t.Helper()
	p := endtoend.Rouse(t, args...)
	if err := p.Run(); err == nil {
		t.Errorf("rouse %s did not fail:\n%s", strings.Join(args, " "), p.Out.String())
	}
	return p.Out.String() + p.Err.String()
}

const ticking = `agents: [{name: north-agent, grants: {commands: [{argv: [sleep, '*']}]}}, {name: south-agent}]
jobs:
  - {name: tick, agent: south-agent, host: south, every: 1s, on_miss: run_catchup, overlap: queue_all, playbook: [{call: db_schema}]}
  - {name: slow, agent: north-agent, host: north, playbook: [{call: shell_run, with: {command: "sleep 60"}}], notify: {on: [error]}}
`

// TestClusterTakesOver kills the leader. Another node must lead within five seconds, and each
// instant of a schedule must be served once.
func TestClusterTakesOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t, ticking)
	north := c.serve(t, "north")
	south := c.serve(t, "south")
	if e := c.engine(t, "south"); e.Leader != "north" || len(e.Nodes) != 2 || len(e.Problems) != 0 {
		t.Errorf("the nodes: %+v", e)
	}
	finished := func() int { return c.count(t, `select count(*) from runs where job = 'tick' and outcome = 'success'`) }
	cmdtest.Until(t, "two runs", func() bool { return finished() >= 2 })

	north.Kill(t)
	killed := time.Now()
	var e api.Engine
	for e = c.engine(t, "south"); e.Leader != "south"; e = c.engine(t, "south") {
		if time.Since(killed) > cmdtest.Patience {
			t.Fatalf("nobody leads: %+v", e)
		}
	}
	for _, n := range e.Nodes {
		if n.Name == "north" && (n.Alive || n.GoneAt.Sub(killed) > 5*time.Second) {
			t.Errorf("north was killed at %s, and gone at %s", killed, n.GoneAt)
		}
	}
	before := finished()
	cmdtest.Until(t, "runs after the takeover", func() bool { return finished() >= before+3 })

	north = c.serve(t, "north") // a new process with the same name
	if e := c.engine(t, "north"); e.Leader != "south" {
		t.Errorf("the one that came back leads: %+v", e)
	}
	south.Stop(t)
	cmdtest.Until(t, "the other leads again", func() bool { return c.engine(t, "north").Leader == "north" })

	// The job names the node south as its host, so its runs wait and give that reason.
	cmdtest.Until(t, "a run that waits", func() bool {
		p := endtoend.Rouse(t, c.at("north", "why", "tick")...)
		return p.Run() == nil && strings.Contains(p.Out.String(), "waits for the node south, which its job names; it is not there since")
	})
	south = c.serve(t, "south")
	cmdtest.Until(t, "all of them", func() bool {
		return c.count(t, `select count(*) from runs where job = 'tick' and state = 'queued'`) <= 1
	})

	if n := c.count(t, `select count(*) from (select nominal from occurrences where job = 'tick' group by nominal having count(*) > 1) twice`); n != 0 {
		t.Errorf("%d instants were served twice", n)
	}
	if n := c.count(t, `select count(*) from occurrences where job = 'tick' and (decision <> 'run' or run = 0)`); n != 0 {
		t.Errorf("%d instants have no run", n)
	}
	if n := c.count(t, `select (max(nominal) - min(nominal)) / 1000 + 1 - count(*) from occurrences where job = 'tick'`); n != 0 {
		t.Errorf("%d instants are missing", n)
	}
	if n := c.count(t, `select count(*) from attempts a join nodes n on n.id = a.node join runs r on r.id = a.run where r.job = 'tick' and n.name <> 'south'`); n != 0 {
		t.Errorf("%d attempts were not made by the host of the job", n)
	}
	north.Stop(t)
	south.Stop(t)
}

// TestClusterKills kills and restarts two nodes in random order while a job is due each second and
// files arrive. Each instant and each file must have one successful run, and the audit must be
// clean. ROUSE_TEST_KILLS sets the number of kills; .ci/run uses 8.
func TestClusterKills(t *testing.T) {
	t.Parallel()
	kills, err := strconv.Atoi(os.Getenv("ROUSE_TEST_KILLS"))
	if err != nil {
		kills = 2
	}
	c := newCluster(t, `agents: [{name: clock}, {name: clerk}]
jobs:
  - {name: tick, agent: clock, every: 1s, on_miss: run_catchup, overlap: queue_all, playbook: [{call: db_query, with: {sql: "select 1"}}], notify: {on: [error]}}
  - {name: inbox, agent: clerk, host: south, watch: {path: ./inbox, responsiveness: fast, on_success: {move: ./done}}, playbook: [{call: db_query, with: {sql: "select 1"}}], notify: {on: [error]}}
`)
	if err := os.MkdirAll(filepath.Join(c.dir, "inbox"), 0o755); err != nil {
		t.Fatal(err)
	}
	names := []string{"north", "south"}
	nodes := []*endtoend.Program{c.serve(t, "north"), c.serve(t, "south")}
	files := 0
	for i := range kills {
		for range 3 {
			if err := os.WriteFile(filepath.Join(c.dir, "inbox", fmt.Sprint(files, ".txt")), []byte(fmt.Sprint(files)), 0o644); err != nil {
				t.Fatal(err)
			}
			files++
		}
		time.Sleep(time.Duration(rand.IntN(2500)) * time.Millisecond) // kill at a random time
		nodes[i%2].Kill(t)
		time.Sleep(time.Duration(rand.IntN(2500)) * time.Millisecond)
		nodes[i%2] = c.serve(t, names[i%2])
	}

	cmdtest.Until(t, "the files moved", func() bool {
		done, _ := filepath.Glob(filepath.Join(c.dir, "done", "*.txt"))
		return len(done) == files
	})
	cmdtest.Until(t, "the end of the queue", func() bool {
		// Retry runs that were cut off four times in a row, as the owner would.
		var cut []api.Run
		endtoend.RunJSON(t, &cut, c.at("north", "runs", "--outcome", "interrupted", "--json")...)
		for _, r := range cut {
			endtoend.RunJSON(t, nil, c.at("north", "retry", r.ID)...)
		}
		return c.count(t, `select count(*) from runs where outcome not in ('success') and queued_at < (extract(epoch from clock_timestamp()) * 1000)::bigint - 2000`) == 0
	})
	for i, p := range nodes {
		p.Stop(t)
		nodes[i] = nil
	}

	for what, query := range map[string]string{
		"instants were served twice":     `select count(*) from (select nominal from occurrences where job = 'tick' group by nominal having count(*) > 1) twice`,
		"instants have no run":           `select count(*) from occurrences where job = 'tick' and (decision <> 'run' or run = 0)`,
		"instants are missing":           `select (max(nominal) - min(nominal)) / 1000 + 1 - count(*) from occurrences where job = 'tick'`,
		"files have another number":      fmt.Sprintf(`select count(*) - %d from runs where job = 'inbox'`, files),
		"runs of files did not succeed":  `select count(*) from runs where job = 'inbox' and outcome <> 'success'`,
		"attempts are still on":          `select count(*) from attempts where state = 'running'`,
		"leases are held by nobody":      `select count(*) from nodes where gone_at = 0`,
		"files were left where they lay": `select count(*) from claims where after <> 'done'`,
	} {
		if n := c.count(t, query); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
	ledgertest.Audited(t, ledgertest.OpenOn(t, c.url))
}

// TestClusterReconnects checks that a node whose connections break connects again and continues its
// work.
func TestClusterReconnects(t *testing.T) {
	t.Parallel()
	c := newCluster(t, ticking)
	south := c.serve(t, "south")
	finished := func() int { return c.count(t, `select count(*) from runs where job = 'tick' and outcome = 'success'`) }
	cmdtest.Until(t, "a run", func() bool { return finished() > 0 })
	lease := c.count(t, `select max(id) from nodes`)
	for range 3 {
		before := finished()
		if _, err := c.db.ExecContext(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity where application_name = current_setting('application_name') and pid <> pg_backend_pid()`); err != nil {
			t.Fatal(err)
		}
		cmdtest.Until(t, "more runs", func() bool { return finished() > before+1 })
	}

	// River's table of leaders is unlogged, so a crash of the database empties it.
	if _, err := c.db.ExecContext(t.Context(), `delete from river_leader`); err != nil {
		t.Fatal(err)
	}
	before := finished()
	cmdtest.Until(t, "that it leads again", func() bool { return c.engine(t, "south").Leader == "south" && finished() > before })
	if n := c.count(t, `select count(*) from nodes where gone_at = 0 and id = `+fmt.Sprint(lease)); n != 1 {
		t.Error("its lease was lost")
	}
	south.Stop(t)
}

// TestClusterCancel checks that a command on one node can cancel a run of another node, even if no
// daemon serves the command's home.
func TestClusterCancel(t *testing.T) {
	t.Parallel()
	c := newCluster(t, ticking)
	north := c.serve(t, "north")
	var r api.Run
	endtoend.RunJSON(t, &r, c.at("north", "run", "slow", "--json")...)
	cmdtest.Until(t, "its start", func() bool { return c.count(t, `select count(*) from attempts where state = 'running'`) == 1 })

	endtoend.RunJSON(t, nil, c.at("west", "cancel", r.ID)...)
	cmdtest.Until(t, "its end", func() bool {
		endtoend.RunJSON(t, &r, c.at("west", "show", r.ID, "--json")...)
		return r.Outcome == "cancelled"
	})
	if r.Node != "north" {
		t.Errorf("it was done by %q", r.Node)
	}
	north.Stop(t)

	// A command that executes its own run does so as a node.
	c = newCluster(t, "agents: [{name: a}]\njobs: [{name: once, agent: a, playbook: [{call: db_schema}]}]\n")
	endtoend.RunJSON(t, &r, c.at("west", "run", "once", "--wait", "--json")...)
	if r.Outcome != "success" || !strings.Contains(r.Node, "/run-") {
		t.Errorf("by a command: %+v", r)
	}
	if n := c.count(t, `select count(*) from nodes where gone_at = 0`); n != 0 {
		t.Errorf("%d nodes were left", n)
	}
}

// TestClusterPlaces checks that only the host of a watch takes and moves its files. A node without
// triggers or without work leaves these to other nodes.
func TestClusterPlaces(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `agents: [{name: a}, {name: b, host: south}]
jobs:
  - {name: inbox, agent: a, host: south, watch: {path: ./inbox, responsiveness: fast, on_success: {move: ./done}}, playbook: [{call: db_schema}], notify: {on: [error]}}
`)
	if err := os.MkdirAll(filepath.Join(c.dir, "inbox"), 0o755); err != nil {
		t.Fatal(err)
	}
	north, south := c.serve(t, "north"), c.serve(t, "south")
	for i := range 5 {
		if err := os.WriteFile(filepath.Join(c.dir, "inbox", fmt.Sprint(i, ".txt")), []byte(fmt.Sprint(i)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmdtest.Until(t, "the files moved", func() bool {
		done, _ := filepath.Glob(filepath.Join(c.dir, "done", "*.txt"))
		return len(done) == 5
	})
	if n := c.count(t, `select count(*) from attempts a join nodes n on n.id = a.node where n.name = 'south'`); n != 5 || c.count(t, `select count(*) from runs`) != 5 {
		t.Errorf("%d attempts by the host", n)
	}
	if p := endtoend.Rouse(t, c.at("north", "call", "b", "db_schema")...); p.Run() != nil {
		t.Errorf("a call of an agent that is elsewhere: %s%s", p.Out.String(), p.Err.String())
	}
	if p := endtoend.Rouse(t, c.at("west", "call", "b", "db_schema")...); p.Run() != nil { // no daemon serves that home
		t.Errorf("a call by a command: %s%s", p.Out.String(), p.Err.String())
	}
	if n := c.count(t, `select count(*) from attempts a join nodes n on n.id = a.node join runs r on r.id = a.run where r.agent = 'b' and n.name = 'south'`); n != 2 {
		t.Errorf("%d of 2 runs of the agent were done by its host", n)
	}
	if n := c.count(t, `select count(*) from claims where after <> 'done'`); n != 0 {
		t.Errorf("%d files were dealt with by somebody else", n)
	}
	if said := fails(t, c.at("north", "run", "inbox", "--file", c.config)...); !strings.Contains(said, "the files of the job inbox are on the node south") {
		t.Errorf("a file of another machine: %s", said)
	}
	north.Stop(t)
	south.Stop(t)

	idle := c.serve(t, "north", "--work=false")
	cmdtest.Until(t, "that it leads", func() bool { return c.engine(t, "north").Leader == "north" })
	if e := c.engine(t, "north"); e.Leader != "north" || len(e.Problems) != 1 || !strings.Contains(e.Problems[0], "no node does runs") {
		t.Errorf("without work: %+v", e)
	}
	worker := c.serve(t, "south", "--triggers=false")
	if e := c.engine(t, "south"); e.Leader != "north" || len(e.Problems) != 0 {
		t.Errorf("without triggers: %+v", e)
	}
	idle.Stop(t)
	if e := c.engine(t, "south"); e.Leader != "" || len(e.Problems) != 1 || !strings.Contains(e.Problems[0], "no node leads") {
		t.Errorf("nobody leads: %+v", e)
	}
	worker.Stop(t)
}

// TestClusterComesAlong kills a node in the middle of a run and deletes its home. Another node must
// execute the agent's next run with the rows of the earlier ones. Each run must succeed and write
// its rows once.
func TestClusterComesAlong(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `agents: [{name: clerk}, {name: writer}]
jobs:
  - name: note
    agent: clerk
    bounds: {calls: 1000}
    playbook:
      - {call: db_execute, with: {sql: "create table if not exists notes (run integer, n integer)"}}
      - {call: db_insert, with: {table: notes, row: {run: "= int(Run)", n: 1}}}
      - {call: db_query, each: "= 1..800", with: {sql: select count(*) from notes}} # a while, of calls that are short on any machine
      - {call: db_insert, with: {table: notes, row: {run: "= int(Run)", n: 2}}}
    notify: {on: [error]}
  - {name: file, agent: writer, playbook: [{call: file_write, with: {path: out.txt, content: x}}], notify: {on: [error]}}
`)
	north, south := c.serve(t, "north"), c.serve(t, "south")
	endtoend.RunJSON(t, nil, c.at("north", "run", "note", "--wait", "--json")...)
	at := func() (node string) {
		if err := c.db.QueryRowContext(t.Context(), `select node from agent_homes where agent = 'clerk'`).Scan(&node); err != nil {
			t.Fatal(err)
		}
		return node
	}
	first := at()
	nodes, other := map[string]*endtoend.Program{"north": north, "south": south}, map[string]string{"north": "south", "south": "north"}[first]

	endtoend.RunJSON(t, nil, c.at(other, "run", "note", "--json")...)
	cmdtest.Until(t, "the second run is half-way", func() bool {
		return c.count(t, `select count(*) from calls k join runs r on r.id = k.run where r.state = 'running' and k.tool = 'db_insert' and k.state = 'done'`) == 1
	})
	if at() != first {
		t.Fatalf("an agent moved while its node was there to do its run")
	}
	nodes[first].Kill(t)
	if err := os.RemoveAll(filepath.Join(c.dir, first)); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "both runs succeeded", func() bool {
		return c.count(t, `select count(*) from runs where job = 'note' and outcome = 'success'`) == 2
	})
	if got := at(); got != other {
		t.Errorf("the agent is at %s", got)
	}
	var out struct {
		Rows []map[string]any `json:"rows"`
	}
	endtoend.RunJSON(t, &out, c.at(other, "db", "clerk", "query", "select count(*) n, count(distinct run || '/' || n) d, count(distinct run) r from notes", "--json")...)
	if fmt.Sprint(out.Rows) != "[map[d:4 n:4 r:2]]" {
		t.Errorf("there are %v", out.Rows)
	}
	p := endtoend.Rouse(t, c.at(other, "why", "note")...)
	if err := p.Run(); err != nil || !strings.Contains(p.Out.String(), "2 ● success on "+first) || !strings.Contains(p.Out.String(), "2 ● success on "+other) {
		t.Errorf("why does not tell of both nodes: %v\n%s%s", err, p.Out.String(), p.Err.String())
	}

	// An agent with files stays on its node, and its runs wait for that node.
	endtoend.RunJSON(t, nil, c.at(other, "run", "file", "--wait", "--json")...)
	nodes[other].Kill(t)
	back := c.serve(t, first)
	endtoend.RunJSON(t, nil, c.at(first, "run", "file", "--json")...)
	cmdtest.Until(t, "the run waits for the node with the files", func() bool {
		p := endtoend.Rouse(t, c.at(first, "why", "file")...)
		return p.Run() == nil && strings.Contains(p.Out.String(), "waits for the node "+other+", which alone has the files of its agent")
	})
	p = endtoend.Rouse(t, c.at(first, "engine", "status")...)
	if err := p.Run(); err != nil || !strings.Contains(p.Out.String(), "stays: it has files there") {
		t.Errorf("%v\n%s", err, p.Out.String())
	}
	back.Stop(t)
}

// TestClusterRecordings checks that a run recorded on one node can be replayed on another, even if
// the disk of the first is lost.
func TestClusterRecordings(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t, modeltest.Turn{Calls: []model.Call{endtoend.Call("1", "db_schema", `{}`)}}, modeltest.Turn{Calls: []model.Call{endtoend.Call("2", "complete", `{"summary":"Looked at an empty database and found nothing."}`)}})
	c := newCluster(t, `models: [{name: scripted, provider: openai, model: scripted, base_url: "`+s.URL+`/v1", api_key: none}]
agents: [{name: clerk}]
jobs: [{name: look, agent: clerk, prompt: Look at the database., record: true, notify: {on: [error]}}]
`)
	north := c.serve(t, "north")
	endtoend.RunJSON(t, nil, c.at("north", "run", "look", "--wait", "--json")...)
	if p := endtoend.Replay(t, c.at("north", "1")...); !p.Same {
		t.Errorf("where it was recorded: %s", p.Text())
	}
	north.Kill(t)
	if err := os.RemoveAll(filepath.Join(c.dir, "north")); err != nil {
		t.Fatal(err)
	}

	south := c.serve(t, "south")
	// The nodes have different homes, and the prompt contains the path of the home.
	p := endtoend.Replay(t, c.at("south", "1")...)
	if p.Recorded.Steps != 2 || p.Now.Steps != 2 || p.Now.Outcome != "success" || len(p.Differences) != 1 || p.Differences[0].What != "the system prompt" || !strings.Contains(p.Differences[0].Now, "/south/agents/clerk/work") {
		t.Errorf("at another node: %s", p.Text())
	}
	south.Stop(t)
}

// TestClusterDifferences checks the messages about two different configurations and about a second
// process of the same node.
func TestClusterDifferences(t *testing.T) {
	t.Parallel()
	c := newCluster(t, ticking)
	north := c.serve(t, "north")
	said := fails(t, c.at("other", "serve", "--node", "north")...)
	if !strings.Contains(said, "another") || !strings.Contains(said, "--node") {
		t.Errorf("a second process of a name: %s", said)
	}

	text, err := os.ReadFile(c.config)
	if err != nil {
		t.Fatal(err)
	}
	other := c
	other.config = filepath.Join(c.dir, "other.yaml")
	if err := os.WriteFile(other.config, append(text, "\ntimezone: UTC\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	south := other.serve(t, "south")
	e := c.engine(t, "north")
	if len(e.Problems) != 1 || !strings.Contains(e.Problems[0], "another configuration than here is in force at south") {
		t.Errorf("%+v", e)
	}
	p := endtoend.Rouse(t, c.at("north", "status")...)
	if err := p.Run(); err != nil || !strings.Contains(p.Out.String(), "another configuration") {
		t.Errorf("status: %v\n%s", err, p.Out.String())
	}

	// Fixed by a reload, without a restart.
	if err := os.WriteFile(other.config, text, 0o644); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "one configuration again", func() bool { return len(c.engine(t, "north").Problems) == 0 })
	south.Stop(t)
	north.Stop(t)
}

// TestClusterRefusals checks that problems with a database are reported before any run starts, with
// a remedy and without the password.
func TestClusterRefusals(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "agents: [{name: a}]\n")
	base, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(u *url.URL)) string {
		u := *base
		change(&u)
		return u.String()
	}
	serve := func(name, address string) string {
		t.Helper()
		dir := cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\nengine: {postgres: '" + address + "'}\n"})
		said := fails(t, "serve", "--node", "n", "--config", filepath.Join(dir, "rouse.yaml"))
		if strings.Contains(said, "hidden-word") {
			t.Errorf("%s: the password is shown: %s", name, said)
		}
		return said
	}

	role := "rouse_poor_" + fmt.Sprint(os.Getpid())
	for _, sql := range []string{"create role " + role + " login password 'hidden-word'", "create schema " + role, "grant usage on schema " + role + " to " + role} {
		if _, err := c.db.ExecContext(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, sql := range []string{"drop schema " + role + " cascade", "drop role " + role} {
			if _, err := ledgertest.OpenPostgres(t, c.url).ExecContext(context.WithoutCancel(t.Context()), sql); err != nil {
				t.Error(err)
			}
		}
	})

	for name, d := range map[string]struct{ address, want string }{
		"nobody listens": {with(func(u *url.URL) { u.Host = cmdtest.Nobody }), "cannot be reached"},
		"no database":    {with(func(u *url.URL) { u.Path = "/rouse_nowhere" }), "create database"},
		"no rights": {with(func(u *url.URL) {
			u.User = url.UserPassword(role, "hidden-word")
			u.RawQuery = strings.Replace(u.RawQuery, "search_path=", "search_path="+role+"&was=", 1)
			q := u.Query()
			q.Del("was")
			u.RawQuery = q.Encode()
		}), "needs to make tables"},
	} {
		if said := serve(name, d.address); !strings.Contains(said, d.want) {
			t.Errorf("%s: %s", name, said)
		}
	}

	// A newer schema.
	c.serve(t, "north").Stop(t)
	if _, err := c.db.ExecContext(t.Context(), "insert into schema_version values (9999)"); err != nil {
		t.Fatal(err)
	}
	if said := serve("newer", c.url); !strings.Contains(said, "made by a newer rouse") {
		t.Errorf("a newer schema: %s", said)
	}

	if _, err := c.db.ExecContext(t.Context(), "delete from schema_version where version = 9999"); err != nil {
		t.Fatal(err)
	}

	// A home with its own history keeps it. A home of a shared ledger gets no ledger file.
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\nagents: [{name: a}]\njobs: [{name: once, agent: a, playbook: [{call: db_schema}]}]\n"})
	own := filepath.Join(dir, "rouse.yaml")
	endtoend.RunJSON(t, nil, "run", "once", "--json", "--config", own)
	home := filepath.Join(dir, "home")
	if said := fails(t, "runs", "--config", c.config, "--home", home); !strings.Contains(said, "would put it out of sight") {
		t.Errorf("a history: %s", said)
	}
	if said := fails(t, "runs", "--config", own, "--home", filepath.Join(c.dir, "north")); !strings.Contains(said, "put engine.postgres back") {
		t.Errorf("without the engine: %s", said)
	}
	for _, args := range [][]string{{"ledger"}, {"ledger", "backup"}, {"ledger", "restore", "last"}, {"ledger", "backups"}, {"audit"}, {"backup", t.TempDir()}} {
		if said := fails(t, c.at("north", args...)...); !strings.Contains(said, "pg_dump") {
			t.Errorf("%v: %s", args, said)
		}
	}
}

// TestClusterPooler checks that a pooler in transaction mode is refused with a clear error.
func TestClusterPooler(t *testing.T) {
	t.Parallel()
	pooler, err := exec.LookPath("pgbouncer")
	if err != nil {
		if pooler = "/usr/sbin/pgbouncer"; !executable(pooler) {
			t.Skip("pgbouncer is not installed")
		}
	}
	c := newCluster(t, "agents: [{name: a}]\n")
	base, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(endtoend.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	settings := fmt.Sprintf("[databases]\n* = host=%s port=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %s\nauth_type = any\npool_mode = transaction\nunix_socket_dir =\nignore_startup_parameters = search_path,extra_float_digits\n",
		base.Hostname(), base.Port(), port)
	// With auth_type any, all clients reach the server as the user of the database.
	settings = strings.Replace(settings, " port="+base.Port(), " port="+base.Port()+" user="+base.User.Username(), 1)
	ini := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(ini, []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), pooler, ini)
	if os.Getuid() == 0 { // pgbouncer refuses to run as root
		cmd = exec.CommandContext(t.Context(), "runuser", "-u", "postgres", "--", pooler, ini)
	}
	// SIGKILL to runuser would leave the pooler running. runuser passes SIGTERM on.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var log cmdtest.Log
	cmd.Stderr, cmd.Stdout = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // Cancel has told it to end
	cmdtest.Until(t, "the pooler", func() bool { return strings.Contains(log.String(), "process up") })

	pooled := *base
	pooled.Host = "127.0.0.1:" + port
	text := "version: 1\nhome: ./home\nengine: {postgres: '" + pooled.String() + "'}\n"
	path := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": text}), "rouse.yaml")
	if said := fails(t, "serve", "--node", "n", "--config", path); !strings.Contains(said, "PgBouncer in transaction mode") {
		t.Errorf("%s\n%s", said, log.String())
	}
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// TestExampleCluster executes the script of the example, from its three nodes to the final count.
func TestExampleCluster(t *testing.T) {
	t.Parallel()
	url, _ := ledgertest.Postgres(t)
	config := endtoend.CopyExample(t, "cluster")
	text, err := os.ReadFile("../../../../examples/cluster/rouse.yaml") // CopyExample changes the schedules
	if err == nil {
		err = os.WriteFile(config, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}

	p := endtoend.Rouse(t)
	script := exec.Command("bash", filepath.Join(filepath.Dir(config), "run.sh"))
	script.Env = append(p.Env, "POSTGRES="+url, "ROUSE="+p.Path)
	out, err := script.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	counted := strings.Fields(string(out)[strings.LastIndex(string(out), "due")+len("due"):])
	if len(counted) < 3 || counted[0] != counted[1] || counted[1] != counted[2] || counted[0] == "0" {
		t.Errorf("%s", out)
	}
	for _, say := range []string{"desk  120", "its disk is deleted", "runs the clock, with the rows of", ": its process ended", "it was killed, or the power went", ": it was not heard of for 4s: it is frozen",
		"was thawed", "this node has lost its lease"} {
		if !strings.Contains(string(out), say) {
			t.Errorf("it does not say %q:\n%s", say, out)
		}
	}
}

const largeArtifact = `agents: [{name: a}]
jobs:
  - name: large
    agent: a
    playbook:
      - {call: db_query, with: {sql: "with recursive n(i) as (select 1 union all select i + 1 from n where i < 300) select i, printf('%.900c', 'x') as v from n"}}
    notify: {on: [error]}
`

// TestClusterBlobs stores large values in a bucket that all nodes use. A bucket that does not
// respond must not stop runs or lose data.
func TestClusterBlobs(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t, "values")
	at := "s3://values/rouse?region=us-east-1&endpoint=" + server.URL
	c := newCluster(t, largeArtifact)
	text, err := os.ReadFile(c.config)
	if err != nil {
		t.Fatal(err)
	}
	blobs := func(at, secret string) {
		t.Helper()
		with := strings.Replace(string(text), "\"}\n", fmt.Sprintf("\", blobs: '%s', access_key: %s, secret_key: %s}\n", at, s3test.Access, secret), 1)
		if err := os.WriteFile(c.config, []byte(with), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	for what, one := range map[string]struct{ at, secret, want string }{
		"no bucket":      {strings.Replace(at, "values", "others", 1), s3test.Secret, "there is no bucket others"},
		"a wrong key":    {at, "hunter2hunter2", "refuses the key"},
		"nobody answers": {"s3://values/rouse?endpoint=http://" + cmdtest.Nobody, s3test.Secret, "no large values can be kept there"},
	} {
		blobs(one.at, one.secret)
		if said := fails(t, c.at("north", "serve", "--node", "north")...); !strings.Contains(said, "engine.blobs, s3://") || !strings.Contains(said, one.want) || strings.Contains(said, "hunter2") {
			t.Errorf("%s: %s", what, said)
		}
	}

	blobs(at, s3test.Secret)
	north, south := c.serve(t, "north"), c.serve(t, "south")
	doctor := func(node string) (check api.Check) {
		t.Helper()
		p := endtoend.Rouse(t, c.at(node, "doctor", "--offline", "--json")...)
		_ = p.Run() // exits 1 if there is a problem
		var all []api.Check
		if err := json.Unmarshal(p.Out.Bytes(), &all); err != nil {
			t.Fatalf("%v in %s%s", err, p.Out.String(), p.Err.String())
		}
		for _, one := range all {
			if one.Name == "blobs" {
				check = one
			}
		}
		return check
	}
	if is := doctor("south"); !is.OK || !strings.Contains(is.Detail, "written, read, listed and removed") {
		t.Errorf("doctor: %+v", is)
	}
	inDatabase := func() int {
		return c.count(t, `select count(*) from calls where length(envelope) > 65536`)
	}
	show := func(node, run string) string {
		p := endtoend.Rouse(t, c.at(node, "show", run, "--json")...)
		_ = p.Run() // exits 1 if it cannot read the value
		return p.Out.String() + p.Err.String()
	}
	run := func() (r api.Run) {
		t.Helper()
		endtoend.RunJSON(t, &r, c.at("north", "run", "large", "--wait", "--json")...)
		if r.Outcome != "success" {
			t.Errorf("a run: %+v", r)
		}
		return r
	}
	first := run()
	if n := c.count(t, `select count(*) from calls where envelope like 'blob:sha256:%'`); n != 1 || inDatabase() != 0 {
		t.Errorf("%d of the bucket, %d in the database", n, inDatabase())
	}
	if said := show("south", first.ID); !strings.Contains(said, strings.Repeat("x", 900)) {
		t.Errorf("another node shows %.300s", said)
	}

	server.Stop()
	second := run()
	if inDatabase() != 1 {
		t.Errorf("%d in the database while the bucket is down", inDatabase())
	}
	if said := show("south", second.ID); !strings.Contains(said, strings.Repeat("x", 900)) {
		t.Errorf("what was written meanwhile: %.300s", said)
	}
	if said := show("south", first.ID); !strings.Contains(said, "cannot be read") {
		t.Errorf("what is in the bucket: %.300s", said)
	}
	if is := doctor("north"); is.OK || !strings.Contains(is.Detail, "stay in PostgreSQL") {
		t.Errorf("doctor while it is down: %+v", is)
	}
	told := false
	for _, node := range []string{"north", "south"} { // the node that executed the run has noticed
		e := c.engine(t, node)
		told = told || len(e.Problems) == 1 && strings.Contains(e.Problems[0], "large values stay in PostgreSQL")
	}
	if !told {
		t.Error("rouse engine status does not tell of it")
	}

	server.Restart(t)
	if is := doctor("north"); !is.OK {
		t.Errorf("doctor once it is back: %+v", is)
	}
	if said := show("north", first.ID); !strings.Contains(said, strings.Repeat("x", 900)) {
		t.Errorf("once it is back: %.300s", said)
	}
	north.Stop(t)
	south.Stop(t)

	// Remove the bucket from the configuration, and migrate back to a file.
	if err := os.WriteFile(c.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if said := fails(t, c.at("north", "serve", "--node", "north")...); !strings.Contains(said, "put engine.blobs back") {
		t.Errorf("without the bucket: %s", said)
	}
	home := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\n" + largeArtifact}), "rouse.yaml")
	back := endtoend.Rouse(t, "engine", "migrate", "--from", c.url, "--blobs", at, "--config", home)
	back.Env = append(back.Env, "AWS_ACCESS_KEY_ID="+s3test.Access, "AWS_SECRET_ACCESS_KEY="+s3test.Secret)
	if err := back.Run(); err != nil {
		t.Fatalf("%v: %s", err, back.Err.String())
	}
	endtoend.AuditClean(t, home)
	p := endtoend.Rouse(t, "show", first.ID, "--json", "--config", home)
	if err := p.Run(); err != nil || !strings.Contains(p.Out.String(), strings.Repeat("x", 900)) {
		t.Errorf("back in a file: %v %.300s", err, p.Out.String()+p.Err.String())
	}

	// Migrate to another database and another prefix of the bucket.
	url, _ := ledgertest.Postgres(t)
	there := strings.Replace(at, "/rouse?", "/other?", 1)
	away := endtoend.Rouse(t, "engine", "migrate", "--to", url, "--blobs", there, "--node", "north", "--config", home)
	away.Env = append(away.Env, "AWS_ACCESS_KEY_ID="+s3test.Access, "AWS_SECRET_ACCESS_KEY="+s3test.Secret)
	if err := away.Run(); err != nil || !strings.Contains(away.Out.String(), `blobs: "`+there+`"`) {
		t.Fatalf("%v: %s%s", err, away.Out.String(), away.Err.String())
	}
	if n := countIn(t, url, `select count(*) from calls where envelope like 'blob:sha256:%'`); n != 2 {
		t.Errorf("%d large values went to the bucket", n)
	}
}

// countIn returns the result of a query for a number in another database.
func countIn(t *testing.T, url, query string) int {
	t.Helper()
	return cluster{db: ledgertest.OpenPostgres(t, url)}.count(t, query)
}
