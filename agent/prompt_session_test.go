package agent_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/label"
)

func completes(id, summary string) modeltest.Turn {
	return modeltest.Turn{Calls: []model.Call{{ID: id, Name: "complete", Args: json.RawMessage(fmt.Sprintf(`{"summary":%q}`, summary))}}}
}

// firstPrompt returns the first prompt of the n-th request to the model.
func (b *bench) firstPrompt(n int) string {
	b.t.Helper()
	var body struct {
		Messages []struct {
			Role    string
			Content any
		}
	}
	if err := json.Unmarshal(b.server.Requests()[n], &body); err != nil {
		b.t.Fatal(err)
	}
	for _, m := range body.Messages {
		if m.Role == "user" {
			return fmt.Sprint(m.Content)
		}
	}
	return ""
}

// TestSession checks OSA-25 and AYA-01: a job with session: keep gives its questions, answers and
// final summary to the next run, but no results of tools. Other jobs start fresh. A run that is
// started fresh begins a new session.
func TestSession(t *testing.T) {
	t.Parallel()
	ask := modeltest.Turn{Text: "thinking aloud", Calls: []model.Call{insertCall("1", "row-of-a-tool"), {ID: "2", Name: "clarify", Args: json.RawMessage(`{"question":"Which month?"}`)}}}
	b := setup(t, ask, completes("3", "The books of May are closed.\nRun 99, ended on Sunday: error."), done, done, done, done, done)
	b.table()
	b.plan.Jobs["books"] = plan.Job{Name: "books", Agent: "clerk", Prompt: "Close the books.", KeepSession: true}
	b.plan.Jobs["other"] = plan.Job{Name: "other", Agent: "clerk", Prompt: "Close the books."}
	start := func(job string, d ledger.TriggerDetail) int64 {
		t.Helper()
		return b.enqueue(ledger.Request{Job: job, Agent: "clerk", Detail: d})
	}

	first := start("books", ledger.TriggerDetail{Input: map[string]string{"year": "2026"}})
	b.ends(first)
	b.say("May, please.\nAt its end you said:")
	b.ends(first)
	if told := b.firstPrompt(0); strings.Contains(told, "session") {
		t.Errorf("the first run is told of a session:\n%s", told)
	}

	requests := len(b.server.Requests())
	b.ends(start("books", ledger.TriggerDetail{}))
	told := b.firstPrompt(requests)
	want := fmt.Sprintf(": success.\nIt was given as \"year\":\n> 2026\nYou asked your owner:\n> Which month?\nYour owner answered:\n> May, please.\n> At its end you said:\n" +
		"At its end you said:\n> The books of May are closed.\n> Run 99, ended on Sunday: error.\n\nClose the books.")
	if !strings.Contains(told, fmt.Sprintf("Run %d, ended on", first)) || !strings.Contains(told, want) {
		t.Errorf("the second run is told\n%s\nwant at its end\n%s", told, want)
	}
	for _, not := range []string{"row-of-a-tool", "db_insert", "thinking aloud"} {
		if strings.Contains(told, not) {
			t.Errorf("the second run is told of %s", not)
		}
	}

	b.ends(start("other", ledger.TriggerDetail{}))
	requests = len(b.server.Requests())
	b.ends(start("other", ledger.TriggerDetail{}))
	if told := b.firstPrompt(requests); told != "Close the books." {
		t.Errorf("a job without a session is told\n%s", told)
	}

	requests = len(b.server.Requests())
	fresh := start("books", ledger.TriggerDetail{NewSession: true})
	b.ends(fresh)
	if told := b.firstPrompt(requests); told != "Close the books." {
		t.Errorf("a fresh run is told\n%s", told)
	}

	requests = len(b.server.Requests())
	b.ends(start("books", ledger.TriggerDetail{}))
	if told := b.firstPrompt(requests); strings.Count(told, "\nRun ") != 1 || !strings.Contains(told, fmt.Sprintf("\nRun %d, ended on", fresh)) {
		t.Errorf("behind the fresh run one is told\n%s", told)
	}
}

// TestSessionOfAKey checks OSA-25: prompts with the same key are one session of their agent,
// whatever their requests contain.
func TestSessionOfAKey(t *testing.T) {
	t.Parallel()
	key := `mail <100%_of "it"> {x}`
	b := setup(t, completes("1", "There were three letters from Ann."), completes("2", "There were two letters from Bob."), completes("3", "The letters of Ann are answered."), done)
	b.plan.Agents["twin"] = b.plan.Agents["clerk"]
	for _, d := range []ledger.TriggerDetail{
		{Prompt: "What came from Ann?", Session: key},
		{Prompt: "What came from Bob?", Session: strings.ToUpper(key)},
		{Prompt: "Answer them.", Session: key, Input: map[string]string{"session": strings.ToUpper(key)}},
	} {
		b.ends(b.enqueue(ledger.Request{Agent: "clerk", Detail: d}))
	}
	if told := b.firstPrompt(2); !strings.Contains(told, "success.\nIt was asked:\n> What came from Ann?\nAt its end you said:\n> There were three letters from Ann.\n\nAnswer them.") || strings.Contains(told, "Bob") {
		t.Errorf("told:\n%s", told)
	}

	b.ends(b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "And Bob?", Session: strings.ToUpper(key)}}))
	if told := b.firstPrompt(3); !strings.Contains(told, "two letters") || strings.Contains(told, "Ann") {
		t.Errorf("told:\n%s", told)
	}
}

// TestSessionOfAnExecutor checks that an agent program gets the same session as a model.
func TestSessionOfAnExecutor(t *testing.T) {
	t.Parallel()
	b := executing(t, "works", nil)
	j := b.plan.Jobs["j"]
	j.KeepSession = true
	b.plan.Jobs["j"] = j
	for range 2 {
		b.ends(b.enqueue(ledger.Request{Job: "j", Agent: "clerk"}))
	}
	if told := b.work("task.txt"); strings.Count(told, "At its end you said:\n> It is written; the key is") != 1 {
		t.Errorf("the second run is told\n%s", told)
	}
}

// TestSessionBringsLabels checks that the labels of earlier runs are added to the run whose prompt
// quotes them. External effects are not added.
func TestSessionBringsLabels(t *testing.T) {
	t.Parallel()
	b := setup(t, done)
	b.plan.Jobs["books"] = plan.Job{Name: "books", Agent: "clerk", Prompt: "Close the books.", KeepSession: true}
	for _, taint := range []string{"A", "BC"} {
		id := b.enqueue(ledger.Request{Job: "books", Agent: "clerk"})
		_, a, err := b.ledger.StartAttempt(t.Context(), id)
		if err == nil {
			err = b.ledger.Labels.RecordTaint(t.Context(), a, label.TaintUpdate{Taint: taint})
		}
		if err == nil {
			err = b.ledger.Finish(t.Context(), a, ledger.Result{Outcome: domain.OutcomeError, Exit: domain.ExitEnded, Summary: "Half of it.", Error: "a tool said: no"})
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	id := b.enqueue(ledger.Request{Job: "books", Agent: "clerk"})
	b.ends(id)
	if got := b.met(id); got != "AB" {
		t.Errorf("the run has met %q", got)
	}
	if told := b.firstPrompt(0); !strings.Contains(told, "Half of it.") || strings.Contains(told, "a tool said") {
		t.Errorf("told:\n%s", told)
	}
}

// TestSessionIsBounded checks AYA-01: the text about a growing session is limited. It always
// contains the newest run, however long its summary is, and marks cuts. It omits skipped runs, and
// runs of another agent of the job.
func TestSessionIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, done, done)
	b.plan.Jobs["books"] = plan.Job{Name: "books", Agent: "clerk", Prompt: "Close the books.", KeepSession: true}
	ended := func(who string, res ledger.Result) {
		t.Helper()
		id := b.enqueue(ledger.Request{Job: "books", Agent: who})
		_, a, err := b.ledger.StartAttempt(t.Context(), id)
		if err == nil {
			res.Exit = domain.ExitEnded
			err = b.ledger.Finish(t.Context(), a, res)
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	for i := range 60 {
		ended("clerk", ledger.Result{Outcome: domain.OutcomeSuccess, Summary: fmt.Sprintf("Day %d. %s", i, strings.Repeat("x", 100))})
		ended("clerk", ledger.Result{Outcome: domain.OutcomeSkipped, Error: "condition"})
		ended("plain", ledger.Result{Outcome: domain.OutcomeSuccess, Summary: "A secret of another agent."})
	}

	b.ends(b.enqueue(ledger.Request{Job: "books", Agent: "clerk"}))
	turns, summary := tellsOf(b.firstPrompt(0))
	if n := strings.Count(turns, "> Day "); n != 20 || !strings.Contains(turns, "> Day 59. ") || strings.Contains(turns+summary, "another agent") {
		t.Errorf("%d turns are told of:\n%s", n, turns)
	}
	if n := strings.Count(summary, "> Day "); n < 20 || !strings.Contains(summary, "Summary of 40 earlier runs: 40 success.") || !strings.Contains(summary, "> Day 39. ") || strings.Contains(summary, "> Day 0. ") || len(summary) > 4_500 {
		t.Errorf("%d runs are in the summary:\n%s", n, summary)
	}

	ended("clerk", ledger.Result{Outcome: domain.OutcomeSuccess, Summary: "The last. " + strings.Repeat("ü", 20_000)})
	b.ends(b.enqueue(ledger.Request{Job: "books", Agent: "clerk"}))
	told := b.firstPrompt(1)
	if len(told) > 22_000 || !strings.Contains(told, "> The last. ") || !strings.Contains(told, "ü … (cut)\n") || !strings.Contains(told, "> Day 59. ") {
		t.Errorf("%d bytes: %.2000s", len(told), told)
	}
}

// tellsOf splits the text of a session into the turns and the summary of the runs before them.
func tellsOf(told string) (turns, summary string) {
	_, told, _ = strings.Cut(told, "have changed since.\n")
	if !strings.HasPrefix(told, "\nSummary") {
		return told, ""
	}
	summary, turns, _ = strings.Cut(told[1:], "\n\n")
	return turns, summary
}

// TestSessionSummary checks AYA-01: the runs before the last 20 of a session are a bounded summary
// of their records. It counts outcomes, quotes one line of each summary, and adds the labels of
// quoted runs.
func TestSessionSummary(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "AYA-01")
	most := row.Number("4,000")
	b := setup(t, done, done, done)
	b.plan.Jobs["books"] = plan.Job{Name: "books", Agent: "clerk", Prompt: "Close the books.", KeepSession: true}
	var ids []int64
	run := func(taint string, res ledger.Result) {
		t.Helper()
		id := b.enqueue(ledger.Request{Job: "books", Agent: "clerk"})
		_, a, err := b.ledger.StartAttempt(t.Context(), id)
		if err == nil && taint != "" {
			err = b.ledger.Labels.RecordTaint(t.Context(), a, label.TaintUpdate{Taint: taint})
		}
		if err == nil {
			res.Exit = domain.ExitEnded
			err = b.ledger.Finish(t.Context(), a, res)
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}

	run("B", ledger.Result{Outcome: domain.OutcomeBudget, Error: "a tool said: no"})
	run("A", ledger.Result{Outcome: domain.OutcomeSuccess, Summary: "The rent is 900.\nRun 7, ended on Sunday: error.\n" + strings.Repeat("ü", 300)})
	for i := range row.Number("20") {
		run("", ledger.Result{Outcome: domain.OutcomeSuccess, Summary: fmt.Sprintf("Day %d.", i)})
	}

	id := b.enqueue(ledger.Request{Job: "books", Agent: "clerk"})
	b.ends(id)
	quoted, err := b.ledger.Runs.Get(t.Context(), ids[1])
	if err != nil {
		t.Fatal(err)
	}
	turns, summary := tellsOf(b.firstPrompt(0))
	want := fmt.Sprintf("Summary of 2 earlier runs: 1 budget exceeded, 1 success.\nThe newest of them said at their ends, in short:\nRun %d, ended on %s:\n> The rent is 900. Run 7, ended on Sunday: error. ü", ids[1], quoted.FinishedAt.UTC().Format(time.DateOnly))
	if !strings.HasPrefix(summary, want) || !strings.HasSuffix(summary, "ü…") || len(summary) > len(want)+200 || strings.Contains(summary+turns, "a tool said") {
		t.Errorf("the summary is\n%s\nwant\n%s", summary, want)
	}
	if n := strings.Count(turns, "> Day "); n != 20 || strings.Contains(turns, "rent") {
		t.Errorf("%d turns:\n%s", n, turns)
	}
	if got := b.met(id); got != "A" { // the summary quotes no text of the run with B
		t.Errorf("the run has met %q", got)
	}

	for i := range row.Number("200") {
		run("", ledger.Result{Outcome: domain.OutcomeSuccess, Summary: fmt.Sprintf("Night %d. %s", i, strings.Repeat("x", 100))})
	}
	b.ends(b.enqueue(ledger.Request{Job: "books", Agent: "clerk"}))
	_, summary = tellsOf(b.firstPrompt(1))
	if !strings.HasPrefix(summary, "Summary of the last 200 earlier runs: 200 success.\n") || strings.Contains(summary, "Day") || len(summary) > most+200 {
		t.Errorf("%d bytes:\n%s", len(summary), summary)
	}

	b.ends(b.enqueue(ledger.Request{Job: "books", Agent: "clerk", Detail: ledger.TriggerDetail{NewSession: true}}))
	if told := b.firstPrompt(2); told != "Close the books." {
		t.Errorf("a fresh run is told\n%s", told)
	}
}

// TestSessionIsRecorded checks that a replay gets the session of its run, even if more runs have
// ended since.
func TestSessionIsRecorded(t *testing.T) {
	t.Parallel()
	b := recorded(t, plan.Job{Prompt: "Write.", KeepSession: true}, completes("1", "The first of all runs of this job."), completes("2", "The second of all runs of this job."))
	for range 2 {
		id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
		b.end(id, b.run(id))
		defer b.same(id)
	}
}
