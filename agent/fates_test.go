package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/budget"
	"rouse/internal/ledger/steps"
)

// turns builds the answers of a script. A call is written as: tool {arguments}.
type turns struct{ calls int }

func (m *turns) call(calls ...string) modeltest.Turn {
	t := modeltest.Turn{Usage: model.Usage{Input: 1000, Output: 10}}
	for _, c := range calls {
		m.calls++
		name, args, _ := strings.Cut(c, " ")
		t.Calls = append(t.Calls, model.Call{ID: fmt.Sprintf("call_%d", m.calls), Name: name, Args: json.RawMessage(args)})
	}
	return t
}

func text(words string) modeltest.Turn {
	return modeltest.Turn{Text: words, Usage: model.Usage{Input: 1000, Output: 10}}
}

// busy returns a response that refuses the request for now.
func busy(status int, after string) modeltest.Turn {
	return modeltest.Turn{Status: status, Raw: `{"error":{"message":"too much to do"}}`, Header: map[string]string{"Retry-After": after}}
}

// cutOff ends a stream in the middle, with or without an aborted connection.
func cutOff(t modeltest.Turn, abort bool) modeltest.Turn {
	t.Damage = func(stream []byte) ([]byte, bool) { return stream[:len(stream)*2/3], abort }
	return t
}

func repeated(n int, call string) string {
	return strings.TrimSuffix(strings.Repeat(call+", ", n), ", ")
}

func times(n int, t modeltest.Turn) []modeltest.Turn {
	var out []modeltest.Turn
	for range n {
		out = append(out, t)
	}
	return out
}

func script(parts ...any) (out []modeltest.Turn) {
	for _, p := range parts {
		switch p := p.(type) {
		case modeltest.Turn:
			out = append(out, p)
		case []modeltest.Turn:
			out = append(out, p...)
		}
	}
	return out
}

// fate is a row of the table. It describes the behavior of a model and the resulting run.
type fate struct {
	name   string
	script []modeltest.Turn // the last turn is repeated
	bounds loop.Bounds
	given  func(a *plan.Agent, b *bench) // changes to the usual setup
	exit   domain.Exit
	result string        // "outcome: " and words of the summary and the error
	calls  string        // recorded calls as "tool state"
	told   string        // words of a notice, once in a request and once in the record
	asked  int           // number of requests; 0 means one for each turn of the script
	within time.Duration // virtual duration; 0 means that no time passes
}

const enough = "That is all there is to say about it."

// fates returns the table. Each row is also checked against its bounds.
func fates() []fate {
	var m turns
	const (
		log, dir, gone = `file_read {"path":"log.txt"}`, `file_read {"path":"."}`, `file_read {"path":"lag.txt"}`
		rows           = `db_insert {"table":"log","rows":[{"what":"a"},{"what":"b"}]}`
		row            = `db_insert {"table":"log","row":{"what":"a"}}`
		refused        = `file_write {"path":"/elsewhere/x","content":"x"}`
		todo           = `todo {"markdown":"- [ ] look\n- [ ] tell"}`
		nonsense       = `file_read {"path":`
		page           = `<html><title>Sign in</title></html>`
	)

	complete := func(outcome string) string {
		return `complete {"summary":"` + enough + `","outcome":"` + outcome + `"}`
	}
	said := text(enough)
	priced := func(a *plan.Agent, _ *bench) { a.Model.Price, a.Model.MaxOutput = price, 100 }
	dear := m.call(log)
	dear.Usage = model.Usage{Input: 100_000, Output: 10}
	small := func(a *plan.Agent, b *bench) {
		a.Model.Window = 12_000
		b.put("work/huge.txt", strings.Repeat("0123456789abcde\n", 12_000))
	}
	roomy := func(a *plan.Agent, b *bench) { small(a, b); a.Model.Window = 40_000 }
	tiny := func(a *plan.Agent, b *bench) { small(a, b); a.Model.Window = 5_500 }
	line := 1
	lines := func(times, n int) (reads []string) {
		for range times {
			reads = append(reads, fmt.Sprintf(`file_read {"path":"huge.txt","start_line":%d,"end_line":%d}`, line, line+n-1))
			line += n
		}
		return reads
	}

	liar := func(in, out int64) modeltest.Turn {
		t := m.call(log)
		t.Usage = model.Usage{Input: in, Output: out}
		return t
	}

	return []fate{
		// Exits.
		{name: "it says the result", script: script(m.call(log), said), exit: domain.ExitFinalResponse, result: "success: " + enough, calls: "file_read done"},
		{name: "it says so after a change that failed", script: script(m.call(refused), said), exit: domain.ExitFinalResponse, result: "partial: the last call that could change something failed", calls: "file_write failed"},
		{name: "its last words are cut off", script: script(modeltest.Turn{Text: "And so", Finish: model.StopLength}), exit: domain.ExitFinalResponse, result: "partial: cut off at its greatest length"},
		{name: "its last words are withheld", script: script(modeltest.Turn{Text: "And so", Finish: model.StopFilter}), exit: domain.ExitFinalResponse, result: "partial: And so the "},
		{name: "it declines", script: script(modeltest.Turn{Text: "I will not.", Finish: model.StopRefusal}), exit: domain.ExitFinalResponse, result: "partial: I will not. the "},
		{name: "it completes", script: script(m.call(log, complete("success"))), exit: domain.ExitEnded, result: "success: " + enough, calls: "file_read done, complete done"},
		{name: "it finds nothing to do", script: script(m.call(complete("nothing"))), exit: domain.ExitEnded, result: "nothing: " + enough, calls: "complete done"},
		{name: "it leaves something out", script: script(m.call(complete("partial"))), exit: domain.ExitEnded, result: "partial: " + enough, calls: "complete done"},
		{name: "it completes without a word", script: script(m.call(`complete {"summary":"done"}`), m.call(complete(""))), exit: domain.ExitEnded, result: "success: " + enough, calls: "complete failed, complete done"},
		{name: "it asks its owner", script: script(m.call(`clarify {"question":"Which of the two?"}`)), exit: domain.ExitEnded, result: "waiting: ", calls: "clarify done"},
		{name: "its steps are used up", script: script(m.call(log), m.call(row), text("Half of it.")), bounds: loop.Bounds{Steps: 2}, exit: domain.ExitIterationCap, result: "budget_exceeded: Half of it. the 2 steps of this run were used up", calls: "file_read done, db_insert done"},
		{name: "its calls are used up", script: script(m.call(log), m.call(row, gone)), bounds: loop.Bounds{Calls: 2}, exit: domain.ExitCancelled, result: "budget_exceeded: the 2 calls of this run (bounds.calls) were used up", calls: "file_read done, db_insert done"},
		{name: "its tokens are used up", script: script(dear), bounds: loop.Bounds{Tokens: 200_500}, given: priced, exit: domain.ExitCancelled, result: "budget_exceeded: 480 are left of the run's tokens", calls: "file_read done, file_read deduped", asked: 2},
		{name: "its money is used up", script: script(dear), bounds: loop.Bounds{CostMicroUSD: 200_500}, given: priced, exit: domain.ExitCancelled, result: "budget_exceeded: $0.0003 are left of the run's cost_usd", calls: "file_read done, file_read deduped", asked: 2},
		{name: "the day is used up", script: script(dear), given: func(a *plan.Agent, b *bench) { priced(a, b); a.Budget.CostMicroUSD = 200_500 }, exit: domain.ExitEnded, result: "budget_exceeded: the day's budget of agent clerk", calls: "file_read done, file_read deduped", asked: 2},
		{name: "its time is used up", script: script(m.call(log), modeltest.Turn{Text: "Well", RepeatEvery: time.Second}), bounds: loop.Bounds{Wall: time.Minute}, exit: domain.ExitCancelled, result: "timeout: wall time of 1m0s", calls: "file_read done", within: time.Minute},
		{name: "nothing happens", script: script(modeltest.Turn{Text: "Well", Hang: true}), bounds: loop.Bounds{Idle: time.Minute}, exit: domain.ExitCancelled, result: "timeout: nothing happened for 1m0s", within: time.Minute},
		{name: "a person stops it", script: script(m.call(log), modeltest.Turn{Text: "Well", Hang: true}), given: func(_ *plan.Agent, b *bench) { b.stopAfter = 10 * time.Second }, exit: domain.ExitCancelled, result: "cancelled: not needed any more", calls: "file_read done", within: 10 * time.Second},
		{name: "its task cannot fit", script: script(said), given: func(a *plan.Agent, _ *bench) { a.Model.Window = 1000 }, exit: domain.ExitOverBudget, result: "error: context_window", asked: -1},
		{name: "its results cannot fit", script: script(m.call(lines(50, 40)...)), given: tiny, exit: domain.ExitOverBudget, result: "error: do not fit into the model's context", calls: repeated(50, "file_read done") + ", " + repeated(50, "file_read deduped"), told: "Your context was full and has started over", asked: 2},
		{name: "it says nothing", script: script(text("")), exit: domain.ExitFinalResponse, result: "error: only empty answers", asked: 3},
		{name: "it says nothing after its work", script: script(m.call(log), text("")), exit: domain.ExitEmptyResponse, result: "partial: only empty answers", calls: "file_read done", asked: 4},

		// Notices.
		{name: "steps are about to be used up", script: script(m.call(log), m.call(row), said), bounds: loop.Bounds{Steps: 5}, exit: domain.ExitFinalResponse, result: "success: ", calls: "file_read done, db_insert done", told: "3 of 5 steps remaining."},
		{name: "an error would come again", script: script(m.call(gone), m.call(gone), said), exit: domain.ExitFinalResponse, result: "success: ", calls: "file_read failed, file_read deduped", told: "The same file_read call has failed 2 times"},
		{name: "it guesses a path", script: script(m.call(gone), said), exit: domain.ExitFinalResponse, result: "success: ", calls: "file_read failed", told: "Use a path as a listing gave it"},
		{name: "it lists and does not read", script: script(m.call(dir), m.call(`file_read {"path":"sub"}`), said), exit: domain.ExitFinalResponse, result: "success: ", calls: "file_read done, file_read done", told: "Read one of the files, by its path in the listing."},
		{name: "it plans and does not act", script: script(m.call(todo), m.call(todo), m.call(todo), said), exit: domain.ExitFinalResponse, result: "success: ", calls: "todo done, todo done, todo done", told: "without acting on it"},
		{name: "it repeats itself", script: script(m.call(row), m.call(row), m.call(row), said), exit: domain.ExitFinalResponse, result: "success: ", calls: "db_insert done, db_insert done, db_insert done", told: "You have made the same db_insert call several times in a row."},
		{name: "it falls silent for a moment", script: script(text(""), said), exit: domain.ExitFinalResponse, result: "success: ", told: "Your last answer was empty."},
		{name: "it forgets its list", script: script(m.call(todo), m.call(log), m.call(row), m.call(dir), m.call(`db_schema {}`), said), exit: domain.ExitFinalResponse, result: "success: ", calls: "todo done, file_read done, db_insert done, file_read done, db_schema done", told: "Your todo list has 2 open items"},
		{name: "it moves rows", script: script(m.call(rows), said), bounds: loop.Bounds{Steps: 9}, exit: domain.ExitFinalResponse, result: "success: ", calls: "db_insert done", told: "A step that only moves rows in bulk is not counted"},
		{name: "its context is nearly full", script: script(m.call(lines(12, 300)...), m.call(lines(1, 200)...), m.call(lines(1, 200)...), m.call(lines(1, 200)...), m.call(lines(1, 200)...), said), given: roomy, exit: domain.ExitFinalResponse, result: "success: ", calls: repeated(16, "file_read done"), told: "The context is nearly full"},
		{name: "its context starts over", script: script(m.call(lines(50, 40)...), said), given: tiny, exit: domain.ExitFinalResponse, result: "success: ", calls: repeated(50, "file_read done"), told: "Your context was full and has started over"},
		{name: "its results are cut", script: script(m.call(lines(5, 300)...), said), given: small, exit: domain.ExitFinalResponse, result: "success: ", calls: repeated(5, "file_read done")},

		// Faults of the model.
		{name: "nonsense for arguments", script: script(m.call(nonsense)), exit: domain.ExitEnded, result: "error: the model scripted", asked: 4, within: 7 * time.Second},
		{name: "nonsense for arguments, once", script: script(m.call(nonsense), m.call(log), said), exit: domain.ExitFinalResponse, result: "success: ", calls: "file_read done", within: time.Second},
		{name: "a tool that is not there", script: script(m.call(`file_raed {"path":"log.txt"}`), said), exit: domain.ExitFinalResponse, result: "success: ", calls: "file_raed failed"},
		{name: "wrong types", script: script(m.call(`file_read {"path":{"name":"log.txt"}}`, `file_read {"path":"log.txt","start_line":"first"}`, `file_read {}`, `file_read {"file":"log.txt"}`), said), exit: domain.ExitFinalResponse, result: "success: ", calls: "file_read failed, file_read failed, file_read failed, file_read failed"},
		{name: "the same for ever", script: script(m.call(log)), bounds: loop.Bounds{Steps: 6}, exit: domain.ExitIterationCap, result: "budget_exceeded: the 6 steps", calls: "file_read done, file_read deduped, file_read deduped, file_read deduped, file_read deduped, file_read deduped", asked: 7},
		{name: "a hundred calls at once", script: script(m.call(strings.Split(strings.Repeat(row+"|", 99)+row, "|")...)), bounds: loop.Bounds{Calls: 3}, exit: domain.ExitCancelled, result: "budget_exceeded: the 3 calls", calls: "db_insert done, db_insert done, db_insert done"},
		{name: "words without end", script: script(modeltest.Turn{Text: strings.Repeat("more and ", 100), RepeatEvery: time.Millisecond}), bounds: loop.Bounds{Output: 10_000}, exit: domain.ExitCancelled, result: "budget_exceeded: the model wrote more than the 10000 bytes", within: 10 * time.Second},

		// Faults of the server.
		{name: "it hangs", script: script(modeltest.Turn{Hang: true}), exit: domain.ExitEnded, result: "error: sent nothing for 2m0s", asked: 4, within: 8*time.Minute + 7*time.Second},
		{name: "it hangs in the middle", script: script(modeltest.Turn{Text: "Well", Calls: m.call(row).Calls, Hang: true}), exit: domain.ExitEnded, result: "error: sent nothing for 2m0s", asked: 4, within: 8*time.Minute + 7*time.Second},
		{name: "it hangs for longer than the run may take", script: script(modeltest.Turn{Hang: true}), bounds: loop.Bounds{Wall: 3 * time.Minute}, exit: domain.ExitCancelled, result: "timeout: wall time of 3m0s", asked: 2, within: 3 * time.Minute},
		{name: "it claims too much", script: script(liar(1<<61, 1<<61)), bounds: loop.Bounds{Tokens: 50_000}, exit: domain.ExitCancelled, result: "budget_exceeded: tokens", calls: "file_read done"},
		{name: "it claims less than nothing", script: script(liar(-1<<40, -1<<40), liar(-5, -5), said), bounds: loop.Bounds{Tokens: 50_000}, exit: domain.ExitFinalResponse, result: "success: ", calls: "file_read done, file_read deduped"},
		{name: "it closes in the middle of a call", script: script(cutOff(m.call(row), true)), exit: domain.ExitEnded, result: "error: ", asked: 4, within: 7 * time.Second},
		{name: "it closes in the middle of a call, once", script: script(cutOff(m.call(row), true), m.call(row), said), exit: domain.ExitFinalResponse, result: "success: ", calls: "db_insert done", within: time.Second},
		{name: "a stream that stops short", script: script(cutOff(m.call(row), false)), exit: domain.ExitEnded, result: "error: ", asked: 4, within: 7 * time.Second},
		{name: "a stream of nothing", script: script(modeltest.Turn{Damage: func([]byte) ([]byte, bool) { return nil, false }}), exit: domain.ExitEnded, result: "error: ", asked: 4, within: 7 * time.Second},
		{name: "it fails in its words", script: script(modeltest.Turn{Text: "Well", Fail: model.KindUnavailable}, m.call(row), said), exit: domain.ExitFinalResponse, result: "success: ", calls: "db_insert done", within: time.Second},
		{name: "too many requests, for a while", script: script(times(3, busy(429, "20")), said), exit: domain.ExitFinalResponse, result: "success: ", within: 66 * time.Second},
		{name: "too many requests, for ever", script: script(busy(429, "20")), exit: domain.ExitEnded, result: "error: too much to do", asked: 16, within: 8 * time.Minute},
		{name: "too many requests, for the day", script: script(busy(429, "7200")), exit: domain.ExitEnded, result: "error: too much to do"},
		{name: "out of service, for a while", script: script(times(2, busy(503, "1")), busy(500, ""), said), exit: domain.ExitFinalResponse, result: "success: ", within: 10 * time.Second},
		{name: "out of service, for longer than the run may take", script: script(busy(503, "50")), bounds: loop.Bounds{Wall: 2 * time.Minute}, exit: domain.ExitCancelled, result: "timeout: wall time of 2m0s", asked: 3, within: 2 * time.Minute},
		{name: "a key that is wrong", script: script(modeltest.Turn{Fail: model.KindAuth}), exit: domain.ExitEnded, result: "error: key"},
		{name: "a page of somebody else", script: script(modeltest.Turn{Header: map[string]string{"Content-Type": "text/html"}, Raw: page}), exit: domain.ExitEnded, result: "error: text/html"},
		{name: "a history that is too long for it", script: script(m.call(log), modeltest.Turn{Fail: model.KindContextOverflow}, said), exit: domain.ExitFinalResponse, result: "success: ", calls: "file_read done"},
		{name: "a task that is too long for it", script: script(modeltest.Turn{Fail: model.KindContextOverflow}), exit: domain.ExitEnded, result: "error: 400 Bad Request"},
	}
}

// TestFates checks OSA-02, OSA-05, OSA-14, UNI-11 and the table exit → outcome, for each API
// dialect. Whatever a model and its server do, a run ends within its bounds, its record explains
// the outcome, and no incomplete call is executed.
func TestFates(t *testing.T) {
	t.Parallel()
	for i, f := range fates() {
		t.Run(f.name, func(t *testing.T) {
			for j, dialect := range dialects() {
				if !tried(i, j) {
					continue
				}
				t.Run(dialect, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { f.meet(t, dialect) })
				})
			}
		})
	}
}

// tried reports whether a row of the table is tested with a dialect. Each row uses one dialect, or
// all dialects with ROUSE_TEST_DIALECTS=all.
func tried(row, dialect int) bool {
	return dialect == row%len(dialects()) || os.Getenv("ROUSE_TEST_DIALECTS") == "all"
}

func (f fate) meet(t *testing.T, dialect string) {
	b := looker(t, dialect, f.script...)
	b.table()
	b.put("work/sub/more.txt", "more\n")
	clerk := b.plan.Agents["clerk"]
	clerk.Bounds = f.bounds
	if f.given != nil {
		f.given(&clerk, b)
	}

	b.plan.Agents["clerk"] = clerk
	ctx, cancel := context.WithCancelCause(t.Context())
	if b.stopAfter > 0 {
		time.AfterFunc(b.stopAfter, func() { cancel(errors.New("not needed any more")) })
	}

	began := time.Now()
	id := b.enqueue(ledger.Request{Job: "look", Agent: "clerk"})
	b.finish(id, 1, b.attempt(ctx, id))
	took := time.Since(began)
	cancel(nil)

	run := must[ledger.Run](t)(b.ledger.Runs.Get(t.Context(), id))
	outcome, words, _ := strings.Cut(f.result, ": ")
	got := string(run.Outcome)
	if run.State == domain.StateWaiting {
		got = "waiting"
	}
	if said := strings.TrimSpace(run.Summary + " " + run.Error); got != outcome || !strings.Contains(said, words) || (run.State == domain.StateFinished && run.Exit != f.exit) {
		t.Errorf("the run is %s by %s: %q, want %s by %s", got, run.Exit, said, f.result, f.exit)
	}

	f.recorded(t, b, run)
	f.bounded(t, b, run, took)
}

// recorded checks the record of the run.
func (f fate) recorded(t *testing.T, b *bench, run ledger.Run) {
	var calls []string
	for _, c := range must[[]ledger.Call](t)(b.ledger.Steps.Calls(t.Context(), run.ID)) {
		calls = append(calls, c.Tool+" "+string(c.State))
	}
	if got := strings.Join(calls, ", "); got != f.calls {
		t.Errorf("the calls are %s, want %s", got, f.calls)
	}

	noticed := 0
	for _, s := range must[[]steps.Step](t)(b.ledger.Steps.List(t.Context(), run.ID)) {
		if s.FinishedAt.IsZero() {
			t.Errorf("step %d has no end", s.Number)
		}
		if f.told != "" && strings.Contains(strings.Join(s.Notices, "\n"), f.told) {
			noticed++
		}
	}

	told := 0
	for _, sent := range b.server.Requests() {
		if f.told != "" && bytes.Contains(sent, []byte(f.told)) {
			told++
		}
	}

	if want := min(len(f.told), 1); noticed != want || told != want {
		t.Errorf("%q is in %d steps of the record and %d requests", f.told, noticed, told)
	}
	if s := b.spent(b.ledger, budget.ScopeDaemon, ""); s.ReservedTokens != 0 || s.ReservedMicroUSD != 0 || s.Tokens != run.Usage.TokensIn+run.Usage.TokensOut {
		t.Errorf("the day has %+v of a run that took %+v", s, run.Usage)
	}
}

// bounded checks that the run stayed within its bounds.
func (f fate) bounded(t *testing.T, b *bench, run ledger.Run, took time.Duration) {
	limit := f.bounds.Within(loop.Bounds{})
	if run.Steps > limit.Steps+1 || run.Calls > limit.Calls || took > limit.Wall { // the final answer is another step
		t.Errorf("%d steps, %d calls and %s are more than %+v", run.Steps, run.Calls, took, limit)
	}
	if limit.CostMicroUSD > 0 && run.Usage.CostMicroUSD > limit.CostMicroUSD {
		t.Errorf("it cost %d of %d", run.Usage.CostMicroUSD, limit.CostMicroUSD)
	}
	if took > f.within {
		t.Errorf("it took %s, want %s at most", took, f.within)
	}

	asked := f.asked
	if asked == 0 {
		asked = len(f.script)
	}
	if got := len(b.server.Requests()); got != max(asked, 0) {
		t.Errorf("the server was asked %d times, want %d", got, asked)
	}
}
