package ledgertest

import (
	"encoding/json"
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
)

func question(text string, options ...string) *inbox.Question {
	return &inbox.Question{Title: "j asks", Message: text, Options: options, Expires: time.Hour}
}

// inboxItems tests that a run that asks frees its lane and waits for one answer, even after a
// restart. A second answer is too late.
func inboxItems(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	run := enqueue(t, l, manual("j"))[0].Run
	a := start(t, l, run)
	ok(t, l.Finish(ctx, a, ledger.Result{Wait: question("Which \x00 one?", "a", "b"), Steps: 2, Notices: []ledger.Notice{{Channel: "desktop", Title: "j asks"}}}))
	r := get(t, l, run)
	if r.State != domain.StateWaiting || r.WaitingFor != domain.WaitInput || r.Outcome != "" || r.Parks != 1 || r.Steps != 2 || !r.FinishedAt.IsZero() {
		t.Fatalf("run: %+v", r)
	}
	if can := must[[]ledger.Run](t)(l.Runs.Claimable(ctx, time.Now().Add(1000*time.Hour), 0, 10)); len(can) != 0 {
		t.Errorf("claimable without an answer: %+v", can)
	}
	if _, _, err := l.StartAttempt(ctx, run); !errors.Is(err, ledger.ErrNotClaimable) {
		t.Errorf("started without an answer: %v", err)
	}
	if running := must[[]ledger.Run](t)(l.Runs.Running(ctx)); len(running) != 0 {
		t.Errorf("still running: %+v", running)
	}

	items := must[[]inbox.Item](t)(l.Inbox.List(ctx))
	if len(items) != 1 || items[0].Run != run || items[0].Attempt != 1 || len(items[0].Options) != 2 || items[0].Multiple || items[0].ExpiresAt.Sub(items[0].CreatedAt) != time.Hour {
		t.Fatalf("inbox: %+v", items)
	}
	if at := must[time.Time](t)(l.Runs.NextDue(ctx, time.Now())); !at.Equal(items[0].ExpiresAt) {
		t.Errorf("the next look is at %s", at)
	}
	if n := must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 10)); len(n) != 1 {
		t.Errorf("notices: %+v", n)
	}

	// The answer comes after a restart and from another process.
	l = open(t)
	if _, err := l.Answer(ctx, items[0].ID, "b"); err != nil {
		t.Fatal(err)
	}
	if again := must[ledger.Run](t)(l.Answer(ctx, items[0].ID, "b")); again.ID != run {
		t.Errorf("the same answer again: %+v", again)
	}
	if _, err := l.Answer(ctx, items[0].ID, "a"); !errors.Is(err, inbox.ErrClosed) {
		t.Errorf("a second answer: %v", err)
	}
	if _, err := l.Answer(ctx, 99, "a"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("an answer to nothing: %v", err)
	}

	if can := must[[]ledger.Run](t)(l.Runs.Claimable(ctx, time.Now(), 0, 10)); len(can) != 1 {
		t.Errorf("claimable with an answer: %+v", can)
	}

	second := start(t, l, run)
	attempts := must[[]ledger.Attempt](t)(l.Runs.Attempts(ctx, run))
	of := must[[]inbox.Item](t)(l.Inbox.OfRun(ctx, run))
	if second.Number != 2 || attempts[0].State != domain.AttemptWaiting || len(of) != 1 || of[0].State != inbox.ItemAnswered || of[0].Answer != "b" {
		t.Errorf("attempts %+v, items %+v", attempts, of)
	}

	ok(t, l.Finish(ctx, second, ledger.Result{Outcome: domain.OutcomeSuccess}))
	if left := must[[]inbox.Item](t)(l.Inbox.List(ctx)); len(left) != 0 {
		t.Errorf("still in the inbox: %+v", left)
	}
}

// waitingEvents tests that the event of a waiting run contains the question and the possible
// answers. All channels get a notice.
func waitingEvents(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	schema := `{"type":"object"}`
	for want, q := range map[string]*inbox.Question{
		`{"allow_multiple":false,"item":ITEM,"kind":"input","question":"Where to?"}`:                                  question("Where to?"),
		`{"allow_multiple":false,"item":ITEM,"kind":"input","options":["a","b"],"question":"Which one?"}`:             question("Which one?", "a", "b"),
		`{"allow_multiple":true,"item":ITEM,"kind":"input","options":["a","b"],"question":"Which ones?"}`:             {Title: "j asks", Message: "Which ones?", Options: []string{"a", "b"}, Multiple: true, Expires: time.Hour},
		`{"allow_multiple":false,"input_schema":{"type":"object"},"item":ITEM,"kind":"input","question":"Where to?"}`: {Title: "j asks", Message: "Where to?", InputSchema: json.RawMessage(schema), Expires: time.Hour},
		`{"action":"to: bob","item":ITEM,"kind":"approval","options":["once"],"question":"May I?"}`:                   {Kind: inbox.KindApproval, Title: "j asks", Message: "May I?", Options: []string{"once"}, Action: inbox.Action{Tool: "send", Description: "to: bob", Hash: "h"}, Expires: time.Hour},
	} {
		run := enqueue(t, l, manual("j"))[0].Run
		notices := []ledger.Notice{{Run: run, Channel: "desktop", Body: inbox.ItemPlaceholder}, {Run: run, Channel: "mail", Body: inbox.ItemPlaceholder}}
		ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Wait: q, Notices: notices}))

		item := fmt.Sprint(must[[]inbox.Item](t)(l.Inbox.OfRun(ctx, run))[0].ID)
		e, found, err := l.Events.Last(ctx, run, "run.waiting")
		if want := strings.Replace(want, "ITEM", item, 1); err != nil || !found || string(e.Data) != want {
			t.Errorf("event %s, want %s: %v", e.Data, want, err)
		}

		var told []string
		for _, n := range must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 100)) {
			if n.Run == run {
				told = append(told, n.Channel+" "+n.Body)
			}
		}
		if got := strings.Join(told, ", "); got != "desktop "+item+", mail "+item {
			t.Errorf("told: %s", got)
		}
	}
}

// inboxEnds tests that items leave the inbox when they expire or are withdrawn.
func inboxEnds(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	var runs []int64
	for range 3 {
		run := enqueue(t, l, manual("j"))[0].Run
		a := start(t, l, run)
		if len(runs) == 2 { // cancelled before it could ask
			must[ledger.Run](t)(l.RequestCancel(ctx, run, "not needed"))
		}
		ok(t, l.Finish(ctx, a, ledger.Result{Wait: question("Go on?")}))
		runs = append(runs, run)
	}
	if r := get(t, l, runs[2]); r.Outcome != domain.OutcomeCancelled {
		t.Errorf("cancelled while it worked: %+v", r)
	}

	must[ledger.Run](t)(l.RequestCancel(ctx, runs[1], "not needed"))
	items := must[[]inbox.Item](t)(l.Inbox.List(ctx))
	if len(items) != 1 || items[0].Run != runs[0] {
		t.Fatalf("inbox: %+v", items)
	}
	if due := must[[]inbox.Item](t)(l.Inbox.Overdue(ctx, time.Now())); len(due) != 0 {
		t.Errorf("overdue at once: %+v", due)
	}

	due := must[[]inbox.Item](t)(l.Inbox.Overdue(ctx, items[0].ExpiresAt))
	if len(due) != 1 {
		t.Fatalf("overdue: %+v", due)
	}

	for range 2 { // the second call has no effect
		ok(t, l.ExpireItem(ctx, due[0].ID, ledger.Result{Outcome: domain.OutcomeTimeout, Error: "nobody answered"}))
	}

	if r := get(t, l, runs[0]); r.State != domain.StateFinished || r.Outcome != domain.OutcomeTimeout {
		t.Errorf("expired: %+v", r)
	}
	if _, err := l.Answer(ctx, due[0].ID, "late"); !errors.Is(err, inbox.ErrClosed) {
		t.Errorf("a late answer: %v", err)
	}
	// Closed items are listed newest first.
	for _, c := range []struct {
		before int64
		limit  int
		want   []int64
	}{{0, 10, []int64{due[0].ID + 1, due[0].ID}}, {0, 1, []int64{due[0].ID + 1}}, {due[0].ID + 1, 10, []int64{due[0].ID}}, {due[0].ID, 10, nil}} {
		var got []int64
		for _, i := range must[[]inbox.Item](t)(l.Inbox.Closed(ctx, c.before, c.limit)) {
			got = append(got, i.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("closed before %d: %d, want %d", c.before, got, c.want)
		}
	}
	if n := must[int](t)(l.Maint.Prune(ctx, time.Now().Add(1000*time.Hour), func(string) time.Duration { return time.Hour })); n != 3 {
		t.Errorf("%d runs were removed", n)
	}

	if of := must[[]inbox.Item](t)(l.Inbox.OfRun(ctx, runs[0])); len(of) != 0 {
		t.Errorf("items of a removed run: %+v", of)
	}
}

// paused tests that a run paused by its skill waits for its owner without a limit, and then
// continues or stops.
func paused(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	for _, answer := range []string{inbox.PauseContinue, inbox.PauseStop} {
		run := enqueue(t, l, manual(answer))[0].Run
		a := start(t, l, run)
		ok(t, l.Finish(ctx, a, ledger.Result{Wait: &inbox.Question{Kind: inbox.KindPause, Call: "k1", Title: "j paused", Message: "a look", Options: []string{inbox.PauseContinue, inbox.PauseStop}, Expires: time.Hour}}))

		l = open(t)
		r := get(t, l, run)
		if r.State != domain.StateWaiting || r.WaitingFor != domain.WaitPause || !r.WaitsForPerson() || !r.NotBefore.IsZero() {
			t.Errorf("paused: %+v", r)
		}
		if due := must[[]inbox.Item](t)(l.Inbox.Overdue(ctx, time.Now().AddDate(100, 0, 0))); len(due) != 0 {
			t.Errorf("overdue: %+v", due)
		}

		items := must[[]inbox.Item](t)(l.Inbox.List(ctx))
		if len(items) != 1 || items[0].Kind != inbox.KindPause || items[0].Call != "k1" || !items[0].ExpiresAt.IsZero() {
			t.Fatalf("inbox: %+v", items)
		}
		if _, err := l.Answer(ctx, items[0].ID, "go on"); !errors.Is(err, inbox.ErrInvalidAnswer) {
			t.Errorf("an answer that is not offered: %v", err)
		}

		must[ledger.Run](t)(l.Answer(ctx, items[0].ID, answer))
		r = get(t, l, run)
		if stopped := answer == inbox.PauseStop; stopped != (r.Outcome == domain.OutcomeCancelled) || !stopped && r.WaitingFor != domain.WaitResume {
			t.Errorf("%s: %+v", answer, r)
		}
		if !r.FinishedAt.IsZero() {
			continue
		}
		if err := l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeSuccess}); err != nil {
			t.Error(err)
		}
	}
}

// recovery tests a run that asks about an interrupted call. It continues with one of the offered
// answers, or ends with RecoveryStop. A second answer has no effect.
func recovery(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	offered := []string{inbox.RecoveryDone, inbox.RecoveryAgain, inbox.RecoverySkip, inbox.RecoveryStop}
	for _, answer := range offered {
		run := enqueue(t, l, manual(answer))[0].Run
		a := start(t, l, run)
		// The question about the same call replaces the info.
		ok(t, l.Inbox.AddInfo(ctx, a, inbox.Question{Call: "p2", Title: "j was cut off", Message: "look"}))
		ok(t, l.Finish(ctx, a, ledger.Result{Wait: &inbox.Question{Kind: inbox.KindRecovery, Call: "p2", Title: "j was cut off", Message: "Look.", Options: offered, Expires: time.Hour}}))
		items := must[[]inbox.Item](t)(l.Inbox.List(ctx))
		if len(items) != 1 || items[0].Kind != inbox.KindRecovery || items[0].Call != "p2" || items[0].Attempt != 1 {
			t.Fatalf("inbox: %+v", items)
		}

		for _, wrong := range []string{"maybe", "", "DONE"} {
			if _, err := l.Answer(ctx, items[0].ID, wrong); !errors.Is(err, inbox.ErrInvalidAnswer) {
				t.Errorf("%q: %v", wrong, err)
			}
		}

		// The answer comes after a restart.
		l = open(t)
		must[ledger.Run](t)(l.Answer(ctx, items[0].ID, answer))

		for _, late := range offered {
			if _, err := l.Answer(ctx, items[0].ID, late); !errors.Is(err, inbox.ErrClosed) {
				t.Errorf("%s after %s: %v", late, answer, err)
			}
		}

		r := get(t, l, run)
		switch stopped := answer == inbox.RecoveryStop; {
		case stopped && (r.State != domain.StateFinished || r.Outcome != domain.OutcomeCancelled || r.Error != "its owner stopped it: Look."):
			t.Errorf("stopped: %+v", r)
		case !stopped && (r.State != domain.StateWaiting || r.WaitingFor != domain.WaitResume):
			t.Errorf("%s: %+v", answer, r)
		}

		if !r.FinishedAt.IsZero() {
			continue
		}

		ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeSuccess}))
	}
	if items := must[[]inbox.Item](t)(l.Inbox.List(ctx)); len(items) != 0 {
		t.Errorf("still in the inbox: %+v", items)
	}
}

// infos tests that the ledger informs an owner of the calls during which a run ended. No run waits
// for an info, and it does not expire.
func infos(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	for name, end := range map[string]func(a ledger.Attempt) error{
		"killed": func(a ledger.Attempt) error {
			return l.Interrupt(ctx, a, "killed", &ledger.Result{Outcome: domain.OutcomeInterrupted})
		},
		"goes on":   func(a ledger.Attempt) error { return l.Interrupt(ctx, a, "killed", nil) },
		"timeout":   func(a ledger.Attempt) error { return l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeTimeout}) },
		"of no job": func(a ledger.Attempt) error { return l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeTimeout}) },
		"success":   func(a ledger.Attempt) error { return l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess}) },
		"cancelled": func(a ledger.Attempt) error { return l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeCancelled}) },
		"blocked": func(a ledger.Attempt) error {
			return errors.Join(l.Interrupt(ctx, a, "killed", nil), l.FinishUnstarted(ctx, a.Run, ledger.Result{Outcome: domain.OutcomeSkipped}))
		},
		"cancelled later": func(a ledger.Attempt) error {
			err := l.Interrupt(ctx, a, "killed", nil)
			_, e := l.RequestCancel(ctx, a.Run, "no")
			return errors.Join(err, e)
		},
		"unanswered": func(a ledger.Attempt) error {
			ok(t, l.Finish(ctx, a, ledger.Result{Wait: question("Go on?")}))
			return l.ExpireItem(ctx, must[[]inbox.Item](t)(l.Inbox.OfRun(ctx, a.Run))[0].ID, ledger.Result{Outcome: domain.OutcomeTimeout})
		},
	} {
		job, who := name, name
		if name == "of no job" {
			job, who = "", "a"
		}
		run := enqueue(t, l, manual(job))[0].Run
		a := start(t, l, run)
		tools := []string{"file_write", "mail_send"}
		for i, tool := range tools {
			c := ledger.Call{Step: 1, Index: i, Key: fmt.Sprint("p", i+1), Tool: tool, Effect: domain.EffectWrite, StartedAt: time.Now()}
			ok(t, l.Steps.StartCall(ctx, a, c))
			// A killed attempt cannot report the state of its calls, so Interrupt must determine
			// it.
			if name != "killed" && name != "goes on" {
				c.State = domain.CallUncertain
				ok(t, l.Steps.FinishCall(ctx, a, c))
			}
		}

		ok(t, end(a))
		items := must[[]inbox.Item](t)(l.Inbox.List(ctx))
		// The next attempt can ask about the call, or the run has succeeded anyway.
		if name == "goes on" || name == "success" {
			if len(items) != 0 {
				t.Errorf("%s: %+v", name, items)
			}
			continue
		}

		if len(items) != len(tools) {
			t.Fatalf("%s: %+v", name, items)
		}
		for i, item := range items {
			if item.Kind != inbox.KindInfo || item.Title != who+" was cut off" || !strings.Contains(item.Message, "a call of "+tools[i]) || !item.ExpiresAt.IsZero() {
				t.Errorf("%s: %+v", name, item)
			}
		}
		if due := must[[]inbox.Item](t)(l.Inbox.Overdue(ctx, time.Now().Add(10000*time.Hour))); len(due) != 0 {
			t.Errorf("overdue: %+v", due)
		}

		for _, item := range items {
			must[ledger.Run](t)(l.Answer(ctx, item.ID, inbox.InfoSeen))
		}
		if r := get(t, l, run); r.State != domain.StateFinished {
			t.Errorf("%s, after it was seen: %+v", name, r)
		}
	}
}

// infosOnce tests that there is one info for each call. It outlives its run until the owner has
// seen it.
func infosOnce(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	run := enqueue(t, l, manual("j"))[0].Run
	a := start(t, l, run)
	for range 2 {
		ok(t, l.Inbox.AddInfo(ctx, a, inbox.Question{Call: "m1.1.1", Title: "t", Message: "m"}))
	}

	ok(t, l.Inbox.AddInfo(ctx, a, inbox.Question{Call: "m1.1.2", Title: "t", Message: "m"}))
	if items := must[[]inbox.Item](t)(l.Inbox.List(ctx)); len(items) != 2 {
		t.Errorf("inbox: %+v", items)
	}

	ok(t, l.Finish(ctx, a, ledger.Result{Wait: question("Go on?")}))
	must[ledger.Run](t)(l.RequestCancel(ctx, run, "no"))
	if items := must[[]inbox.Item](t)(l.Inbox.List(ctx)); len(items) != 2 || items[0].Kind != inbox.KindInfo {
		t.Errorf("what is to be known is gone with its run: %+v", items)
	}
	if err := l.Inbox.AddInfo(ctx, a, inbox.Question{Title: "t", Message: "m"}); !errors.Is(err, ledger.ErrFenced) {
		t.Errorf("of an attempt that is over: %v", err)
	}

	// An info about a finished run is added only once, too.
	for range 2 {
		ok(t, l.Inbox.AddRunInfo(ctx, run, inbox.Question{Call: inbox.CallFolder, Title: "t", Message: "later"}))
	}
	if items := must[[]inbox.Item](t)(l.Inbox.List(ctx)); len(items) != 3 || items[2].Message != "later" || items[2].Run != run {
		t.Errorf("inbox: %+v", items)
	}
	if got := kinds(t, l, event.Filter{Run: run}); strings.Count(got, "run.info") != 3 {
		t.Errorf("events: %s", got)
	}
	if err := l.Inbox.AddRunInfo(ctx, run+1, inbox.Question{Call: inbox.CallFolder, Title: "t", Message: "m"}); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("of a run that is not there: %v", err)
	}
}
