package ledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/label"
	"rouse/internal/ledger/ledgertest"
	"rouse/internal/ledger/node"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/steps"
	"rouse/internal/ledger/store"
	"rouse/internal/ledger/wake"
	"rouse/internal/ledger/workspace"
	"rouse/internal/storage/objects"
)

// readers are the methods of a ledger that do not write, or only write a file.
var readers = strings.Fields(`Artifacts.Bytes Artifacts.List BackUpDaily Backup Backups Blobs.Check Blobs.Exclude Blobs.Fault Blobs.Hold Blobs.Pack Blobs.Problem Blobs.Remove Blobs.Unpack
	Blobs.UnpackBytes Blobs.UnpackColumn Budget.SpendingOn Budget.SpentSince Changed CheckFile Claims.Of Claims.OfRun Claims.OnPath Claims.PendingAfterMoves Close Damaged
	Epoch EpochOf Epochs Events.Between Events.Last Events.List Events.Newest File FileOps.Before FileOps.List FileOps.SavedBytes FileState GiveSpaceBack ID Inbox.Closed
	Inbox.Get Inbox.HasStandingApproval Inbox.List Inbox.OfRun Inbox.Overdue Inbox.StandingApprovals Incidents.List JobState Jobs KeepReserve Labels.List Labels.Of
	Labels.Unlabelled NewestRun DiskFull Nodes.AgentCopies Nodes.AgentHomes Nodes.Alive Nodes.Lead Nodes.Leader Nodes.List Nodes.Membership Nodes.OfAttempts
	Nodes.Orphans Nodes.RiverJobs Nodes.RiverSchema Nodes.SentRuns Now Occurrences.Around Occurrences.Latest Occurrences.List Occurrences.NotRun OpenObstacles Outbox.Last
	Outbox.Next Outbox.Pending Outbox.Undelivered Pauses.List Pauses.Models PlanChanged ReadOnly Redact RedactWith Runs.Attempts Runs.Blocked Runs.ByID Runs.ByKey
	Runs.Cancelling Runs.Claimable Runs.Counts Runs.Delayed Runs.DeliveryBody Runs.EndedBetween Runs.ForPersons Runs.Get Runs.Held Runs.Last Runs.LastDone Runs.LastTimes
	Runs.LastUsages Runs.List Runs.NextDue Runs.OthersAround Runs.OutcomeOf Runs.Queued Runs.QueuedOf Runs.Running Runs.Unfinished Skew Snapshot Steps.Calls Steps.List
	WaitChecked Wakes.List Wakes.Next Wakes.Usage Watches.State Watches.States Workspaces.ArtifactChain Workspaces.Artifacts Workspaces.DiscardedCalls Workspaces.Events
	Workspaces.Get Workspaces.LastCheckpoint Workspaces.List Workspaces.Named Workspaces.Runs WritesFail`)

// Not tested: Join registers another node of the process, TakeBack depends on the live nodes, and
// the others are only for tests.
var notFenced = []string{"Nodes.Join", "Exec", "SetFailing", "Nodes.TakeBack"}

// TestFence takes the lease of a node away and calls every method that writes. Each call must
// return an error and change no row. New methods are called automatically with values of their
// types, unless they are listed in readers.
func TestFence(t *testing.T) {
	t.Parallel()
	url, _ := ledgertest.Postgres(t)
	db := ledgertest.OpenPostgres(t, url)
	f := newFenced(t, ledgertest.OpenOn(t, url))
	for _, statement := range []string{`insert into agent_homes (agent, node, since) values ('a', 'ships', 0)`, `insert into agent_copies (agent, name, part, data) values ('a', 'db/0/0', 0, 'x')`} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	before, place := contents(t, db), newFlaky(t)

	tried, known := 0, map[string]bool{}
	for _, m := range methodsOfLedger() {
		known[m.name] = true
		if slices.Contains(readers, m.name) || slices.Contains(notFenced, m.name) {
			continue
		}
		tried++
		l, lost := lostNode(t, url, m.name, place, db)
		err := f.call(t, l, m)
		if !errors.Is(err, ledger.ErrLeaseLost) {
			t.Errorf("%s of a node that has lost its lease: %v", m.name, err)
		}
		if now := contents(t, db); now != before {
			t.Errorf("%s wrote:\n%s\nbefore\n%s", m.name, now, before)
			before = now
		}
		if err := lost.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if tried < 70 {
		t.Errorf("only %d methods were tried", tried)
	}
	for _, name := range slices.Concat(readers, notFenced) {
		if !known[name] {
			t.Errorf("there is no method %s any more", name)
		}
	}

	// Copies of agents are written outside those methods.
	l, lost := lostNode(t, url, "ships", place, db)
	copies := l.Nodes.AgentCopies(node.AgentHome{Agent: "a", Node: "ships", Lease: 1})
	for what, err := range map[string]error{
		"an object": copies.Put(t.Context(), "db/0/1", strings.NewReader("x"), 1), "a large one": copies.Put(t.Context(), "db/0/2", strings.NewReader(strings.Repeat("x", 3<<20)), 3<<20), "its state": copies.Keep(t.Context(), node.HomeKept),
	} {
		if !errors.Is(err, ledger.ErrLeaseLost) {
			t.Errorf("%s of a node that has lost its lease: %v", what, err)
		}
	}
	if err := errors.Join(copies.Delete(t.Context(), "db/0/0"), lost.Leave(t.Context())); err != nil {
		t.Error(err)
	}
	if now := contents(t, db); now != before {
		t.Errorf("it ships:\n%s\nbefore\n%s", now, before)
	}

	// The node's own row is not part of the record, but requires the lease, too.
	l, lost = lostNode(t, url, "config", place, db)
	if err := lost.SetConfig(t.Context(), "another"); err != nil {
		t.Error(err)
	}
	all, err := l.Nodes.List(t.Context())
	if i := slices.IndexFunc(all, func(n node.Node) bool { return n.Name == "config" }); err != nil || i < 0 || all[i].Config != "" {
		t.Errorf("a lost node changed its own row: %+v %v", all, err)
	}
	if err := lost.Leave(t.Context()); err != nil {
		t.Error(err)
	}
}

// lostNode returns a node that has just lost its lease without knowing it.
func lostNode(t *testing.T, url, name string, place objects.Store, db *sql.DB) (*ledger.Ledger, *node.Membership) {
	t.Helper()
	l := withValues(t, url, place)
	m, err := l.Nodes.Join(t.Context(), node.Node{Name: name, Host: "here", PID: 1, Triggers: true, Lanes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `update nodes set gone_at = 1, why = 'a test' where id = $1`, m.Node().ID); err != nil {
		t.Fatal(err)
	}
	return l, m
}

// contents returns the rows of all tables except the nodes.
func contents(t *testing.T, db *sql.DB) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `select table_name from information_schema.tables where table_schema = current_schema() and table_name <> 'nodes' order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var parts []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, fmt.Sprintf(`select '%[1]s ' || count(*) || ' ' || coalesce(md5(string_agg(r::text, ' ' order by r::text)), '') from %[1]s r`, name))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}

	var all string
	if err := db.QueryRowContext(t.Context(), `select string_agg(line, E'\n' order by line) from (`+strings.Join(parts, " union all ")+`) tables(line)`).Scan(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// fenced is a ledger in which each method has rows to write.
type fenced struct {
	queued, running int64
	attempt         ledger.Attempt
	// arguments has the arguments after the context for methods that would fail before they write.
	arguments map[string][]any
}

func newFenced(t *testing.T, l *ledger.Ledger) *fenced {
	t.Helper()
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	accepted, err := l.Enqueue(ctx, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI}, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI}, ledger.Request{Job: "old", Agent: "a", Trigger: domain.TriggerAPI})
	check(err)
	f := &fenced{queued: accepted[0].Run, running: accepted[1].Run}
	_, f.attempt, err = l.StartAttempt(ctx, f.running)
	check(err)
	_, over, err := l.StartAttempt(ctx, accepted[2].Run)
	check(err)
	check(l.Labels.RecordTaint(ctx, over, label.TaintUpdate{Taint: label.TaintUntrusted, Writes: []label.Place{label.TablePlace("a", "")}}))
	check(l.Finish(ctx, over, ledger.Result{Outcome: domain.OutcomeSuccess}))
	_, err = l.Wakes.Set(ctx, wake.Wake{Agent: "a", At: time.Now().Add(time.Hour)}, wake.Usage{})
	check(err)
	_, err = l.Outbox.DigestThrough(ctx, "known", time.Now())
	check(err)

	now := time.Now()
	f.arguments = map[string][]any{
		"Workspaces.AddCheckpoint":  {workspace.Author{Attempt: f.attempt, Key: "k"}, workspace.Checkpoint{Step: "one"}},
		"Workspaces.AddArtifact":    {workspace.Author{Attempt: f.attempt, Key: "k"}, artifact.Artifact{Title: "plan"}, []byte("x")},
		"Workspaces.AddEvent":       {workspace.Author{Attempt: f.attempt, Key: "k"}, int64(1), "note", map[string]any{}},
		"Wakes.CancelExcept":        {[]string{}},
		"Workspaces.Change":         {workspace.Author{Attempt: f.attempt, Key: "k"}, int64(1), workspace.Change{State: []byte(`{}`)}},
		"Labels.Clear":              {label.TaintUntrusted, label.TablePlace("a", "")},
		"Workspaces.Create":         {workspace.Author{Attempt: f.attempt, Key: "k"}, workspace.Workspace{Agent: "a", Skill: "notes", Name: "trip", SchemaVersion: "1", State: []byte(`{}`)}},
		"Workspaces.DecideArtifact": {int64(1), int64(1), artifact.Approved},
		"Outbox.KeepDigests":        {map[string]bool{}},
		"Maint.Prune":               {now.Add(1000 * time.Hour), func(string) time.Duration { return time.Hour }},
		"Pauses.Set":                {pause.Pause{Scope: pause.All}},
		"Wakes.Set":                 {wake.Wake{Agent: "a"}, wake.Usage{}},
		"Start":                     {ledger.Start{Run: f.queued}},
		"StartAttempt":              {f.queued},
		"StartAttempts":             {f.queued},
	}
	return f
}

// method is a method of the ledger, or of one of its parts: Prune, Budget.Reserve.
type method struct {
	reflect.Method
	name string
	part int // index of the ledger's field that has the method; -1 for the ledger itself
}

// methodsOfLedger returns the methods of the ledger and of its parts, except those that are called
// within a transaction.
func methodsOfLedger() []method {
	var all []method
	add := func(of reflect.Type, prefix string, part int) {
		for m := range of.Methods() {
			if m.Type.NumIn() < 2 || m.Type.In(1) != reflect.TypeFor[*store.Tx]() {
				all = append(all, method{m, prefix + m.Name, part})
			}
		}
	}
	l := reflect.TypeFor[ledger.Ledger]()
	add(reflect.PointerTo(l), "", -1)
	for i := range l.NumField() {
		if f := l.Field(i); f.IsExported() && !f.Anonymous {
			add(f.Type, f.Name+".", i)
		}
	}
	return all
}

// call calls a method with its arguments, or with values of their types, and returns its error.
func (f *fenced) call(t *testing.T, l *ledger.Ledger, m method) error {
	t.Helper()
	args := []reflect.Value{reflect.ValueOf(l)}
	if m.part >= 0 {
		args[0] = args[0].Elem().Field(m.part)
	}
	given, known := f.arguments[m.name]
	for i := 1; i < m.Type.NumIn(); i++ {
		in := m.Type.In(i)
		if m.Type.IsVariadic() && i == m.Type.NumIn()-1 {
			in = in.Elem()
		}
		switch {
		case in == reflect.TypeFor[context.Context]():
			args = append(args, reflect.ValueOf(t.Context()))
		case known:
			args = append(args, reflect.ValueOf(given[i-2]).Convert(in))
		default:
			args = append(args, f.some(in))
		}
	}

	out := m.Func.Call(args)
	err, _ := out[len(out)-1].Interface().(error)
	return err
}

// some returns a value of a type that methods do not reject before they write.
func (f *fenced) some(t reflect.Type) reflect.Value {
	switch t {
	case reflect.TypeFor[ledger.Attempt]():
		return reflect.ValueOf(f.attempt)
	case reflect.TypeFor[ledger.Entry]():
		return reflect.ValueOf(steps.StepStarted(steps.Step{Number: 1}))
	case reflect.TypeFor[time.Time]():
		return reflect.ValueOf(time.Now())
	}
	v := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Int64:
		v.SetInt(f.running)
	case reflect.String:
		v.SetString("x")
	case reflect.Slice:
		v.Set(reflect.Append(v, f.some(t.Elem())))
	}
	return v
}
