package agent_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/openai"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/record"
)

// cable is the connection to a server. A test can interrupt it.
type cable struct {
	http.RoundTripper
	pulled atomic.Bool
	good   int32 // number of requests before an interruption; 0 means that the test interrupts it
	tries  atomic.Int32
}

func (c *cable) RoundTrip(r *http.Request) (*http.Response, error) {
	if n := c.tries.Add(1); c.pulled.Load() || c.good > 0 && n > c.good {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	return c.RoundTripper.RoundTrip(r)
}

// cabled returns pipedPaid with a cable.
func cabled(t *testing.T, turns ...modeltest.Turn) (*bench, *cable) {
	t.Helper()
	s, way := modeltest.Pipe(t, turns...)
	c := &cable{RoundTripper: way}
	b := furnish(t, s, linkedTo(t, s, c))
	clerk := b.plan.Agents["clerk"]
	clerk.Database, clerk.Model.Price, clerk.Model.MaxOutput, clerk.Allow = false, price, 100, []string{"todo", "complete"}
	b.plan.Agents["clerk"] = clerk
	b.plan.Jobs["books"] = plan.Job{Name: "books", Agent: "clerk", Prompt: "Do the books."}
	b.plan.Jobs["mail"] = plan.Job{Name: "mail", Agent: "clerk", Prompt: "Do the mail."}
	return b, c
}

func linkedTo(t *testing.T, s *modeltest.Server, way http.RoundTripper) model.Provider {
	t.Helper()
	p, err := openai.New(openai.Options{BaseURL: s.URL + "/v1", Model: "scripted", APIKey: "sk-canary", Transport: way})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// conclude runs the next attempt of a run and records its end like the dispatcher.
func (b *bench) conclude(id int64) (ledger.Result, ledger.Run) {
	b.t.Helper()
	res := b.run(id)
	run, err := b.ledger.Runs.Get(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}

	if res.Postpone != nil {
		res.RetryAt, res.Notices = time.Now().Add(time.Minute), res.Postpone.Notices
	}
	if err := b.ledger.Finish(b.t.Context(), ledger.Attempt{Run: id, Number: run.Attempt}, res); err != nil {
		b.t.Fatal(err)
	}
	if run, err = b.ledger.Runs.Get(b.t.Context(), id); err != nil {
		b.t.Fatal(err)
	}
	return res, run
}

// TestUnreachableModel checks that requests to an unreachable server are retried for the time of a
// restart, at no cost. Then the run waits, its owner is notified once of the outage, and the run
// succeeds when the server is back. A run that a user started fails at once. A run in which a model
// has answered is not started over.
func TestUnreachableModel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, way := cabled(t, modeltest.Turn{Text: "Done.", Usage: model.Usage{Input: 10, Output: 1}})
		way.pulled.Store(true)
		begun := time.Now()
		first, second := b.triggered(domain.TriggerSchedule), b.triggered(domain.TriggerWatch)
		res, run := b.conclude(first)
		if took := time.Since(begun); took < 75*time.Second || took > 110*time.Second || res.Postpone == nil || !run.Postponed() || res.Usage != (ledger.Usage{}) || !strings.Contains(res.Error, "cannot be reached") {
			t.Errorf("after %s: %+v, %+v", took, res, run)
		}
		if n := way.tries.Load(); n > 40 {
			t.Errorf("%d tries", n)
		}

		b.conclude(second)
		b.conclude(first)
		if told := b.notices(); len(told) != 1 || !strings.Contains(told[0].Title, "the model scripted does not answer: books waits") || !strings.Contains(told[0].Body, "connection refused") {
			t.Errorf("told: %+v", told)
		}

		// A user's run fails, and sooner.
		begun = time.Now()
		if res, run := b.conclude(b.triggered(domain.TriggerManual)); time.Since(begun) > 25*time.Second || res.Postpone != nil || run.Outcome != domain.OutcomeError {
			t.Errorf("by a person, after %s: %+v", time.Since(begun), res)
		}

		// The server is back during the first retries of one run, and in time for the other run.
		time.AfterFunc(60*time.Second, func() { way.pulled.Store(false) })
		if res, run := b.conclude(first); res.Outcome != domain.OutcomeSuccess || run.Attempt != 3 || run.Postponements != 2 {
			t.Errorf("%+v, %+v", res, run)
		}
		if res, _ := b.conclude(second); res.Outcome != domain.OutcomeSuccess {
			t.Errorf("%+v", res)
		}
	})
}

// TestBegunRunIsNotPostponed checks that a run in which a model has answered does not wait, because
// its calls would be repeated.
func TestBegunRunIsNotPostponed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, way := cabled(t, modeltest.Turn{Calls: []model.Call{todo("1")}, Usage: model.Usage{Input: 10, Output: 1}})
		id := b.triggered(domain.TriggerSchedule)
		way.good = 1
		if res, run := b.conclude(id); res.Postpone != nil || run.Outcome != domain.OutcomeError || run.Steps != 2 {
			t.Errorf("%+v, %+v", res, run)
		}
	})
}

// TestCircuitOfTheFirstModel checks the circuit of the first model after it failed. For some
// minutes its fallback answers at once. Then one run tries the first model, which closes the
// circuit or opens it again.
func TestCircuitOfTheFirstModel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, _ := cabled(t, modeltest.Turn{Text: "Done.", Usage: model.Usage{Input: 10, Output: 1}})
		s, pipe := modeltest.Pipe(t, modeltest.Turn{Text: "By the big one.", Usage: model.Usage{Input: 10, Output: 1}})
		way := &cable{RoundTripper: pipe}
		way.pulled.Store(true)
		b.change(func(a *plan.Agent, _ *plan.Job) {
			a.Model = &plan.Model{Name: "big", Provider: linkedTo(t, s, way), MaxOutput: 100, Fallback: a.Model}
		})

		run := func(trigger domain.Trigger, asked bool, summary string) {
			t.Helper()
			before, begun := way.tries.Load(), time.Now()
			id := b.triggered(trigger)
			res, _ := b.conclude(id)
			if took := time.Since(begun); res.Outcome != domain.OutcomeSuccess || res.Summary != summary || (way.tries.Load() > before) != asked || !asked && took > time.Second || took > 25*time.Second {
				t.Errorf("%s after %s, %d requests to the first: %+v", trigger, took, way.tries.Load()-before, res)
			}
			steps, err := b.ledger.Steps.List(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if note := strings.Join(steps[0].Notices, "\n"); !asked && (steps[0].Model != "scripted" || !strings.Contains(note, "scripted answers in the place of big, which is not asked now: ") || !strings.Contains(note, "connection refused")) {
				t.Errorf("the record: %+v", steps[0])
			}
		}

		run(domain.TriggerSchedule, true, "Done.")
		run(domain.TriggerSchedule, false, "Done.")
		run(domain.TriggerManual, false, "Done.")
		time.Sleep(5*time.Minute + time.Second)
		run(domain.TriggerSchedule, true, "Done.") // the attempt with the half-open circuit fails
		run(domain.TriggerSchedule, false, "Done.")
		way.pulled.Store(false)
		time.Sleep(5*time.Minute + time.Second)
		run(domain.TriggerSchedule, true, "By the big one.")
		run(domain.TriggerSchedule, true, "By the big one.")
	})
}

// TestQuotaPausesTheModel checks that a model with an exhausted quota is paused until the reported
// time, or for an hour, and longer each time. Jobs that need the model wait, even after a restart.
// Its owner is notified once, with the amount spent. A run that a user starts calls the model at
// once.
func TestQuotaPausesTheModel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		day := modeltest.Turn{Status: http.StatusTooManyRequests, Raw: `{"error":{"message":"Rate limit reached on requests per day. Please try again in 6h30m.","code":"rate_limit_exceeded"}}`}
		none := modeltest.Turn{Status: http.StatusPaymentRequired, Raw: `{"error":{"message":"insufficient credits"}}`}
		done := modeltest.Turn{Text: "Done.", Usage: model.Usage{Input: 1000, Output: 100}}
		b, _ := cabled(t, done, day, none, none, none, none, done)
		b.conclude(b.triggered(domain.TriggerSchedule))

		blocked := func(trigger domain.Trigger) string {
			return record.ObstaclesText(b.runner.Blockers.Obstacles(t.Context(), ledger.Run{Job: "mail", Agent: "clerk", Trigger: trigger}))
		}
		paused := func(want time.Duration) {
			t.Helper()
			all := b.runner.Models.Paused(time.Now())
			if len(all) != 1 || all[0].Model != "scripted" || time.Until(all[0].Until).Round(time.Minute) != want {
				t.Fatalf("paused: %+v, want %s", all, want)
			}
			if why := blocked(domain.TriggerSchedule); !strings.HasPrefix(why, "model_paused: the model scripted is not asked until "+all[0].Until.UTC().Format(time.RFC3339)) {
				t.Errorf("blocked: %s", why)
			}
			if why := blocked(domain.TriggerManual); why != "" {
				t.Errorf("a person's run is blocked: %s", why)
			}
		}

		id := b.triggered(domain.TriggerSchedule)
		res, run := b.conclude(id)
		if res.Postpone == nil || !run.Postponed() || !res.Postpone.Until.Equal(b.runner.Models.Paused(time.Now())[0].Until) {
			t.Fatalf("%+v", res)
		}

		paused(6*time.Hour + 30*time.Minute)
		told := b.notices()
		if len(told) != 1 || told[0].Title != "the model scripted is paused: its provider's quota is spent" ||
			!strings.Contains(told[0].Body, "requests per day") || !strings.Contains(told[0].Body, "took $0.0020 (1100 tokens) today and $0.0020 (1100 tokens) since the first of the month") {
			t.Fatalf("told: %+v", told)
		}

		// A restart.
		b.newPool()
		paused(6*time.Hour + 30*time.Minute)
		time.Sleep(7 * time.Hour)
		if why := blocked(domain.TriggerSchedule); why != "" {
			t.Errorf("after the pause: %s", why)
		}

		// Without a reported time, each pause is twice as long. The owner is not notified again.
		for _, want := range []time.Duration{2 * time.Hour, 4 * time.Hour} {
			b.conclude(id)
			paused(want)
			time.Sleep(want)
		}

		b.conclude(id)
		paused(8 * time.Hour)
		if n := len(b.notices()); n != 1 {
			t.Errorf("told %d times", n)
		}

		// The owner retries the run during the pause. The model is called at once, and the run
		// continues to wait.
		waiting := must[ledger.Run](t)(b.ledger.Retry(t.Context(), id))
		if why := record.ObstaclesText(b.runner.Blockers.Obstacles(t.Context(), waiting)); why != "" {
			t.Errorf("tried again by a person: %s", why)
		}
		if res, run := b.conclude(id); res.Postpone == nil || !run.Postponed() || len(b.server.Requests()) != 6 {
			t.Errorf("tried again by a person: %d requests, %+v", len(b.server.Requests()), run)
		}
		paused(8 * time.Hour)
		if res, _ := b.conclude(b.triggered(domain.TriggerManual)); res.Outcome != domain.OutcomeSuccess {
			t.Errorf("by a person: %+v", res)
		}
		if left := b.runner.Models.Paused(time.Now()); len(left) != 0 || blocked(domain.TriggerSchedule) != "" {
			t.Errorf("still paused: %+v", left)
		}
		if rows, err := b.ledger.Pauses.Models(context.Background()); err != nil || len(rows) != 0 {
			t.Errorf("in the ledger: %+v (%v)", rows, err)
		}
	})
}

// TestQuotaAndFallback checks that the fallback answers in place of a paused model, without a
// request to the paused model.
func TestQuotaAndFallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, _ := cabled(t, modeltest.Turn{Text: "Done.", Usage: model.Usage{Input: 10, Output: 1}})
		s, pipe := modeltest.Pipe(t, modeltest.Turn{Status: http.StatusPaymentRequired, Raw: `{"error":{"message":"insufficient credits"}}`})
		b.change(func(a *plan.Agent, _ *plan.Job) {
			a.Model = &plan.Model{Name: "big", Provider: linkedTo(t, s, pipe), MaxOutput: 100, Fallback: a.Model}
		})
		for range 3 {
			if res, _ := b.conclude(b.triggered(domain.TriggerSchedule)); res.Outcome != domain.OutcomeSuccess {
				t.Errorf("%+v", res)
			}
		}
		if n := len(s.Requests()); n != 1 || len(b.notices()) != 1 {
			t.Errorf("%d requests, told %+v", n, b.notices())
		}
	})
}
