package ledgertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/label"
	"rouse/internal/ledger/runs"
)

// approvalQuestion returns a question that asks for the approval of an action.
func approvalQuestion(key, hash string) *inbox.Question {
	return &inbox.Question{Kind: inbox.KindApproval, Call: key, Title: "j asks", Message: "no grant covers it", Expires: inbox.ApprovalExpires,
		Options: []string{inbox.ApprovalOnce, inbox.ApprovalAlways, inbox.ApprovalDeny},
		Action:  inbox.Action{Tool: "send", Description: "to: \x00 bob", Hash: hash}}
}

// waitingForApproval starts a run of a job that waits for an approval, and returns it with its
// inbox item.
func waitingForApproval(t *testing.T, l *ledger.Ledger, job string, q *inbox.Question) (int64, inbox.Item) {
	t.Helper()
	run := enqueue(t, l, manual(job))[0].Run
	ok(t, l.Finish(t.Context(), start(t, l, run), ledger.Result{Wait: q, Notices: []ledger.Notice{{Channel: "desktop", Title: job, Body: "rouse approve " + inbox.ItemPlaceholder}}}))
	items := must[[]inbox.Item](t)(l.Inbox.OfRun(t.Context(), run))
	return run, items[len(items)-1]
}

// approvalExpires tests that an expired approval can no longer be answered, even before a daemon
// ends its run. The answer to the same request of another run has no effect on it.
func approvalExpires(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	late := approvalQuestion("p1", "same")
	// The item has already expired, but no daemon has closed it.
	late.Expires = -time.Second
	run, item := waitingForApproval(t, l, "j", late)
	for _, answer := range []string{inbox.ApprovalOnce, inbox.ApprovalAlways} {
		if _, err := l.Answer(ctx, item.ID, answer); !errors.Is(err, inbox.ErrClosed) {
			t.Errorf("%s after its time: %v", answer, err)
		}
	}

	if _, err := l.Deny(ctx, item.ID, "too late"); !errors.Is(err, inbox.ErrClosed) {
		t.Errorf("denied after its time: %v", err)
	}

	_, other := waitingForApproval(t, l, "j", approvalQuestion("p1", "same"))
	must[ledger.Run](t)(l.Answer(ctx, other.ID, inbox.ApprovalOnce))
	if r := get(t, l, run); !r.WaitsForPerson() {
		t.Errorf("the run goes on: %+v", r)
	}
	if due := must[[]inbox.Item](t)(l.Inbox.Overdue(ctx, time.Now())); len(due) != 1 || due[0].ID != item.ID {
		t.Errorf("overdue: %+v", due)
	}
}

// approvals tests the three answers to an approval, with a restart before the answer. "Once"
// applies to one call. "Always" gives this agent a standing approval until it is revoked.
func approvals(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	for answer, stands := range map[string]bool{inbox.ApprovalOnce: false, inbox.ApprovalAlways: true, inbox.ApprovalDeny: false} {
		run, item := waitingForApproval(t, l, "j", approvalQuestion("p1", answer))
		r := get(t, l, run)
		if r.WaitingFor != domain.WaitApproval || !r.WaitsForPerson() || r.Parks != 1 || !r.NotBefore.Equal(item.ExpiresAt) || item.ExpiresAt.Sub(item.CreatedAt) != 72*time.Hour {
			t.Fatalf("run %+v, item %+v", r, item)
		}
		if item.Kind != inbox.KindApproval || item.Action.Tool != "send" || item.Action.Hash != answer || item.Call != "p1" || item.Used != "" {
			t.Errorf("item: %+v", item)
		}
		if _, err := l.Answer(ctx, item.ID, "perhaps"); !errors.Is(err, inbox.ErrInvalidAnswer) {
			t.Errorf("an answer that it does not offer: %v", err)
		}

		l = open(t)
		var err error
		if answer == inbox.ApprovalDeny {
			_, err = l.Deny(ctx, item.ID, "not him")
		} else {
			_, err = l.Answer(ctx, item.ID, answer)
		}

		ok(t, err)
		if _, err := l.Deny(ctx, item.ID, "too late"); !errors.Is(err, inbox.ErrClosed) {
			t.Errorf("a second answer: %v", err)
		}
		if r := get(t, l, run); r.WaitingFor != domain.WaitResume {
			t.Errorf("after %s: %+v", answer, r)
		}
		if got := must[bool](t)(l.Inbox.HasStandingApproval(ctx, "a", answer)); got != stands {
			t.Errorf("%s stands: %v", answer, got)
		}

		wanted := fmt.Sprintf(`{"answer":%q,"item":%d}`, answer, item.ID)
		if answer == inbox.ApprovalDeny {
			wanted = fmt.Sprintf(`{"answer":%q,"item":%d,"reason":"not him"}`, answer, item.ID)
		}
		if e, _, err := l.Events.Last(ctx, run, "run.answered"); err != nil || string(e.Data) != wanted {
			t.Errorf("event %s, want %s: %v", e.Data, wanted, err)
		}

		if must[bool](t)(l.Inbox.HasStandingApproval(ctx, "b", answer)) {
			t.Errorf("%s stands for another agent", answer)
		}
		if stands {
			events := must[[]ledger.Event](t)(l.Events.List(ctx, event.Filter{}))
			if !slices.ContainsFunc(events, func(e ledger.Event) bool {
				return e.Kind == "grant.given" && strings.Contains(string(e.Data), fmt.Sprintf(`"item":%d`, item.ID))
			}) {
				t.Errorf("that it was given is not recorded: %+v", events)
			}
		}
		if i := must[inbox.Item](t)(l.Inbox.Get(ctx, item.ID)); i.Answer != answer || (answer == inbox.ApprovalDeny) != (i.Reason == "not him") {
			t.Errorf("item: %+v", i)
		}
	}

	revokeOnly(t, l)
}

// approvalWithdrawn tests that the request for an approval is withdrawn if its run ends without an
// answer.
func approvalWithdrawn(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	run, item := waitingForApproval(t, l, "j", approvalQuestion("p1", "late"))
	ok(t, l.ExpireItem(ctx, item.ID, ledger.Result{Outcome: domain.OutcomeTimeout, Error: "nobody answered"}))
	if r := get(t, l, run); r.Outcome != domain.OutcomeTimeout {
		t.Errorf("expired: %+v", r)
	}

	run, item = waitingForApproval(t, l, "j", approvalQuestion("p1", "gone"))
	must[ledger.Run](t)(l.RequestCancel(ctx, run, "not needed"))
	if i := must[inbox.Item](t)(l.Inbox.Get(ctx, item.ID)); i.State != inbox.ItemWithdrawn {
		t.Errorf("of a cancelled run: %+v", i)
	}
	recorded(t, l, run, "run.finished", "not needed")
}

// revokeOnly revokes the only standing approval.
func revokeOnly(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	ctx := t.Context()
	given := must[[]inbox.StandingApproval](t)(l.Inbox.StandingApprovals(ctx))
	if len(given) != 1 || given[0].Agent != "a" || given[0].Action.Hash != inbox.ApprovalAlways || given[0].Action.Tool != "send" || given[0].Item == 0 {
		t.Fatalf("standing: %+v", given)
	}

	must[inbox.StandingApproval](t)(l.Inbox.RevokeApproval(ctx, given[0].ID))
	if _, err := l.Inbox.RevokeApproval(ctx, given[0].ID); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
	if must[bool](t)(l.Inbox.HasStandingApproval(ctx, "a", inbox.ApprovalAlways)) {
		t.Error("it is in force after it was revoked")
	}
	events := must[[]ledger.Event](t)(l.Events.List(ctx, event.Filter{}))
	if last := events[len(events)-1]; last.Kind != "grant.revoked" || !strings.Contains(string(last.Data), fmt.Sprintf(`"grant":%d`, given[0].ID)) {
		t.Errorf("that it was revoked is not recorded: %s %s", last.Kind, last.Data)
	}
}

// waitingInstant starts a scheduled run of a job that waits for an answer, and returns it with its
// inbox item.
func waitingInstant(t *testing.T, l *ledger.Ledger, job string, n int, q *inbox.Question) (int64, inbox.Item) {
	t.Helper()
	run := recordDue(t, l, due(job, noon.Add(time.Duration(n)*time.Minute), domain.OverlapAllow)).Run
	ok(t, l.Finish(t.Context(), start(t, l, run), ledger.Result{Wait: q, Notices: []ledger.Notice{{Channel: "desktop", Title: job}}}))
	items := must[[]inbox.Item](t)(l.Inbox.OfRun(t.Context(), run))
	return run, items[len(items)-1]
}

// approvalsTogether tests runs that wait for the same action. They cause one notice. Approving once
// releases one run and skips the other scheduled runs; a run with another trigger keeps waiting. A
// denial and a standing approval apply to all of them.
func approvalsTogether(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	const resumes, asks, skipped, denied = "waiting/resume", "waiting/approval", "finished/skipped", "waiting/resume"
	for hash, c := range map[string]struct {
		reply          ledger.Reply
		second, manual string
	}{
		"once":   {reply: ledger.Reply{Text: inbox.ApprovalOnce}, second: skipped, manual: asks},
		"always": {reply: ledger.Reply{Text: inbox.ApprovalAlways}, second: skipped, manual: resumes},
		"all":    {reply: ledger.Reply{Text: inbox.ApprovalOnce, All: true}, second: resumes, manual: resumes},
		"deny":   {reply: ledger.Reply{Text: inbox.ApprovalDeny}, second: denied, manual: denied},
	} {
		before := len(must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 100)))
		first, item := waitingInstant(t, l, "j-"+hash, 0, approvalQuestion("p1", hash))
		second, _ := waitingInstant(t, l, "j-"+hash, 1, approvalQuestion("p1", hash))
		byHand, _ := waitingForApproval(t, l, "k", approvalQuestion("p7", hash))
		other, _ := waitingInstant(t, l, "j-"+hash, 2, approvalQuestion("p1", "other than "+hash))
		if n := len(must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 100))) - before; n != 2 {
			t.Errorf("%s: %d notices, want one for each action", hash, n)
		}

		must[ledger.Run](t)(l.AnswerAs(ctx, item.ID, c.reply))
		for run, want := range map[int64]string{first: resumes, second: c.second, byHand: c.manual, other: asks} {
			r := get(t, l, run)
			if got := string(r.State) + "/" + string(r.WaitingFor) + string(r.Outcome); got != want {
				t.Errorf("%s: run %d of the job %s is %s, want %s", hash, run, r.Job, got, want)
			}
			if want == skipped {
				o := must[[]runs.Occurrence](t)(l.Occurrences.List(ctx, r.Job, r.ScheduledAt, r.ScheduledAt, 1))
				if why := fmt.Sprintf("overlap: run %d, which asked the same, got the answer; --all releases every waiting run", first); r.Error != why || o[0].Decision != domain.DecisionSkipped || o[0].Reason != why {
					t.Errorf("%s: %+v, %+v", hash, r, o)
				}
			}
		}
	}
}

// questionsTogether tests that scheduled runs of a job with the same question cause one notice and
// need one answer. A run with its own input and a run of another job ask separately.
func questionsTogether(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	ask := func(text string) *inbox.Question {
		return &inbox.Question{Title: "j asks", Message: text, Options: []string{"red", "blue"}, Expires: time.Hour}
	}
	for i, all := range []bool{false, true} {
		job := fmt.Sprint("j", i)
		first, item := waitingInstant(t, l, job, 0, ask("which?"))
		second, joined := waitingInstant(t, l, job, 1, ask("which?"))
		other, _ := waitingInstant(t, l, job, 2, ask("why?"))
		apart, _ := waitingInstant(t, l, "k"+job, 0, ask("which?"))
		byHand, own := waitingForApproval(t, l, job, ask("which?"))
		if joined.Action.Hash == "" || joined.Action.Hash != item.Action.Hash || own.Action.Hash != "" {
			t.Errorf("hashes: %q, %q, %q", item.Action.Hash, joined.Action.Hash, own.Action.Hash)
		}
		if n := len(must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 100))); n != 4*(i+1) {
			t.Errorf("%d notices", n)
		}

		must[ledger.Run](t)(l.AnswerAs(ctx, item.ID, ledger.Reply{Text: "red", All: all, Untrusted: all}))
		for _, run := range []int64{first, second, apart} {
			if got := get(t, l, run).Taint; (got == label.TaintUntrusted) != (all && run != apart) {
				t.Errorf("run %d has the labels %q", run, got)
			}
		}
		want := map[int64]string{first: "waiting/resume", second: "finished/skipped", other: "waiting/input", apart: "waiting/input", byHand: "waiting/input"}
		if all {
			want[second] = "waiting/resume"
		}
		for run, want := range want {
			r := get(t, l, run)
			if got := string(r.State) + "/" + string(r.WaitingFor) + string(r.Outcome); got != want {
				t.Errorf("run %d of the job %s is %s, want %s", run, r.Job, got, want)
			}
		}
		if i := must[inbox.Item](t)(l.Inbox.Get(ctx, joined.ID)); all && i.Answer != "red" || !all && i.State != inbox.ItemWithdrawn {
			t.Errorf("the joined item: %+v", i)
		}
	}
}

// waitingOverlaps tests that a run that waits for a person counts as running. The overlap policy
// decides whether the next scheduled run is skipped, queued or replaces it. A queued run does not
// start before the answer.
func waitingOverlaps(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	for policy, want := range map[domain.Overlap][2]string{
		domain.OverlapSkip: {"skipped", "skipped"}, domain.OverlapQueueOne: {"run", "skipped"}, domain.OverlapQueueAll: {"run", "run"},
		domain.OverlapCancel: {"run", "run"}, domain.OverlapAllow: {"run", "run"},
	} {
		job := string(policy)
		first, item := waitingInstant(t, l, job, 0, approvalQuestion("p1", job))
		second := recordDue(t, l, due(job, noon.Add(time.Minute), policy))
		begun := must[[]ledger.Started](t)(l.Start(ctx, ledger.Start{Run: second.Run, JobLanes: 1, Behind: policy != domain.OverlapAllow}))
		third := recordDue(t, l, due(job, noon.Add(2*time.Minute), policy))
		if got := [2]string{string(second.Decision), string(third.Decision)}; got != want {
			t.Errorf("%s: %v, want %v: %s; %s", policy, got, want, second.Reason, third.Reason)
		}
		if reason := fmt.Sprintf("overlap: run %d waits for an approval", first); policy == domain.OverlapSkip && second.Reason != reason {
			t.Errorf("%s: %q, want %q", policy, second.Reason, reason)
		}

		if r := get(t, l, first); (r.Outcome == domain.OutcomeCancelled) != (policy == domain.OverlapCancel) {
			t.Errorf("%s: the first is %+v", policy, r)
		}
		if i := must[inbox.Item](t)(l.Inbox.Get(ctx, item.ID)); (i.State == inbox.ItemWithdrawn) != (policy == domain.OverlapCancel) {
			t.Errorf("%s: its item is %s", policy, i.State)
		}

		if policy == domain.OverlapSkip {
			continue
		}
		if policy == domain.OverlapAllow || policy == domain.OverlapCancel { // no run waits before it
			if begun[0].Err != nil {
				t.Errorf("%s: the second did not start: %v", policy, begun[0].Err)
			}
			continue
		}
		if !errors.Is(begun[0].Err, ledger.ErrNotClaimable) {
			t.Errorf("%s: it started beside the waiting run: %+v", policy, begun)
		}
		if w := must[map[string]runs.WaitingRun](t)(l.Runs.ForPersons(ctx))[job]; w.Run != first || w.Text != "waits for an approval" {
			t.Errorf("%s: %+v", policy, w)
		}
		must[ledger.Run](t)(l.Answer(ctx, item.ID, inbox.ApprovalOnce))
		if begun = must[[]ledger.Started](t)(l.Start(ctx, ledger.Start{Run: second.Run, Behind: true})); begun[0].Err != nil {
			t.Errorf("%s: after the answer: %v", policy, begun[0].Err)
		}
	}
}

// definitionApproval tests that the approval of a job's definition is a standing approval. If it is
// denied, the run ends.
func definitionApproval(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	of := func(hash string) *inbox.Question {
		q := approvalQuestion("", hash)
		q.Action.Tool = ""
		q.Options = []string{inbox.ApprovalOnce, inbox.ApprovalDeny}
		return q
	}

	run, item := waitingForApproval(t, l, "j", of("good"))
	must[ledger.Run](t)(l.Answer(ctx, item.ID, inbox.ApprovalOnce))
	if r := get(t, l, run); r.WaitingFor != domain.WaitResume || !must[bool](t)(l.Inbox.HasStandingApproval(ctx, "a", "good")) {
		t.Errorf("approved: %+v", r)
	}

	run, item = waitingForApproval(t, l, "j", of("bad"))
	must[ledger.Run](t)(l.Deny(ctx, item.ID, "who wrote this?"))
	if r := get(t, l, run); r.Outcome != domain.OutcomeCancelled || r.Error != "its owner denied it: who wrote this?" || must[bool](t)(l.Inbox.HasStandingApproval(ctx, "a", "bad")) {
		t.Errorf("denied: %+v", r)
	}
}

// recordTaint tests that the taint of a run only grows and survives its attempt. An approval can be
// used for one call.
func recordTaint(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	run, item := waitingForApproval(t, l, "j", approvalQuestion("p1", "h"))
	must[ledger.Run](t)(l.Answer(ctx, item.ID, inbox.ApprovalOnce))
	a := start(t, l, run)
	ok(t, l.Labels.RecordTaint(ctx, a, label.TaintUpdate{Taint: "C", Tier: "A", UsedApprovals: map[int64]string{item.ID: "p1"}}))
	ok(t, l.Labels.RecordTaint(ctx, a, label.TaintUpdate{Taint: "A", UsedApprovals: map[int64]string{item.ID: "p1"}}))
	ok(t, l.Labels.RecordTaint(ctx, a, label.TaintUpdate{Tier: "B"}))
	ok(t, l.Labels.RecordTaint(ctx, a, label.TaintUpdate{Taint: "C", Tier: "A"}))
	if err := l.Labels.RecordTaint(ctx, a, label.TaintUpdate{UsedApprovals: map[int64]string{item.ID: "p2"}}); err == nil {
		t.Error("an approval was used for two calls")
	}

	l = open(t)
	if r := get(t, l, run); r.Taint != "AC" || r.Tier != "B" {
		t.Errorf("run: %+v", r)
	}
	if i := must[inbox.Item](t)(l.Inbox.Get(ctx, item.ID)); i.Used != "p1" {
		t.Errorf("item: %+v", i)
	}

	ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	if err := l.Labels.RecordTaint(ctx, a, label.TaintUpdate{Taint: "B"}); !errors.Is(err, ledger.ErrFenced) {
		t.Errorf("a mark of an attempt that is over: %v", err)
	}

	events := must[[]ledger.Event](t)(l.Events.List(ctx, event.Filter{Run: run}))
	if n := len(slices.DeleteFunc(events, func(e ledger.Event) bool { return e.Kind != "run.tainted" })); n != 2 {
		t.Errorf("%d events tell of two letters", n)
	}
}

// initialTaint tests that a run started by untrusted content begins with its letter. The same
// applies to a run planned by such a run.
func initialTaint(t *testing.T, open Open) {
	l := open(t)
	file := &ledger.File{Path: "/in/a.csv", Hash: "h"}
	for name, c := range map[string]struct {
		r    ledger.Request
		want string
	}{
		"manual":    {manual("j"), ""},
		"file":      {ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerManual, Detail: ledger.TriggerDetail{File: file}}, "A"},
		"files":     {ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerWatch, Detail: ledger.TriggerDetail{Files: []ledger.File{*file}}}, "A"},
		"folder":    {ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerWatch, Detail: ledger.TriggerDetail{Folder: "/in"}}, "A"},
		"webhook":   {ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerWebhook}, "A"},
		"a program": {ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerManual, Detail: ledger.TriggerDetail{Untrusted: true}}, "A"},
		"forgotten": {ledger.Request{Agent: "a", Trigger: domain.TriggerSelf, Detail: ledger.TriggerDetail{Wake: &ledger.WakeDetail{AskedBy: 99}}}, "A"},
		"owner's":   {ledger.Request{Agent: "a", Trigger: domain.TriggerSelf, Detail: ledger.TriggerDetail{Wake: &ledger.WakeDetail{}}}, ""},
	} {
		if r := get(t, l, enqueue(t, l, c.r)[0].Run); r.Taint != c.want {
			t.Errorf("%s begins with %q, want %q", name, r.Taint, c.want)
		}
	}

	planner := enqueue(t, l, manual("j"))[0].Run
	ok(t, l.Labels.RecordTaint(t.Context(), start(t, l, planner), label.TaintUpdate{Taint: "AB"}))
	wake := ledger.Request{Agent: "a", Trigger: domain.TriggerSelf, Detail: ledger.TriggerDetail{Wake: &ledger.WakeDetail{AskedBy: planner}}}
	if r := get(t, l, enqueue(t, l, wake)[0].Run); r.Taint != "AB" {
		t.Errorf("a wake begins with %q", r.Taint)
	}
}
