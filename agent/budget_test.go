package agent_test

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/budget"
)

// price sets the cost of a token in micro-USD.
var price = model.Price{Input: 1, Output: 10, Cached: 0.5}

// paid returns a bench with a model that costs money. An answer may have 100 tokens.
func paid(t *testing.T, turns ...modeltest.Turn) *bench {
	b := setup(t, turns...)
	clerk := b.plan.Agents["clerk"]
	clerk.Database, clerk.Model.Price, clerk.Model.MaxOutput = false, price, 100
	clerk.Allow = []string{"todo", "complete"}
	b.plan.Agents["clerk"] = clerk
	b.plan.Jobs["books"] = plan.Job{Name: "books", Agent: "clerk", Prompt: "Do the books."}
	return b
}

func todo(id string) model.Call {
	return model.Call{ID: id, Name: "todo", Args: json.RawMessage(`{"markdown":"- [ ] ` + id + `"}`)}
}

func (b *bench) change(f func(*plan.Agent, *plan.Job)) {
	a, j := b.plan.Agents["clerk"], b.plan.Jobs["books"]
	f(&a, &j)
	b.plan.Agents["clerk"], b.plan.Jobs["books"] = a, j
}

func (b *bench) triggered(by domain.Trigger) int64 {
	b.t.Helper()
	out, err := b.ledger.Enqueue(b.t.Context(), ledger.Request{Job: "books", Agent: "clerk", Trigger: by})
	if err != nil {
		b.t.Fatal(err)
	}
	return out[0].Run
}

func (b *bench) spent(l *ledger.Ledger, scope, name string) budget.Spending {
	b.t.Helper()
	sums, err := l.Budget.SpendingOn(b.t.Context(), budget.DayOf(time.Now(), time.UTC).Name)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, s := range sums {
		if s.Scope == scope && s.Name == name {
			return s
		}
	}
	return budget.Spending{}
}

// TestCostIsCounted checks that the cost of a run includes failed turns, and is recorded in its
// steps, in its total and in the sums of the day.
func TestCostIsCounted(t *testing.T) {
	t.Parallel()
	b := paid(t,
		modeltest.Turn{Calls: []model.Call{todo("1")}, Usage: model.Usage{Input: 1000, Output: 20, Cached: 400}},
		modeltest.Turn{Status: http.StatusServiceUnavailable, Header: map[string]string{"Retry-After": "0"}, Raw: "busy"},
		modeltest.Turn{Text: "Done.", Usage: model.Usage{Input: 1100, Output: 5, Cached: 1000}})
	id := b.triggered(domain.TriggerManual)
	res := b.run(id)
	const first, second = 600 + 200 + 200, 100 + 500 + 50
	if want := (ledger.Usage{TokensIn: 2100, TokensOut: 25, TokensCached: 1400, CostMicroUSD: first + second}); res.Outcome != domain.OutcomeSuccess || res.Usage != want {
		t.Fatalf("%+v, want %+v", res, want)
	}

	steps, err := b.ledger.Steps.List(t.Context(), id)
	if err != nil || len(steps) != 2 || steps[0].Usage.CostMicroUSD != first || steps[1].Usage.CostMicroUSD != second || steps[1].Usage.TokensIn != 1100 {
		t.Errorf("steps: %+v (%v)", steps, err)
	}

	for scope, name := range map[string]string{budget.ScopeDaemon: "", budget.ScopeAgent: "clerk", budget.ScopeJob: "books"} {
		if s := b.spent(b.ledger, scope, name); s.CostMicroUSD != first+second || s.Tokens != 2125 || s.ReservedMicroUSD != 0 || s.ReservedTokens != 0 {
			t.Errorf("%s: %+v", scope, s)
		}
	}

	if err := b.ledger.Finish(t.Context(), ledger.Attempt{Run: id, Number: 1}, res); err != nil {
		t.Fatal(err)
	}
	if run, err := b.ledger.Runs.Get(t.Context(), id); err != nil || run.Usage.CostMicroUSD != first+second {
		t.Errorf("the run: %+v (%v)", run.Usage, err)
	}
}

// TestUnreportedUsage checks that usage that a server does not report is estimated from the sent
// and received bytes and marked. An impossible report is ignored.
func TestUnreportedUsage(t *testing.T) {
	t.Parallel()
	b := paid(t, modeltest.Turn{Text: "Done."})
	if res := b.run(b.triggered(domain.TriggerManual)); res.Usage.TokensOut != 2 || res.Usage.TokensIn < 50 || res.Usage.CostMicroUSD != res.Usage.TokensIn+20 ||
		res.Usage.EstimatedTokens != res.Usage.TokensIn+2 || res.Usage.EstimatedMicroUSD != res.Usage.CostMicroUSD {
		t.Errorf("%+v", res.Usage)
	}

	b = paid(t, modeltest.Turn{Text: "Done.", Usage: model.Usage{Input: 7, Output: 1 << 50}})
	if res := b.run(b.triggered(domain.TriggerManual)); res.Usage.TokensOut != 2*loop.DefaultWindow || res.Usage.TokensIn != 7 {
		t.Errorf("what is not possible is counted: %+v", res.Usage)
	}

	b = paid(t, modeltest.Turn{Text: "Done.", Usage: model.Usage{Input: -7, Output: 3, Cached: 900}})
	if res := b.run(b.triggered(domain.TriggerManual)); res.Usage.TokensIn != 0 || res.Usage.CostMicroUSD != 30 {
		t.Errorf("%+v", res.Usage)
	}
}

// TestRefusedIsFree checks that a request costs nothing if the server refuses it or cannot be
// reached.
func TestRefusedIsFree(t *testing.T) {
	t.Parallel()
	b := paid(t, modeltest.Turn{Status: http.StatusUnauthorized, Raw: "no"})
	if res := b.run(b.triggered(domain.TriggerManual)); res.Outcome != domain.OutcomeError || res.Usage != (ledger.Usage{}) {
		t.Errorf("%+v", res)
	}
	if s := b.spent(b.ledger, budget.ScopeDaemon, ""); s.Tokens != 0 || s.ReservedTokens != 0 {
		t.Errorf("%+v", s)
	}
}

// TestRunBounds checks OSA-62: a run ends before the turn that would exceed its bounds.
func TestRunBounds(t *testing.T) {
	t.Parallel()
	again := modeltest.Turn{Calls: []model.Call{todo("1")}, Usage: model.Usage{Input: 500, Output: 50}} // costs 1000 micro-USD
	for what, bounds := range map[string]loop.Bounds{"cost_usd": {CostMicroUSD: 3100}, "tokens": {Tokens: 2500}} {
		b := paid(t, again)
		b.change(func(_ *plan.Agent, j *plan.Job) { j.Bounds = bounds })
		id := b.triggered(domain.TriggerManual)
		res := b.run(id)
		if res.Outcome != domain.OutcomeBudget || res.Exit != domain.ExitCancelled || !strings.Contains(res.Error, what) || res.Steps < 2 ||
			res.Usage.CostMicroUSD > 4500 || res.Usage.TokensIn+res.Usage.TokensOut > 2500 {
			t.Errorf("%s: %+v", what, res)
		}

		// A run that continues after an interruption has only the rest of its bounds, which is zero
		// here.
		if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: 1}, "killed", nil); err != nil {
			t.Fatal(err)
		}

		asked := len(b.server.Requests())
		if res := b.run(id); res.Outcome != domain.OutcomeBudget || len(b.server.Requests()) != asked {
			t.Errorf("%s, after an interruption: %+v", what, res)
		}
	}
}

// TestDayIsUsedUp checks that an exhausted daily budget skips runs of the schedule, and ends runs
// that a user started.
func TestDayIsUsedUp(t *testing.T) {
	t.Parallel()
	for scope, set := range map[string]func(*bench, plan.Budget){
		"the daemon (limits.": func(b *bench, l plan.Budget) { b.plan.Budget = l },
		"agent clerk (budget": func(b *bench, l plan.Budget) { b.change(func(a *plan.Agent, _ *plan.Job) { a.Budget = l }) },
		"job books (budget.":  func(b *bench, l plan.Budget) { b.change(func(_ *plan.Agent, j *plan.Job) { j.Budget = l }) },
	} {
		for _, limit := range []plan.Budget{{CostMicroUSD: 2500}, {Tokens: 1500}} {
			b := paid(t, modeltest.Turn{Text: "Done.", Usage: model.Usage{Input: 1400, Output: 60}}) // costs 2000 micro-USD
			set(b, limit)
			if res := b.run(b.triggered(domain.TriggerSchedule)); res.Outcome != domain.OutcomeSuccess {
				t.Fatalf("%s: the first: %+v", scope, res)
			}

			for trigger, want := range map[domain.Trigger]domain.Outcome{domain.TriggerSchedule: domain.OutcomeSkipped, domain.TriggerSelf: domain.OutcomeSkipped,
				domain.TriggerManual: domain.OutcomeBudget, domain.TriggerWatch: domain.OutcomeBudget} {
				res := b.run(b.triggered(trigger))
				if res.Outcome != want || res.Steps != 0 || !strings.Contains(res.Error, scope) || !strings.Contains(res.Error, "the day ends at ") {
					t.Errorf("%s, %s: %+v", scope, trigger, res)
				}
			}

			if len(b.server.Requests()) != 1 {
				t.Errorf("%s: %d requests", scope, len(b.server.Requests()))
			}
		}
	}
}

// TestDayEndsARun checks that a run ends if the daily budget is exhausted during the run,
// regardless of its trigger. Its exit differs from that of a run that exceeds its own bounds, and
// is not a failure of the job.
func TestDayEndsARun(t *testing.T) {
	t.Parallel()
	b := paid(t, modeltest.Turn{Calls: []model.Call{todo("1")}, Usage: model.Usage{Input: 1400, Output: 60}})
	b.plan.Budget = plan.Budget{CostMicroUSD: 3000}
	res := b.run(b.triggered(domain.TriggerSchedule))
	if res.Outcome != domain.OutcomeBudget || res.Exit != domain.ExitEnded || res.Steps != 1 || !strings.Contains(res.Error, "$0.0020 are spent") {
		t.Errorf("%+v", res)
	}
}

// TestCostOfAllAttempts checks that the cost of failed attempts counts for the run, and that a run
// that has begun is not skipped.
func TestCostOfAllAttempts(t *testing.T) {
	t.Parallel()
	for what, limit := range map[string]func(*bench){
		"the run's cost_usd": func(b *bench) {
			b.change(func(_ *plan.Agent, j *plan.Job) { j.Bounds = loop.Bounds{CostMicroUSD: 3000} })
		},
		"limits.cost_usd_per_day": func(b *bench) { b.plan.Budget = plan.Budget{CostMicroUSD: 3000} },
	} {
		b := paid(t, modeltest.Turn{Calls: []model.Call{todo("1")}, Usage: model.Usage{Input: 1400, Output: 60}}, modeltest.Turn{Status: http.StatusUnauthorized, Raw: "no"})
		id := b.triggered(domain.TriggerSchedule)
		b.plan.Budget = plan.Budget{CostMicroUSD: 100_000}
		res := b.run(id)
		if res.Outcome != domain.OutcomeError || res.Usage.CostMicroUSD != 2000 {
			t.Fatalf("%+v", res)
		}

		res.RetryAt = time.Now()
		if err := b.ledger.Finish(t.Context(), ledger.Attempt{Run: id, Number: 1}, res); err != nil {
			t.Fatal(err)
		}

		limit(b)
		if res := b.run(id); res.Outcome != domain.OutcomeBudget || !strings.Contains(res.Error, what) || len(b.server.Requests()) != 2 {
			t.Errorf("%s: %+v", what, res)
		}
	}
}

// TestReservedBeforeTheCall checks that the price of a call is durable before the request is sent,
// so that it counts after a crash.
func TestReservedBeforeTheCall(t *testing.T) {
	t.Parallel()
	b := paid(t, modeltest.Turn{Text: "Let me", Hang: true})
	b.plan.Budget = plan.Budget{CostMicroUSD: 2000}
	b.runner.Set(b.plan)
	run, a, err := b.ledger.StartAttempt(t.Context(), b.triggered(domain.TriggerManual))
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		if _, err := b.runner.Execute(ctx, run, a); err == nil {
			t.Error("a run ended well on a ledger that was closed")
		}
	})

	b.untilAsked(1)
	b.ledger.Close() // nothing more is recorded
	cancel()
	ended.Wait()
	if b.ledger, err = ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(b.dir, "ledger.db")}); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { b.ledger.Close() })
	held := b.spent(b.ledger, budget.ScopeDaemon, "")
	if held.ReservedMicroUSD < 1000 || held.CostMicroUSD != 0 {
		t.Fatalf("after the crash: %+v", held)
	}
	if err := b.ledger.Interrupt(t.Context(), a, "killed", nil); err != nil {
		t.Fatal(err)
	}
	if s := b.spent(b.ledger, budget.ScopeDaemon, ""); s.CostMicroUSD != held.ReservedMicroUSD || s.ReservedMicroUSD != 0 {
		t.Errorf("after the rescue: %+v", s)
	}
}

// TestBudgetNotice checks that the owner gets one notice a day if most of a budget is used, and one
// if a budget has no room for a run. Notices go to the job's channels or the default channels.
func TestBudgetNotice(t *testing.T) {
	t.Parallel()
	b := paid(t, modeltest.Turn{Text: "Done.", Usage: model.Usage{Input: 1000}})
	b.plan.Channels = []string{"desktop", "ops"}
	b.plan.Budget = plan.Budget{CostMicroUSD: 3700}
	b.change(func(_ *plan.Agent, j *plan.Job) {
		j.Budget, j.Notify.Channels = plan.Budget{Tokens: 2100}, []string{"ops"}
	})

	for i, want := range []int{0, 1, 2} { // 1000 and 2000 of 2100 tokens, then no room
		b.run(b.triggered(domain.TriggerManual))
		if got := b.notices(); len(got) != want {
			t.Fatalf("after %d runs: %+v", i+1, got)
		}
	}

	b.change(func(_ *plan.Agent, j *plan.Job) { j.Budget = plan.Budget{} })
	b.run(b.triggered(domain.TriggerManual)) // 3000 of 3700 micro-USD are spent
	got := b.notices()
	if len(got) != 3 {
		t.Fatalf("notices: %+v", got)
	}
	if n := got[1]; n.Channel != "ops" || n.Title != "job books: the day's budget is used up" || !strings.Contains(n.Body, "Runs that cost nothing continue") {
		t.Errorf("%+v", n)
	}
	if n := got[0]; n.Channel != "ops" || n.Title != "job books: 80 % of the day's budget is used" || !strings.Contains(n.Body, "2000 of 2100 tokens") || !strings.Contains(n.Body, "the day ends at 00:00") {
		t.Errorf("%+v", n)
	}
	if n := got[2]; n.Channel != "desktop" || !strings.HasPrefix(n.Title, "rouse: ") || !strings.Contains(n.Body, "$0.0030 of $0.0037") {
		t.Errorf("%+v", n)
	}
}

func (b *bench) notices() []ledger.Notice {
	b.t.Helper()
	out, err := b.ledger.Outbox.Pending(b.t.Context(), time.Now(), 10)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// TestBudgetOfMany checks that concurrent runs together do not exceed a budget.
func TestBudgetOfMany(t *testing.T) {
	t.Parallel()
	b := paid(t, modeltest.Turn{Calls: []model.Call{todo("1")}, Usage: model.Usage{Input: 90, Output: 90}})
	b.plan.Budget = plan.Budget{CostMicroUSD: 20_000}
	b.change(func(a *plan.Agent, _ *plan.Job) { a.Budget = plan.Budget{Tokens: 6000} })
	b.runner.Set(b.plan)
	var all sync.WaitGroup
	for range 8 {
		run, a, err := b.ledger.StartAttempt(t.Context(), b.triggered(domain.TriggerManual))
		if err != nil {
			t.Fatal(err)
		}

		all.Go(func() {
			res, err := b.runner.Execute(t.Context(), run, a)
			if err != nil || res.Outcome != domain.OutcomeBudget {
				t.Errorf("%+v (%v)", res, err)
			}
		})
	}

	all.Wait()
	s := b.spent(b.ledger, budget.ScopeDaemon, "")
	if s.CostMicroUSD > 20_000 || s.Tokens > 6000 || s.CostMicroUSD < 10_000 || s.ReservedMicroUSD != 0 {
		t.Errorf("%+v", s)
	}
	if want := int64(len(b.server.Requests())) * 990; s.CostMicroUSD != want {
		t.Errorf("%d are counted, %d were paid", s.CostMicroUSD, want)
	}
}

// TestWakeSpendsItsJobs checks that a wake spends the budget of the job that began its chain.
func TestWakeSpendsItsJobs(t *testing.T) {
	t.Parallel()
	b := paid(t, modeltest.Turn{Text: "Done.", Usage: model.Usage{Input: 100}})
	b.change(func(_ *plan.Agent, j *plan.Job) { j.Budget = plan.Budget{CostMicroUSD: 2000} })
	wake := func() ledger.Result {
		out, err := b.ledger.Enqueue(t.Context(), ledger.Request{Agent: "clerk", Trigger: domain.TriggerSelf,
			Detail: ledger.TriggerDetail{Wake: &ledger.WakeDetail{Job: "books", Instructions: "Look again.", ScheduledBy: ledger.ByAgent}}})
		if err != nil {
			t.Fatal(err)
		}
		return b.run(out[0].Run)
	}

	for i := range 10 {
		if res := wake(); res.Outcome == domain.OutcomeSkipped {
			if s := b.spent(b.ledger, budget.ScopeJob, "books"); i == 0 || s.CostMicroUSD != int64(i)*100 || !strings.Contains(res.Error, "job books") {
				t.Errorf("after %d wakes: %+v, %+v", i, s, res)
			}
			return
		}
	}

	t.Errorf("the job has spent %+v", b.spent(b.ledger, budget.ScopeJob, "books"))
}

// TestMonthsBudget checks that a monthly budget works like a daily budget, and that the owner gets
// one notice a month if most of it is used.
func TestMonthsBudget(t *testing.T) {
	t.Parallel()
	b := paid(t, modeltest.Turn{Text: "Done.", Usage: model.Usage{Input: 800}})
	b.plan.Channels = []string{"desktop"}
	b.change(func(a *plan.Agent, j *plan.Job) {
		a.Budget, j.Budget = plan.Budget{CostMicroUSD: 1_000_000, MonthMicroUSD: 900_000}, plan.Budget{Tokens: 100_000, MonthTokens: 1700}
	})

	for i, want := range []int{0, 1, 2} { // 800 and 1600 of 1700 tokens, then no room
		res := b.run(b.triggered(domain.TriggerSchedule))
		if got := b.notices(); len(got) != want {
			t.Fatalf("after %d runs: %+v", i+1, got)
		}
		if full := i == 2; full != (res.Outcome == domain.OutcomeSkipped) || full && !strings.Contains(res.Error, "the month's budget of job books (budget.tokens_per_month: 1700) has no room for a turn of up to") {
			t.Errorf("run %d: %+v", i+1, res)
		}
	}
	ends := budget.MonthOf(time.Now(), time.UTC).Ends.Format("2006-01-02")
	if n := b.notices()[0]; n.Title != "job books: 80 % of the month's budget is used" || !strings.Contains(n.Body, "1600 of 1700 tokens are used; the month ends at "+ends) {
		t.Errorf("%+v", n)
	}

	// The agent's budget in USD. A run that has begun uses the rest of it.
	b.change(func(a *plan.Agent, j *plan.Job) {
		a.Budget, j.Budget = plan.Budget{MonthMicroUSD: 1700}, plan.Budget{}
	})
	if res := b.run(b.triggered(domain.TriggerManual)); res.Outcome != domain.OutcomeBudget || !strings.Contains(res.Error, "the month's budget of agent") || !strings.Contains(res.Error, "(budget.cost_usd_per_month: $0.0017)") || !strings.Contains(res.Error, "; the month ends at "+ends) {
		t.Errorf("%+v", res)
	}
}
