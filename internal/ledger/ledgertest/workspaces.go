package ledgertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/workspace"
)

// by returns the author for a call of an attempt.
func by(a ledger.Attempt, key string) workspace.Author { return workspace.Author{Attempt: a, Key: key} }

func notes(name string) workspace.Workspace {
	return workspace.Workspace{Agent: "a", Skill: "notes", Name: name, SchemaVersion: "2", State: json.RawMessage(`{"n": 1}`)}
}

func state(s string) workspace.Change { return workspace.Change{State: json.RawMessage(s)} }

// workspaces tests that state outlives runs and restarts. A stale write is refused, a repeated call
// writes once, and only the running attempt of the workspace's agent can write.
func workspaces(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	a := start(t, l, enqueue(t, l, manual("j"))[0].Run)

	w := must[workspace.Workspace](t)(l.Workspaces.Create(ctx, by(a, "k1"), notes("trip")))
	if events := must[[]workspace.Event](t)(l.Workspaces.Events(ctx, w.ID, 10)); get(t, l, a.Run).Workspace != w.ID || len(events) != 2 || events[1].Kind != "begun" {
		t.Errorf("who creates it does not work in it: %+v", events)
	}
	if again := must[workspace.Workspace](t)(l.Workspaces.Create(ctx, by(a, "k1"), notes("trip"))); again.ID != w.ID {
		t.Errorf("a call that was made again created %d, before %d", again.ID, w.ID)
	}
	if w.Status != workspace.Active || w.LockVersion != 1 || w.SchemaVersion != "2" || string(w.State) != `{"n": 1}` {
		t.Errorf("created: %+v", w)
	}

	var wrong *workspace.Error
	if _, err := l.Workspaces.Create(ctx, by(a, "k2"), notes("trip")); !errors.As(err, &wrong) || wrong.Field != "name" {
		t.Errorf("the same name: %v", err)
	}
	for name, bad := range map[string]workspace.Workspace{
		"no name":     {Agent: "a", Skill: "notes"},
		"two lines":   notes("a\nb"),
		"long":        notes(strings.Repeat("x", 101)),
		"no object":   {Agent: "a", Skill: "notes", Name: "x", State: json.RawMessage(`[1]`)},
		"no JSON":     {Agent: "a", Skill: "notes", Name: "x", State: json.RawMessage(`{`)},
		"too large":   {Agent: "a", Skill: "notes", Name: "x", State: json.RawMessage(`{"x": "` + strings.Repeat("y", 256<<10) + `"}`)},
		"other agent": {Agent: "b", Skill: "notes", Name: "x"},
	} {
		if _, err := l.Workspaces.Create(ctx, by(a, "k3"), bad); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}

	// A state of the maximum size is accepted.
	most := notes(strings.Repeat("ü", 100))
	most.Agent = "c"
	most.State = json.RawMessage(`"` + strings.Repeat("y", 256<<10-9) + `"`)
	most.State = slices.Concat([]byte(`{"x": `), most.State, []byte(`}`))
	must[workspace.Workspace](t)(l.Workspaces.Create(ctx, workspace.Author{}, most))
	most.Name, most.State = "y", append(most.State, ' ')
	if _, err := l.Workspaces.Create(ctx, workspace.Author{}, most); !errors.As(err, &wrong) || wrong.Field != "state" {
		t.Errorf("a byte too many: %v", err)
	}

	phase := "draft"
	c := workspace.Change{LockVersion: 1, State: json.RawMessage(`{"n": 2}`), Phase: &phase}
	for range 2 { // the second call repeats the first after a crash
		if w = must[workspace.Workspace](t)(open(t).Workspaces.Change(ctx, by(a, "k4"), w.ID, c)); w.LockVersion != 2 {
			t.Errorf("changed: %+v", w)
		}
	}

	var conflict *workspace.ConflictError
	if _, err := l.Workspaces.Change(ctx, by(a, "k5"), w.ID, c); !errors.As(err, &conflict) || conflict.Given != 1 || conflict.Now != 2 || !strings.Contains(err.Error(), "lock version 2 by now, and 1 was given") {
		t.Errorf("a stale write: %v", err)
	}

	// The author's own later changes do not conflict. Changes of the owner do.
	since := workspace.Change{Since: 1, State: json.RawMessage(`{"n": 2}`)}
	must[workspace.Workspace](t)(l.Workspaces.Change(ctx, by(a, "k5a"), w.ID, since))
	owned := must[workspace.Workspace](t)(l.Workspaces.Create(ctx, workspace.Author{}, notes("other")))
	if events := must[[]workspace.Event](t)(l.Workspaces.Events(ctx, owned.ID, 10)); len(events) != 1 || events[0].Kind != "created" || events[0].Run != 0 {
		t.Errorf("its owner created it, and then: %+v", events)
	}
	must[workspace.Workspace](t)(l.Workspaces.Change(ctx, workspace.Author{}, owned.ID, state(`{"n": 9}`)))
	if _, err := l.Workspaces.Change(ctx, by(a, "k5b"), owned.ID, since); !errors.As(err, &conflict) || conflict.Given != 1 || conflict.Now != 2 {
		t.Errorf("after its owner wrote: %v", err)
	}
	since.Since = 2
	must[workspace.Workspace](t)(l.Workspaces.Change(ctx, by(a, "k5c"), owned.ID, since))

	read := must[workspace.Workspace](t)(open(t).Workspaces.Named(ctx, "a", "notes", "trip"))
	if string(read.State) != `{"n": 2}` || read.Phase != "draft" || read.LockVersion != 3 || read.UpdatedAt.IsZero() {
		t.Errorf("read: %+v", read)
	}

	// A run of another agent cannot see the workspace. A finished attempt cannot write.
	other := start(t, l, enqueue(t, l, ledger.Request{Job: "k", Agent: "b", Trigger: domain.TriggerManual})[0].Run)
	if _, err := l.Workspaces.Change(ctx, by(other, "k1"), w.ID, state(`{}`)); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("another agent's: %v", err)
	}
	if _, err := l.Workspaces.Enter(ctx, other, w.ID); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("another agent's: %v", err)
	}
	if got := kinds(t, l, event.Filter{Run: a.Run}); got != "run.queued run.started workspace.created workspace.begun workspace.changed workspace.changed workspace.begun workspace.changed" {
		t.Errorf("events of the run: %s", got)
	}
	ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	if _, err := l.Workspaces.Change(ctx, by(a, "k6"), w.ID, state(`{}`)); !errors.Is(err, ledger.ErrFenced) {
		t.Errorf("after its end: %v", err)
	}

	// The rows are kept when the run is deleted.
	ok(t, l.Finish(ctx, other, ledger.Result{Outcome: domain.OutcomeSuccess}))
	if n := must[int](t)(l.Maint.Prune(ctx, time.Now().Add(2*time.Hour), func(string) time.Duration { return time.Hour })); n != 2 {
		t.Errorf("%d runs were removed", n)
	}
	if left := must[[]workspace.Workspace](t)(l.Workspaces.List(ctx, workspace.Filter{Agent: "a"})); len(left) != 2 || left[1].LockVersion != 3 {
		t.Errorf("left: %+v", left)
	}
	// Paging returns the same list.
	var paged []int64
	for before := int64(0); ; before = paged[len(paged)-1] {
		page := must[[]workspace.Workspace](t)(l.Workspaces.List(ctx, workspace.Filter{Agent: "a", Before: before, Limit: 1}))
		if len(page) == 0 {
			break
		}
		paged = append(paged, page[0].ID)
	}
	if all := must[[]workspace.Workspace](t)(l.Workspaces.List(ctx, workspace.Filter{Agent: "a"})); len(paged) != len(all) || paged[0] != all[0].ID || paged[1] != all[1].ID {
		t.Errorf("page by page %v, at once %+v", paged, all)
	}
	var told []string
	for _, e := range must[[]workspace.Event](t)(l.Workspaces.Events(ctx, w.ID, 10)) {
		told = append(told, fmt.Sprint(e.Kind, e.LockVersion, string(e.Data)))
	}
	if got := strings.Join(told, " "); got != `created1 begun1 changed2{"phase":"draft","state":8} changed3{"state":8}` {
		t.Errorf("events: %s", got)
	}
}

// workspaceStatus tests that runs work only in active workspaces. A run cannot resume a workspace
// paused by the owner. A workspace in use cannot be archived.
func workspaceStatus(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	w := must[workspace.Workspace](t)(l.Workspaces.Create(ctx, workspace.Author{}, notes("trip")))
	move := func(by workspace.Author, to workspace.Status) error {
		_, err := l.Workspaces.Change(ctx, by, w.ID, workspace.Change{Status: to})
		return err
	}
	a := start(t, l, enqueue(t, l, manual("j"))[0].Run)
	must[workspace.Workspace](t)(l.Workspaces.Enter(ctx, a, w.ID))
	if r := get(t, l, a.Run); r.Workspace != w.ID {
		t.Errorf("the run works in %d", r.Workspace)
	}

	var wrong *workspace.Error
	var blocked *workspace.BlockedError
	if err := move(workspace.Author{}, workspace.Archived); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "rouse stop") {
		t.Errorf("archived under a run: %v", err)
	}

	ok(t, move(by(a, "k1"), workspace.Paused))
	if _, err := l.Workspaces.Change(ctx, by(a, "k2"), w.ID, state(`{}`)); !errors.As(err, &blocked) {
		t.Errorf("written while it is paused: %v", err)
	}
	if _, err := l.Workspaces.Change(ctx, by(a, "k2"), w.ID, workspace.Change{Status: workspace.Active, State: json.RawMessage(`{}`)}); !errors.As(err, &blocked) {
		t.Errorf("resumed and written in one: %v", err)
	}
	ok(t, move(by(a, "k3"), workspace.Active))
	ok(t, move(workspace.Author{}, workspace.Paused))
	if err := move(by(a, "k4"), workspace.Active); !errors.As(err, &blocked) {
		t.Errorf("resumed against its owner: %v", err)
	}

	ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	ok(t, move(workspace.Author{}, workspace.Archived))
	if err := move(workspace.Author{}, workspace.Paused); !errors.As(err, &wrong) {
		t.Errorf("paused in the archive: %v", err)
	}
	// The progress is the last one reported by the skill.
	for _, data := range []string{`{"percent":10}`, `{"percent":40}`} {
		ok(t, l.Events.Append(ctx, ledger.Event{Run: a.Run, Job: "j", Kind: event.Progress, Data: json.RawMessage(data)}))
	}
	if e, found, err := l.Events.Last(ctx, a.Run, event.Progress); err != nil || !found || string(e.Data) != `{"percent":40}` {
		t.Errorf("its progress: %+v %t %v", e, found, err)
	}
	if _, found, err := l.Events.Last(ctx, a.Run, "run.nothing"); err != nil || found {
		t.Errorf("what never happened: %t %v", found, err)
	}

	b := start(t, l, enqueue(t, l, manual("j"))[0].Run)
	if _, err := l.Workspaces.Enter(ctx, b, w.ID); !errors.As(err, &blocked) || !strings.Contains(err.Error(), "rouse workspaces resume") {
		t.Errorf("entered in the archive: %v", err)
	}
	ok(t, move(workspace.Author{}, workspace.Active))
	must[workspace.Workspace](t)(l.Workspaces.Enter(ctx, b, w.ID))
}

// workspaceArtifacts tests that versions form a chain with one current version, and that a version
// replaces its parent atomically. The owner's decision is separate from the status set by the
// skill.
func workspaceArtifacts(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	a := start(t, l, enqueue(t, l, manual("j"))[0].Run)
	w := must[workspace.Workspace](t)(l.Workspaces.Create(ctx, by(a, "k0"), notes("trip")))
	other := must[workspace.Workspace](t)(l.Workspaces.Create(ctx, by(a, "k00"), notes("other")))
	add := func(key string, parent int64, content []byte) (artifact.Artifact, error) {
		return l.Workspaces.AddArtifact(ctx, by(a, key), artifact.Artifact{Workspace: w.ID, Type: "markdown", Title: "../The plan", Role: "writer", Parent: parent}, content)
	}

	large := bytes.Repeat([]byte("0123456789"), 20_000)
	one := must[artifact.Artifact](t)(add("k1", 0, []byte("a\x00b")))
	two := must[artifact.Artifact](t)(add("k2", one.ID, large))
	if again := must[artifact.Artifact](t)(add("k2", one.ID, large)); again.ID != two.ID {
		t.Errorf("a call that was made again added %+v", again)
	}
	if one.Version != 1 || one.Status != artifact.StatusDraft || two.Version != 2 || two.Parent != one.ID || one.Role != "writer" || strings.ContainsAny(one.Name, `/\`) || strings.HasPrefix(one.Name, ".") {
		t.Errorf("%+v\n%+v", one, two)
	}

	var wrong *workspace.Error
	if _, err := add("k3", one.ID, nil); !errors.As(err, &wrong) || wrong.Field != "parent" {
		t.Errorf("a second version after the first: %v", err)
	}
	if _, err := add("k3", 99, nil); !errors.As(err, &wrong) {
		t.Errorf("a version of nothing: %v", err)
	}

	for title, c := range map[string]struct{ kind, name string }{
		"../The plan": {"markdown", "The-plan.md"}, " Ünï_code-7.md ": {"markdown", "Ünï_code-7.md"}, "a/b\\c\n": {"text", "a-b-c"}, ". .": {"text", "artifact"},
		strings.Repeat("x", 120): {"text", strings.Repeat("x", 120)}, strings.Repeat("x", 119) + "üx": {"text", strings.Repeat("x", 119)}, strings.Repeat("ü", 300): {"markdown", strings.Repeat("ü", 60) + ".md"},
	} {
		if a := must[artifact.Artifact](t)(l.Workspaces.AddArtifact(ctx, by(a, "named "+title), artifact.Artifact{Workspace: other.ID, Type: c.kind, Title: title}, nil)); a.Name != c.name {
			t.Errorf("%q of the type %s is named %q, want %q", title, c.kind, a.Name, c.name)
		}
	}
	for field, bad := range map[string]artifact.Artifact{
		"title": {Title: strings.Repeat("ü", 301)}, "type": {Title: "t", Type: "two\nlines"}, "status": {Title: "t", Status: strings.Repeat("x", 101)}, "role": {Title: "t", Role: " x"},
	} {
		bad.Workspace = other.ID
		if _, err := l.Workspaces.AddArtifact(ctx, by(a, "k5"), bad, nil); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("a wrong %s: %v", field, err)
		}
	}
	if _, err := l.Workspaces.AddArtifact(ctx, by(a, "k5"), artifact.Artifact{Workspace: other.ID, Title: "t"}, make([]byte, 8<<20+1)); !errors.As(err, &wrong) || wrong.Field != "content" {
		t.Errorf("a byte too many: %v", err)
	}
	must[artifact.Artifact](t)(l.Workspaces.AddArtifact(ctx, by(a, "k5"), artifact.Artifact{Workspace: other.ID, Title: "t"}, make([]byte, 8<<20)))

	status, ref := "approved", "ticket 7"
	for range 2 {
		if c := must[artifact.Artifact](t)(l.Workspaces.ChangeArtifact(ctx, by(a, "k4"), w.ID, two.ID, workspace.ArtifactChange{Status: &status, ApprovalRef: &ref})); c.Status != status || c.ApprovalRef != ref || c.Approval != "" {
			t.Errorf("what a skill calls approved: %+v", c)
		}
	}
	long := "two\nlines"
	for field, bad := range map[string]workspace.ArtifactChange{"status": {Status: &long}, "approval reference": {ApprovalRef: &long}} {
		if _, err := l.Workspaces.ChangeArtifact(ctx, by(a, "k6"), w.ID, two.ID, bad); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("a wrong %s: %v", field, err)
		}
	}
	if d := must[artifact.Artifact](t)(l.Workspaces.DecideArtifact(ctx, w.ID, two.ID, artifact.Rejected)); d.Status != status || d.Approval != artifact.Rejected {
		t.Errorf("decided: %+v", d)
	}
	if got := must[[]workspace.Event](t)(l.Workspaces.Events(ctx, w.ID, 2)); got[0].Kind != "artifact" || got[0].Run != a.Run || got[1].Kind != "approval" || got[1].Run != 0 {
		t.Errorf("the last events: %+v", got)
	}
	if _, err := l.Workspaces.DecideArtifact(ctx, other.ID, two.ID, artifact.Approved); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("of another workspace: %v", err)
	}

	ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	must[int](t)(l.Maint.Prune(ctx, time.Now().Add(2*time.Hour), func(string) time.Duration { return time.Hour }))
	chain := must[[]artifact.Artifact](t)(open(t).Workspaces.ArtifactChain(ctx, w.ID, one.ID))
	if len(chain) != 2 || chain[0].ID != one.ID || chain[0].Status != artifact.StatusSuperseded || chain[0].SupersededBy != two.ID || chain[1].Approval != artifact.Rejected {
		t.Errorf("the chain: %+v", chain)
	}
	if _, err := l.Workspaces.ArtifactChain(ctx, other.ID, one.ID); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("the chain in another workspace: %v", err)
	}
	if latest := must[[]artifact.Artifact](t)(l.Workspaces.Artifacts(ctx, w.ID, false)); len(latest) != 1 || latest[0].ID != two.ID {
		t.Errorf("what counts: %+v", latest)
	}
	if _, content, err := l.Artifacts.Bytes(ctx, a.Run, two.ID); err != nil || !bytes.Equal(content, large) {
		t.Errorf("%d bytes of the large one: %v", len(content), err)
	}
}

// workspaceReview tests that a run that fails in the middle of its changes blocks the workspace for
// other runs. The owner then accepts the workspace, restores it, or starts a new run from the
// checkpoint.
func workspaceReview(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	fail := func(name string, work func(a ledger.Attempt, w workspace.Workspace)) (workspace.Workspace, ledger.Attempt) {
		t.Helper()
		w := must[workspace.Workspace](t)(l.Workspaces.Create(ctx, workspace.Author{}, notes(name)))
		a := start(t, l, enqueue(t, l, manual("j"))[0].Run) //nolint:contextcheck // it has that of the test
		must[workspace.Workspace](t)(l.Workspaces.Enter(ctx, a, w.ID))
		work(a, w)
		ok(t, l.Interrupt(ctx, a, "killed", &ledger.Result{Outcome: domain.OutcomeInterrupted}))
		return must[workspace.Workspace](t)(l.Workspaces.Get(ctx, w.ID)), a
	}
	checkpointed := func(a ledger.Attempt, w workspace.Workspace) {
		must[workspace.Workspace](t)(l.Workspaces.Change(ctx, by(a, "k1"), w.ID, state(`{"n": 2}`)))
		for range 2 {
			must[workspace.Checkpoint](t)(l.Workspaces.AddCheckpoint(ctx, by(a, "k2"), workspace.Checkpoint{Workspace: w.ID, Step: "two", RunState: json.RawMessage(`{"done": 1}`)}))
		}
	}
	half := func(a ledger.Attempt, w workspace.Workspace) {
		checkpointed(a, w)
		must[workspace.Workspace](t)(l.Workspaces.Change(ctx, by(a, "k3"), w.ID, state(`{"n": 3}`)))
		must[artifact.Artifact](t)(l.Workspaces.AddArtifact(ctx, by(a, "k4"), artifact.Artifact{Workspace: w.ID, Title: "late"}, nil))
	}

	if w, _ := fail("in order", checkpointed); w.Review != 0 {
		t.Errorf("at its checkpoint: %+v", w)
	}
	if w, _ := fail("untouched", func(ledger.Attempt, workspace.Workspace) {}); w.Review != 0 {
		t.Errorf("untouched: %+v", w)
	}
	outside := func(a ledger.Attempt, _ workspace.Workspace) {
		ok(t, l.Steps.StartCall(ctx, a, ledger.Call{Step: 1, Key: "p1", Tool: "shell_run", Effect: domain.EffectExternal, StartedAt: time.Now()}))
	}
	if w, a := fail("outside", outside); w.Review != a.Run {
		t.Errorf("cut off in a call: %+v", w)
	}
	notBegun := func(a ledger.Attempt, w workspace.Workspace) {
		outside(a, w)
		ok(t, l.Steps.FinishCall(ctx, a, ledger.Call{Step: 1, Tool: "shell_run", State: domain.CallFailed, FinishedAt: time.Now()}))
	}
	if w, _ := fail("spawn failure", notBegun); w.Review != 0 {
		t.Errorf("what could not be started: %+v", w)
	}

	// If a run changed several workspaces, each has its own review.
	second := must[workspace.Workspace](t)(l.Workspaces.Create(ctx, workspace.Author{}, notes("second")))
	third := must[workspace.Workspace](t)(l.Workspaces.Create(ctx, workspace.Author{}, notes("third")))
	w, a := fail("first", func(a ledger.Attempt, w workspace.Workspace) {
		for _, id := range []int64{w.ID, second.ID, third.ID} {
			must[workspace.Workspace](t)(l.Workspaces.Change(ctx, by(a, fmt.Sprint("w", id)), id, state(`{"n": 2}`)))
		}
		must[workspace.Checkpoint](t)(l.Workspaces.AddCheckpoint(ctx, by(a, "last"), workspace.Checkpoint{Workspace: third.ID}))
	})
	for id, want := range map[int64]int64{w.ID: a.Run, second.ID: a.Run, third.ID: 0} {
		if w := must[workspace.Workspace](t)(l.Workspaces.Get(ctx, id)); w.Review != want {
			t.Errorf("%s: the review is of run %d, want %d", w.Name, w.Review, want)
		}
	}

	// Accept the workspace.
	w, a = fail("acknowledged", half)
	if w.Review != a.Run {
		t.Fatalf("half changed: %+v", w)
	}
	next := start(t, l, enqueue(t, l, manual("j"))[0].Run)
	var blocked *workspace.BlockedError
	if _, err := l.Workspaces.Enter(ctx, next, w.ID); !errors.As(err, &blocked) || !strings.Contains(err.Error(), fmt.Sprintf("rouse workspaces show %d", w.ID)) {
		t.Errorf("entered: %v", err)
	}
	if _, err := l.Workspaces.Change(ctx, by(next, "k1"), w.ID, workspace.Change{Status: workspace.Active}); !errors.As(err, &blocked) {
		t.Errorf("resumed by a run: %v", err)
	}
	infos := func(run int64) (open int) {
		for _, i := range must[[]inbox.Item](t)(l.Inbox.List(ctx)) {
			if i.Run == run && strings.HasPrefix(i.Call, workspace.Call) {
				open++
			}
		}
		return open
	}
	if _, err := l.Retry(ctx, a.Run); !errors.As(err, &blocked) {
		t.Errorf("the run tried again: %v", err)
	}
	if n := infos(a.Run); n != 1 {
		t.Errorf("%d infos", n)
	}
	if n := must[int](t)(l.Maint.Prune(ctx, time.Now().Add(1000*time.Hour), func(string) time.Duration { return time.Hour })); n == 0 || get(t, l, a.Run).ID == 0 {
		t.Errorf("%d runs were removed", n)
	}
	if w = must[workspace.Workspace](t)(l.Workspaces.AcknowledgeReview(ctx, w.ID)); w.Review != 0 || string(w.State) != `{"n": 3}` || infos(a.Run) != 0 {
		t.Errorf("acknowledged: %+v", w)
	}
	events := must[[]workspace.Event](t)(l.Workspaces.Events(ctx, w.ID, 1))
	if e := events[0]; e.Kind != "acknowledged" || e.LockVersion != w.LockVersion {
		t.Errorf("the last event: %+v", e)
	}
	must[workspace.Workspace](t)(l.Workspaces.Enter(ctx, next, w.ID))
	var wrong *workspace.Error
	if _, err := l.Workspaces.DiscardReview(ctx, w.ID); !errors.As(err, &wrong) {
		t.Errorf("a second decision: %v", err)
	}

	// Restore the workspace.
	w, _ = fail("discarded", half)
	w = must[workspace.Workspace](t)(l.Workspaces.DiscardReview(ctx, w.ID))
	if left := must[[]artifact.Artifact](t)(l.Workspaces.Artifacts(ctx, w.ID, false)); w.Review != 0 || string(w.State) != `{"n": 2}` || len(left) != 0 {
		t.Errorf("discarded: %+v, %+v", w, left)
	}
	all := must[[]artifact.Artifact](t)(l.Workspaces.Artifacts(ctx, w.ID, true))
	if len(all) != 1 || all[0].Status != artifact.StatusDiscarded {
		t.Fatalf("discarded: %+v", all)
	}
	if _, err := l.Workspaces.DecideArtifact(ctx, w.ID, all[0].ID, artifact.Approved); !errors.As(err, &wrong) {
		t.Errorf("what was discarded was approved: %v", err)
	}

	// Retry the run.
	w, a = fail("retried", half)
	r := must[ledger.Run](t)(l.RetryReview(ctx, w.ID))
	if r.ID == a.Run || r.Workspace != w.ID || r.Job != "j" || r.State != domain.StateQueued {
		t.Errorf("the new run: %+v", r)
	}
	b := start(t, l, r.ID)
	w = must[workspace.Workspace](t)(l.Workspaces.Enter(ctx, b, w.ID))
	c := must[workspace.Checkpoint](t)(l.Workspaces.LastCheckpoint(ctx, b.Run))
	if string(w.State) != `{"n": 2}` || string(c.RunState) != `{"done": 1}` || c.Step != "two" || c.Run != b.Run || c.Key != "" {
		t.Errorf("it begins with %+v and %+v", w, c)
	}
	if runs := must[[]ledger.Run](t)(l.Workspaces.Runs(ctx, w.ID, 10)); len(runs) != 2 || runs[0].ID != b.Run {
		t.Errorf("its runs: %+v", runs)
	}
}

// skillEvents tests that a skill's own events are recorded once for each call. Their kind has a
// prefix, and they do not change the lock version.
func skillEvents(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	a := start(t, l, enqueue(t, l, manual("j"))[0].Run)
	w := must[workspace.Workspace](t)(l.Workspaces.Create(ctx, by(a, "k0"), notes("trip")))
	most := strings.Repeat("x", 16<<10-len(`{"x":""}`))
	var wrong *workspace.Error
	for field, bad := range map[string]struct {
		kind string
		data map[string]any
	}{"kind": {"two\nlines", nil}, "data": {"sent", map[string]any{"x": most + "x"}}} {
		if err := l.Workspaces.AddEvent(ctx, by(a, "k1"), w.ID, bad.kind, bad.data); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("a wrong %s: %v", field, err)
		}
	}
	if err := l.Workspaces.AddEvent(ctx, by(a, "k1"), w.ID, "sent", map[string]any{"x": func() {}}); !errors.As(err, &wrong) || wrong.Field != "data" {
		t.Errorf("what is no JSON: %v", err)
	}

	for range 2 { // the second calls repeat the first after a crash
		ok(t, l.Workspaces.AddEvent(ctx, by(a, "k1"), w.ID, "changed", map[string]any{"to": "bob"}))
		ok(t, l.Workspaces.AddEvent(ctx, by(a, "k2"), w.ID, workspace.JobEvent, nil))
		ok(t, l.Workspaces.AddEvent(ctx, by(a, "k3"), w.ID, "sent", map[string]any{"x": most}))
	}
	var told []string
	for _, e := range must[[]workspace.Event](t)(l.Workspaces.Events(ctx, w.ID, 10)) {
		told = append(told, fmt.Sprintf("%s%d%.12s", e.Kind, e.LockVersion, e.Data))
	}
	if got := strings.Join(told, " "); got != `created1 begun1 skill.changed1{"to":"bob"} job1 skill.sent1{"x":"xxxxxx` {
		t.Errorf("events: %s", got)
	}
}

// checkpoints tests that the run state of a checkpoint is JSON of limited size, and that each
// checkpoint causes an event.
func checkpoints(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	a := start(t, l, enqueue(t, l, manual("j"))[0].Run)
	most := `"` + strings.Repeat("x", 256<<10-2) + `"`
	var wrong *workspace.Error
	for key, bad := range map[string]string{"large": most + " ", "no JSON": "{", "a word": "done"} {
		if _, err := l.Workspaces.AddCheckpoint(ctx, by(a, key), workspace.Checkpoint{RunState: json.RawMessage(bad)}); !errors.As(err, &wrong) || wrong.Field != "state" {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, err := l.Workspaces.AddCheckpoint(ctx, by(a, "step"), workspace.Checkpoint{Step: "two\nlines"}); !errors.As(err, &wrong) || wrong.Field != "step" {
		t.Errorf("a wrong step: %v", err)
	}

	for i, good := range []string{"", most, `{"done": 1}`} {
		key, want := fmt.Sprint("k", i), good
		if good == "" {
			want = "null"
		}
		for range 2 { // the second call repeats the first after a crash
			must[workspace.Checkpoint](t)(l.Workspaces.AddCheckpoint(ctx, by(a, key), workspace.Checkpoint{Step: key, RunState: json.RawMessage(good)}))
		}
		if c := must[workspace.Checkpoint](t)(l.Workspaces.LastCheckpoint(ctx, a.Run)); c.Key != key || c.Step != key || string(c.RunState) != want {
			t.Errorf("the last: %+v", c)
		}
	}
	if got := kinds(t, l, event.Filter{Run: a.Run}); got != "run.queued run.started run.checkpoint run.checkpoint run.checkpoint" {
		t.Errorf("events: %s", got)
	}
}

// workspaceRemade tests that after a discarded review, a retried run can repeat the writes with the
// same calls.
func workspaceRemade(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	w := must[workspace.Workspace](t)(l.Workspaces.Create(ctx, workspace.Author{}, notes("trip")))
	a := start(t, l, enqueue(t, l, manual("j"))[0].Run)
	must[workspace.Workspace](t)(l.Workspaces.Enter(ctx, a, w.ID))
	write := func(a ledger.Attempt) (workspace.Workspace, artifact.Artifact) {
		t.Helper()
		must[workspace.Workspace](t)(l.Workspaces.Change(ctx, by(a, "k1"), w.ID, state(`{"n": 2}`)))
		must[workspace.Checkpoint](t)(l.Workspaces.AddCheckpoint(ctx, by(a, "k2"), workspace.Checkpoint{Workspace: w.ID, Step: "two"}))
		w := must[workspace.Workspace](t)(l.Workspaces.Change(ctx, by(a, "k3"), w.ID, state(`{"n": 3}`)))
		return w, must[artifact.Artifact](t)(l.Workspaces.AddArtifact(ctx, by(a, "k4"), artifact.Artifact{Workspace: w.ID, Title: "late"}, []byte("x")))
	}

	_, first := write(a)
	ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeError, Error: "it broke"}))
	if keys := must[[]string](t)(l.Workspaces.DiscardedCalls(ctx, a.Run)); len(keys) != 0 {
		t.Errorf("before the decision: %q", keys)
	}
	must[workspace.Workspace](t)(l.Workspaces.DiscardReview(ctx, w.ID))
	keys := must[[]string](t)(open(t).Workspaces.DiscardedCalls(ctx, a.Run))
	slices.Sort(keys)
	if !slices.Equal(keys, []string{"k3", "k4"}) {
		t.Errorf("discarded: %q", keys)
	}

	must[ledger.Run](t)(l.Retry(ctx, a.Run))
	b := start(t, l, a.Run)
	after, second := write(b)
	if string(after.State) != `{"n": 3}` || second.ID == first.ID || second.Version != 2 || second.Discarded {
		t.Errorf("written again: %+v, %+v", after, second)
	}
	if keys := must[[]string](t)(l.Workspaces.DiscardedCalls(ctx, a.Run)); len(keys) != 0 {
		t.Errorf("after they were made again: %q", keys)
	}
	if left := must[[]artifact.Artifact](t)(l.Workspaces.Artifacts(ctx, w.ID, false)); len(left) != 1 || left[0].ID != second.ID {
		t.Errorf("artifacts: %+v", left)
	}
}

// inputSchema tests that an answer is checked against its schema, with an error for each invalid
// field. A repeated identical answer is accepted.
func inputSchema(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	run := enqueue(t, l, manual("j"))[0].Run
	q := question("Where to?")
	q.InputSchema = json.RawMessage(`{"type": "object", "required": ["city", "nights"], "properties": {"city": {"type": "string"}, "nights": {"type": "integer"}}}`)
	ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Wait: q}))

	l = open(t)
	item := must[[]inbox.Item](t)(l.Inbox.List(ctx))[0]
	if string(item.InputSchema) != string(q.InputSchema) {
		t.Errorf("the item: %+v", item)
	}

	var wrong *inbox.AnswerError
	if _, err := l.Answer(ctx, item.ID, `{"nights": "x"}`); !errors.As(err, &wrong) || !errors.Is(err, inbox.ErrInvalidAnswer) || len(wrong.Problems) != 2 || wrong.Problems[0].Field != "city" || wrong.Problems[1].Field != "nights" {
		t.Errorf("a wrong answer: %v", err)
	}
	if _, err := l.Answer(ctx, item.ID, "Rome"); !errors.As(err, &wrong) {
		t.Errorf("no JSON: %v", err)
	}

	must[ledger.Run](t)(l.Answer(ctx, item.ID, `{"nights": 2, "city": "Rome"}`))
	if again := must[ledger.Run](t)(l.Answer(ctx, item.ID, ` {"city":"Rome","nights":2}`)); again.ID != run {
		t.Errorf("the same answer again: %+v", again)
	}
	if _, err := l.Answer(ctx, item.ID, `{"nights": 3, "city": "Rome"}`); !errors.Is(err, inbox.ErrClosed) {
		t.Errorf("another answer: %v", err)
	}
	if item = must[inbox.Item](t)(l.Inbox.Get(ctx, item.ID)); item.Answer != `{"city":"Rome","nights":2}` || item.State != inbox.ItemAnswered {
		t.Errorf("answered: %+v", item)
	}
	if events := must[[]ledger.Event](t)(l.Events.List(ctx, event.Filter{Run: run})); strings.Count(fmt.Sprintf("%+v", events), "run.answered") != 1 {
		t.Errorf("events: %+v", events)
	}
}
