package ledgertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/pause"
)

// Watches runs the conformance tests for watches.
func Watches(t *testing.T, fresh func(t *testing.T) Open) {
	for name, test := range map[string]func(*testing.T, Open){
		"ManyFiles": manyFiles, "ManyFilesRace": manyFilesRace, "WatchStateKept": watchStateKept, "WatchStateWithRun": watchStateWithRun,
		"FinishAfterMove": finishAfterMove, "OwnOutput": ownOutput, "Breaker": breaker, "OutcomeOf": outcomeOf,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, fresh(t))
		})
	}
}

// drops returns a request for one run for several files of a job.
func drops(job string, names ...string) ledger.Request {
	r := ledger.Request{Job: job, Agent: "a", Trigger: domain.TriggerWatch, Detail: ledger.TriggerDetail{More: 7}}
	for _, name := range names {
		r.Detail.Files = append(r.Detail.Files, ledger.File{Path: "/in/" + name, Name: name, Hash: "h-" + name})
		r.Claims = append(r.Claims, claim.Claim{Job: job, Path: "/in/" + name, Hash: "h-" + name})
	}
	return r
}

func filesOf(t *testing.T, l *ledger.Ledger, run int64) []string {
	t.Helper()
	var d ledger.TriggerDetail
	ok(t, json.Unmarshal(get(t, l, run).Detail, &d))
	var names []string
	for _, f := range d.Files {
		names = append(names, f.Name)
	}

	return names
}

// moved records that a file was moved.
func moved(t *testing.T, l *ledger.Ledger, c claim.Status, dest string) {
	t.Helper()
	if !must[bool](t)(l.Claims.FinishAfterMove(t.Context(), c, claim.AfterDone, dest, "")) {
		t.Fatalf("%+v is ended already", c)
	}
}

// manyFiles tests that one run claims many files, except those already claimed. Each file has its
// own state.
func manyFiles(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	one := enqueue(t, l, drops("in", "a", "b"))[0]
	two := enqueue(t, l, drops("in", "b", "c", "a", "d"))[0]
	if got := filesOf(t, l, one.Run); !one.New || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%+v of %v", one, got)
	}
	if got := filesOf(t, l, two.Run); !two.New || two.Run == one.Run || !slices.Equal(got, []string{"c", "d"}) {
		t.Errorf("%+v of %v", two, got)
	}
	if three := enqueue(t, l, drops("in", "a", "d"))[0]; three.New || !three.Blocked {
		t.Errorf("a run of nothing: %+v", three)
	}

	if other := enqueue(t, l, drops("other", "a"))[0]; !other.New {
		t.Errorf("another job's file: %+v", other)
	}

	ok(t, l.Finish(ctx, start(t, l, one.Run), ledger.Result{Outcome: domain.OutcomeError}))
	pending := must[[]claim.Status](t)(l.Claims.PendingAfterMoves(ctx, 10))
	if len(pending) != 2 || pending[0].Run != one.Run || pending[1].Outcome != domain.OutcomeError {
		t.Fatalf("%+v", pending)
	}

	for _, c := range pending {
		moved(t, l, c, "/failed/"+c.Path)
	}

	changed := drops("in", "b") // one of the two files is dropped again, under another definition of the job
	changed.Detail.Definition = "another"
	again := enqueue(t, l, changed)[0]
	if !again.New {
		t.Fatalf("%+v", again)
	}
	if retried := must[ledger.Run](t)(l.Retry(ctx, one.Run)); retried.State != domain.StateQueued {
		t.Errorf("%+v", retried)
	}

	ok(t, l.Finish(ctx, start(t, l, one.Run), ledger.Result{Outcome: domain.OutcomeSuccess}))
	pending = must[[]claim.Status](t)(l.Claims.PendingAfterMoves(ctx, 10))
	if len(pending) != 1 || pending[0].Path != "/in/a" || pending[0].Dest != "/failed//in/a" {
		t.Errorf("what is due after another try: %+v", pending)
	}
}

// manyFilesRace tests that each file is in one run, even with concurrent requests.
func manyFilesRace(t *testing.T, open Open) {
	l := open(t)
	names := []string{"a", "b", "c", "d", "e"}
	const n = 8
	type answer struct {
		accepted ledger.Accepted
		err      error
	}
	answers := make(chan answer, n)
	for i := range n {
		// Each caller requests three of the five names, so that the callers compete for all of
		// them.
		mine := slices.Concat(names[i%5:], names[:i%5])[:3]
		slices.Sort(mine)
		go func() {
			got, err := l.Enqueue(t.Context(), drops("in", mine...))
			if err != nil {
				answers <- answer{err: err}
				return
			}
			answers <- answer{accepted: got[0]}
		}()
	}

	seen := map[string]int{}
	for range n {
		a := <-answers
		ok(t, a.err)
		if a.accepted.New {
			for _, name := range filesOf(t, l, a.accepted.Run) {
				seen[name]++
			}
		}
	}

	for _, name := range names {
		if seen[name] != 1 {
			t.Errorf("%s is in %d runs", name, seen[name])
		}
	}
}

// watchStateKept tests that the state of a watch survives a restart and can be deleted.
func watchStateKept(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	if _, known, err := l.Watches.State(ctx, "none"); known || err != nil {
		t.Errorf("%v %v", known, err)
	}

	since := time.Unix(1_700_000_000, 123e6).UTC()
	one := claim.WatchState{Job: "one", Since: since, Fingerprint: "p", Tree: strings.Repeat("tree ", 100_000), Round: 3, Run: 9}
	two := claim.WatchState{Job: "two", Since: since}
	ok(t, l.Watches.Save(ctx, one, two))
	got, known, err := l.Watches.State(ctx, "one")
	if !known || err != nil || got != one {
		t.Errorf("%v %v, %.80v", known, err, got)
	}

	one.Tree = ""
	all := must[map[string]claim.WatchState](t)(l.Watches.States(ctx))
	if !maps.Equal(all, map[string]claim.WatchState{"one": one, "two": two}) {
		t.Errorf("%+v", all)
	}

	two.Round = 1
	ok(t, l.Watches.Save(ctx, two))
	ok(t, l.Watches.Delete(ctx, "none", "one"))
	all = must[map[string]claim.WatchState](t)(l.Watches.States(ctx))
	if !maps.Equal(all, map[string]claim.WatchState{"two": two}) {
		t.Errorf("%+v", all)
	}
}

// watchStateWithRun tests that the state of a watch is written in the transaction that queues its
// run.
func watchStateWithRun(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	ask := ledger.Request{Key: "folder/1", Job: "in", Agent: "a", Trigger: domain.TriggerWatch, Watch: &claim.WatchState{Job: "in", Fingerprint: "first", Round: 1}}
	one := enqueue(t, l, ask)[0]
	st, known, err := l.Watches.State(ctx, "in")
	if !one.New || !known || err != nil || st.Fingerprint != "first" || st.Run != one.Run {
		t.Errorf("%+v: %+v %v (%v)", one, st, known, err)
	}

	// The same key again: a daemon killed after the commit repeats its request.
	ask.Watch = &claim.WatchState{Job: "in", Fingerprint: "second", Round: 2}
	two := enqueue(t, l, ask)[0]
	if st, _, err := l.Watches.State(ctx, "in"); two.New || two.Run != one.Run || err != nil || st.Fingerprint != "first" {
		t.Errorf("a run that was there already: %+v: %+v (%v)", two, st, err)
	}

	bad := ask
	bad.Key, bad.Detail = "folder/2", ledger.TriggerDetail{Args: json.RawMessage("{")}
	if _, err := l.Enqueue(ctx, bad); err == nil {
		t.Error("a request that cannot be recorded was taken")
	}
	if st, _, err := l.Watches.State(ctx, "in"); err != nil || st.Fingerprint != "first" {
		t.Errorf("%+v (%v)", st, err)
	}
}

// finishAfterMove tests that the result of moving a file after one outcome is not recorded for the
// next outcome.
func finishAfterMove(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	run := enqueue(t, l, drops("in", "a"))[0].Run
	ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeError}))
	failed := must[[]claim.Status](t)(l.Claims.PendingAfterMoves(ctx, 10))[0]
	must[ledger.Run](t)(l.Retry(ctx, run))
	ended := func(c claim.Status, want bool) {
		t.Helper()
		if got := must[bool](t)(l.Claims.FinishAfterMove(ctx, c, claim.AfterLeft, "", "")); got != want {
			t.Errorf("%+v is ended: %v", c, got)
		}
	}

	// The retried run needs the current path of its file. It comes from the process that moved the
	// file or from one that finds it later.
	status := func(after, dest string) claim.Status {
		t.Helper()
		c, _, err := l.Claims.Of(ctx, failed.Job, failed.Path, failed.Hash)
		if ok(t, err); c.After != after || c.Dest != dest {
			t.Errorf("%+v, want %q and %q", c, after, dest)
		}
		return c
	}
	retried := status(claim.AfterPending, "")
	if retried.Outcome != "" {
		t.Errorf("%+v", retried)
	}
	ended(failed, false)
	status(claim.AfterPending, "")
	if must[bool](t)(l.Claims.FinishAfterMove(ctx, failed, claim.AfterDone, "/failed/a", "")) {
		t.Error("a move after the earlier outcome counts as the one after the next")
	}
	status(claim.AfterNone, "/failed/a")

	ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeError}))
	must[ledger.Run](t)(l.Retry(ctx, run))
	if !must[bool](t)(l.Claims.FinishAfterMove(ctx, retried, claim.AfterNone, "/failed/a-2", "")) {
		t.Error("nobody may say where the file of a retried run is")
	}
	status(claim.AfterNone, "/failed/a-2")

	ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeSuccess}))
	ended(failed, false)
	pending := must[[]claim.Status](t)(l.Claims.PendingAfterMoves(ctx, 10))
	if len(pending) != 1 || pending[0].Outcome != domain.OutcomeSuccess {
		t.Fatalf("%+v", pending)
	}

	ended(pending[0], true)
	ended(pending[0], false)

	// Moves and deletions cause an event. A file that is left as configured does not.
	for i, c := range []struct {
		after, why string
		told       bool
	}{
		{claim.AfterDone, "", true}, {claim.AfterFailed, "no room", true}, {claim.AfterLeft, "it changed", true}, {claim.AfterLeft, "", false}, {claim.AfterNone, "", false},
	} {
		job := fmt.Sprint("told", i)
		ok(t, l.Finish(ctx, start(t, l, enqueue(t, l, drops(job, "a"))[0].Run), ledger.Result{Outcome: domain.OutcomeSuccess}))
		must[bool](t)(l.Claims.FinishAfterMove(ctx, must[[]claim.Status](t)(l.Claims.PendingAfterMoves(ctx, 10))[0], c.after, "", c.why))
		if told := eventsOf(t, l, job, "file.after"); (len(told) == 1) != c.told {
			t.Errorf("%s (%s): %+v", c.after, c.why, told)
		}
	}
}

// ownOutput tests that a file written by the job's own run starts no run, unless another run has
// claimed it.
func ownOutput(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	run := enqueue(t, l, manual("in"))[0].Run
	attempt := start(t, l, run)
	wrote := func(name string) claim.Claim {
		return claim.Claim{Job: "in", Path: "/in/" + name, Hash: "h-" + name}
	}
	ok(t, l.Claims.ClaimOutput(ctx, attempt, wrote("report")))
	ok(t, l.Claims.ClaimOutput(ctx, attempt, wrote("report"))) // written again
	if got := enqueue(t, l, drops("in", "report", "new"))[0]; !slices.Equal(filesOf(t, l, got.Run), []string{"new"}) {
		t.Errorf("%v", filesOf(t, l, got.Run))
	}
	if other := enqueue(t, l, drops("other", "report"))[0]; !other.New {
		t.Errorf("another job may take it: %+v", other)
	}

	ok(t, l.Claims.ClaimOutput(ctx, attempt, wrote("new"))) // the claim of a queued run stays
	if c, _, err := l.Claims.Of(ctx, "in", "/in/new", "h-new"); err != nil || c.Outcome != "" {
		t.Errorf("%+v (%v)", c, err)
	}

	ok(t, l.Finish(ctx, attempt, ledger.Result{Outcome: domain.OutcomeError}))
	if due := must[[]claim.Status](t)(l.Claims.PendingAfterMoves(ctx, 10)); len(due) != 0 {
		t.Errorf("a file that a run wrote is dealt with as if it had been dropped: %+v", due)
	}
	if got := enqueue(t, l, drops("in", "report"))[0]; !got.Blocked {
		t.Errorf("the run failed, and its file starts another: %+v", got)
	}
	if err := l.Claims.ClaimOutput(ctx, attempt, wrote("late")); !errors.Is(err, ledger.ErrFenced) {
		t.Errorf("%v", err)
	}
}

// breaker tests that a path claimed too often pauses its job once. Claims of different paths do
// not.
func breaker(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	rule := pause.Breaker{MaxClaims: 3, Within: time.Minute, Notices: []ledger.Notice{{Job: "in", Channel: "desktop", Title: "paused by " + pause.PathPlaceholder}}}
	ask := func(path, hash string) ledger.Accepted {
		return enqueue(t, l, ledger.Request{Job: "in", Agent: "a", Trigger: domain.TriggerWatch, Breaker: rule, Claim: &claim.Claim{Job: "in", Path: path, Hash: hash}})[0]
	}
	for i := range 10 {
		if a := ask(fmt.Sprint("/in/", i), "h"); !a.New || a.BreakerTripped {
			t.Fatalf("%+v", a)
		}
	}

	for i, broken := range []bool{false, false, true, false} {
		changed := l.PlanChanged()
		if a := ask("/in/a\x1b[2J\nb", fmt.Sprint(i)); !a.New || a.BreakerTripped != broken {
			t.Errorf("claim %d: %+v", i+1, a)
		}
		select {
		case <-changed:
			if !broken {
				t.Errorf("claim %d changed the plan", i+1)
			}
		default:
			if broken {
				t.Error("the pause is announced to nobody")
			}
		}
	}

	// Blocked content starts no run, so it does not count.
	if a := ask("/in/a\x1b[2J\nb", "0"); !a.Blocked || a.BreakerTripped {
		t.Errorf("the same bytes: %+v", a)
	}

	// A run gets all of its files, even if one of them reaches the limit.
	for job, most := range map[string]int{"few": 9, "many": 1} {
		r := drops(job, "a", "b", "c")
		r.Breaker = pause.Breaker{MaxClaims: most, Within: time.Minute}
		a := enqueue(t, l, r)[0]
		if !a.New || a.BreakerTripped != (job == "many") {
			t.Errorf("%s: %+v", job, a)
		}
		for _, c := range r.Claims {
			if got, _, err := l.Claims.Of(ctx, job, c.Path, c.Hash); err != nil || got.Run != a.Run {
				t.Errorf("%s: %+v (%v)", job, got, err)
			}
		}
	}
	must[bool](t)(l.Pauses.End(ctx, pause.Job, "many"))

	pauses := must[[]pause.Pause](t)(l.Pauses.List(ctx, time.Now()))
	notices := must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 10))
	if len(pauses) != 1 || pauses[0].Name != "in" || pauses[0].By != ledger.BySystem || !strings.Contains(pauses[0].Reason, "/in/a\x1b[2J\nb") || len(notices) != 1 || notices[0].Title != "paused by /in/a b" {
		t.Errorf("%+v, %+v", pauses, notices)
	}
}

// outcomeOf tests that OutcomeOf reports whether a run is finished, in every state of the run.
func outcomeOf(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	is := func(run int64, want domain.Outcome) {
		t.Helper()
		if got, err := l.Runs.OutcomeOf(ctx, run); got != want || err != nil {
			t.Errorf("%q (%v), want %q", got, err, want)
		}
	}

	run := enqueue(t, l, manual("j"))[0].Run
	is(run, "")
	ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeError, RetryAt: time.Now()}))
	is(run, "")
	ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeTimeout}))
	is(run, domain.OutcomeTimeout)
	must[ledger.Run](t)(l.Retry(ctx, run))
	is(run, "")
	if _, err := l.Runs.OutcomeOf(ctx, 1<<40); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("%v", err)
	}
}
