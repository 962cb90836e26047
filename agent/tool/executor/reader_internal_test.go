package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"rouse/agent/model"
	"rouse/agent/sandbox"
	"rouse/agent/tool/shell"
	"rouse/internal/domain"
)

// now is the time of the tests. The limits in their data end later.
var now = time.Date(2026, 11, 25, 20, 0, 0, 0, time.UTC)

// heard records the calls of a listener as text.
type heard struct {
	lines []string
	fail  error
}

func (h *heard) Turn(_ context.Context, t Turn) error {
	h.lines = append(h.lines, "turn "+t.Text)
	return h.fail
}

func (h *heard) Call(_ context.Context, c Call) error {
	word := "ok"
	if c.Failed {
		word = "failed"
	}
	h.lines = append(h.lines, fmt.Sprintf("%s %s %s: %s", c.Tool, c.Args, word, strings.TrimSpace(c.Result)))
	return h.fail
}

// read reads an output in pieces of the given size.
func read(output []byte, size int, h Listener) Reading {
	r := NewReader(context.Background(), true, h, nil)
	r.now = func() time.Time { return now }
	for len(output) > 0 {
		n := min(size, len(output))
		_, _ = r.Write(output[:n])
		output = output[n:]
	}
	return r.Close()
}

// TestForms checks that the output of each program is read correctly, in pieces of any size.
func TestForms(t *testing.T) {
	t.Parallel()
	reset := time.Unix(1795648800, 0)
	for file, want := range map[string]struct {
		Reading
		heard []string
	}{
		"claude_stream.jsonl": {Reading{Dialect: "claude", Model: "claude-sonnet-5", Session: "b2", Turns: 2, Calls: 1, Usage: model.Usage{Input: 2430, Output: 42, Cached: 2200, Written: 200},
			CostMicroUSD: 42100, CostKnown: true, Text: "The parser is mended, and all tests pass.", Done: true},
			[]string{"turn First a look at the tests.", `Bash {"command":"go test ./..."} failed: FAIL`, "turn It is mended."}},
		"claude_whole.json": {Reading{Dialect: "claude", Session: "c1", Turns: 1, Usage: model.Usage{Input: 5, Output: 7}, CostMicroUSD: 3000, CostKnown: true,
			Text: "Nothing had to be done.", Done: true, Outcome: "nothing"}, nil},
		"claude_list.json": {Reading{Dialect: "claude", Model: "claude-opus-5", Session: "d1", Turns: 1, Usage: model.Usage{Input: 3, Output: 4}, CostMicroUSD: 10000, CostKnown: true,
			Text: "All is well.", Done: true}, []string{"turn Done."}},
		"claude_max_turns.jsonl": {Reading{Dialect: "claude", Model: "claude-sonnet-5", Session: "e1", Turns: 5, Usage: model.Usage{Input: 9, Output: 9}, CostMicroUSD: 200000, CostKnown: true,
			Done: true, Failed: true, Why: "Reached maximum number of turns (5)", Limit: "turns"}, []string{"turn Again."}},
		"claude_limit.jsonl": {Reading{Dialect: "claude", Model: "claude-sonnet-5", Session: "f1", CostKnown: true, Text: "You've hit your limit · resets 3pm (Europe/Berlin)",
			Done: true, Failed: true, Why: "You've hit your limit · resets 3pm (Europe/Berlin)", Unavailable: true, RetryAt: reset}, nil},
		"claude_refused.jsonl": {Reading{Dialect: "claude", Model: "claude-sonnet-5", Session: "g1", Turns: 2, Usage: model.Usage{Input: 1, Output: 1}, CostMicroUSD: 10000, CostKnown: true,
			Text: "I would need leave to write.", Done: true, Refused: []string{"Write", "Bash"}}, nil},
		"codex.jsonl": {Reading{Dialect: "codex", Session: "0199-a", Turns: 2, Calls: 2, Usage: model.Usage{Input: 2400, Output: 122, Cached: 2000}, Text: "a.txt says what it should.",
			Why: "Reconnecting... 1/5", Done: true},
			[]string{"turn ", `command_execution {"command":"bash -lc ls"} ok: a.txt`, `file_change [{"path":"a.txt","kind":"update"}] ok: completed`, "turn a.txt says what it should."}},
		"codex_failed.jsonl": {Reading{Dialect: "codex", Session: "0199-b", Done: true, Failed: true, Why: "You've hit your usage limit. Upgrade to Pro or try again in 3 hours 20 minutes.",
			Unavailable: true, RetryAt: now.Add(3*time.Hour + 20*time.Minute)}, nil},
		"gemini_whole.json": {Reading{Dialect: "gemini", Session: "h1", Turns: 1, Usage: model.Usage{Input: 500, Output: 60, Cached: 100}, Text: "The list is sorted.", Done: true},
			[]string{"turn The list is sorted."}},
		"gemini_stream.jsonl": {Reading{Dialect: "gemini", Model: "gemini-2.5-pro", Session: "i1", Turns: 2, Calls: 1, Usage: model.Usage{Input: 70, Output: 20, Cached: 10}, Text: "It is sorted now.", Done: true},
			[]string{"turn I will ", `read_file {"path":"a"} ok: b a`, "turn It is sorted "}},
		"gemini_error.json": {Reading{Dialect: "gemini", Session: "j1", Done: true, Failed: true, Why: "Reached max session turns for this session.", Limit: "turns"}, nil},
		"plain.json": {Reading{Dialect: "plain", Model: "mine-1", Turns: 3, Usage: model.Usage{Input: 11, Output: 22}, CostMicroUSD: 500000, CostKnown: true, Text: "Two invoices are booked.",
			Done: true, Outcome: "partial"}, []string{"turn Two invoices are booked."}},
		"plain_question.json": {Reading{Dialect: "plain", Done: true, Question: "Which of the two accounts?"}, nil},
	} {
		t.Run(file, func(t *testing.T) {
			output, err := os.ReadFile(filepath.Join("testdata", file))
			if err != nil {
				t.Fatal(err)
			}
			for _, size := range []int{1, 7, len(output)} {
				h := &heard{}
				got := read(output, size, h)
				got.Written = 0
				if !reflect.DeepEqual(got, want.Reading) || !reflect.DeepEqual(h.lines, want.heard) {
					t.Errorf("in pieces of %d:\n got %+v\nwant %+v\n got %q\nwant %q", size, got, want.Reading, h.lines, want.heard)
				}
			}
		})
	}
}

// TestHostileOutput checks that truncated, malformed, huge or hostile output never counts as a
// success and that no control character is shown.
func TestHostileOutput(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile("testdata/claude_stream.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for name, output := range map[string][]byte{
		"nothing":             nil,
		"no JSON":             []byte("All done!\n"),
		"cut off":             whole[:len(whole)-300],
		"half of the last":    whole[:len(whole)-3],
		"deep":                []byte(`{"type":"result","subtype":"success","result":` + strings.Repeat("[", 200_000)),
		"deep and closed":     []byte(`{"type":"result","subtype":` + strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000) + `}`),
		"a line without end":  bytes.Repeat([]byte("x"), maxLine+100),
		"an object of others": []byte(`{"level":"info","msg":"started"}` + "\n"),
		"other types":         []byte(`{"type":"result","subtype":7,"is_error":"no","result":{},"total_cost_usd":"much"}` + "\n"),
		"a list of nothing":   []byte(`[1,null,"x",[]]`),
		"a null result":       []byte(`{"result":null,"error":null}`),
		"zero bytes":          make([]byte, 1000),
	} {
		r := read(output, 4096, nil)
		end := ending{reading: r, asJSON: true, argv0: "x"}
		if res := end.conclude(); res.Outcome.Done() || res.Error == "" {
			t.Errorf("%s: %+v", name, res)
		}
	}

	bad := `{"type":"result","subtype":"success","is_error":false,"result":"\u001b]0;pwned\u0007\u001b[2Jfine ` + "\xff\xfe" + `","total_cost_usd":-5,"usage":{"input_tokens":1e300,"output_tokens":-4}}` + "\n"
	end := ending{reading: read([]byte(bad), 5, nil), asJSON: true, argv0: "x"}
	res := end.conclude()
	if res.Outcome != domain.OutcomeSuccess || strings.ContainsAny(res.Answer, "\x1b\x07") || !utf8.ValidString(res.Answer) || end.reading.CostMicroUSD != 0 || end.reading.Usage.Output != 0 || end.reading.Usage.Input > maxCount {
		t.Errorf("%+v %+v", res, end.reading)
	}
}

// TestTornLine checks that a line with the output of two programs is skipped, and that the rest is
// read.
func TestTornLine(t *testing.T) {
	t.Parallel()
	torn := `{"type":"assistant","message":{"content":[{"type":"text","text":"half {"type":"rate_limit_event"}` + "\n" + ` the rest"}]}}` + "\n" +
		`{"type":"result","subtype":"success","result":"Done.","total_cost_usd":0.1}` + "\n"
	if r := read([]byte(torn), 100, nil); r.Garbled != 1 || !r.Done || r.Text != "Done." {
		t.Errorf("%+v", r)
	}
}

// TestOneTurnWithoutEnd checks that only the first messages of a turn are recorded, because one
// turn can have any number of messages.
func TestOneTurnWithoutEnd(t *testing.T) {
	t.Parallel()
	var h heard
	r := read(bytes.Repeat([]byte(`{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"x"}]}}`+"\n"), 3*maxTurns), 1<<20, &h)
	if r.Turns != 1 || len(h.lines) != maxTurns {
		t.Errorf("%d turns, of which %d were told", r.Turns, len(h.lines))
	}
}

func TestListenerFails(t *testing.T) {
	t.Parallel()
	r := NewReader(t.Context(), true, &heard{fail: errors.New("the disk is full")}, nil)
	_, _ = r.Write([]byte(`{"type":"assistant","message":{"content":[{"type":"text","text":"a"}]}}` + "\n"))
	if r.failure == nil {
		t.Error("no failure")
	}
}

// TestEmptyResult checks that an empty result falls back to the text of the last assistant message.
func TestEmptyResult(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ output, want string }{
		"claude": {`{"type":"assistant","message":{"id":"1","content":[{"type":"text","text":"First."}]}}
{"type":"assistant","message":{"id":"2","content":[{"type":"text","text":"It is"}]}}
{"type":"assistant","message":{"id":"2","content":[{"type":"tool_use","id":"t","name":"Bash","input":{}}]}}
{"type":"assistant","message":{"id":"2","content":[{"type":"text","text":"done.\nrouse-outcome: partial"}]}}
{"type":"result","subtype":"success","is_error":false,"result":""}`, "It is\ndone."},
		"claude without text": {`{"type":"assistant","message":{"id":"1","content":[{"type":"tool_use","id":"t","name":"Bash","input":{}}]}}
{"type":"result","subtype":"success","is_error":false,"result":" "}`, ""},
		"claude, failed": {`{"type":"assistant","message":{"id":"1","content":[{"type":"text","text":"First."}]}}
{"type":"result","subtype":"error_during_execution","is_error":true,"result":""}`, ""},
		"gemini": {`{"type":"init","session_id":"s","model":"auto"}
{"type":"message","role":"assistant","content":"It is ","delta":true}
{"type":"message","role":"assistant","content":"done.","delta":true}
{"type":"tool_use","tool_name":"x","tool_id":"1","parameters":{}}
{"type":"result","status":"success","stats":{}}`, "It is done."},
		"no result": {`{"type":"assistant","message":{"id":"1","content":[{"type":"text","text":"First."}]}}`, ""},
	} {
		if r := read([]byte(c.output+"\n"), 100, nil); strings.TrimSpace(r.Text) != c.want {
			t.Errorf("%s: %q, want %q", name, r.Text, c.want)
		}
	}
}

// TestLinger checks that a program has ten seconds after its final result, unless it continues to
// work.
func TestLinger(t *testing.T) {
	t.Parallel()
	result := `{"type":"result","subtype":"success","result":"done"}` + "\n"
	work := `{"type":"assistant","message":{"content":[{"type":"text","text":"more"}]}}` + "\n"
	other := `{"type":"system","subtype":"hook"}` + "\n"
	for name, c := range map[string]struct {
		lines []string // one line every six seconds
		want  time.Duration
	}{
		"a result":            {[]string{result}, 10 * time.Second},
		"a result, then less": {[]string{result, other, other}, 10 * time.Second},
		"a result, then work": {[]string{result, work}, 0},
		"work, then a result": {[]string{result, work, result}, 22 * time.Second},
		"no result":           {[]string{work}, 0},
		"codex":               {[]string{`{"type":"thread.started"}` + "\n", `{"type":"turn.completed"}` + "\n"}, 16 * time.Second},
		"codex, failed":       {[]string{`{"type":"turn.failed"}` + "\n"}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, ended := time.Now(), time.Duration(0)
				var l *linger
				r := NewReader(t.Context(), true, nil, func(Reading) {})
				l = newLinger(func() { ended = time.Since(begin) })
				r.check = func(Reading) { l.set(r.final) }
				for _, line := range c.lines {
					_, _ = r.Write([]byte(line))
					time.Sleep(6 * time.Second)
				}
				time.Sleep(time.Minute)
				l.stop()
				synctest.Wait()
				if ended != c.want {
					t.Errorf("ended after %s, want %s", ended, c.want)
				}
			})
		})
	}
}

// TestEndings checks the table of docs/guides/coding-agents.md.
func TestEndings(t *testing.T) {
	t.Parallel()
	good := Reading{Dialect: "claude", Done: true, Text: "It is done."}
	with := func(change func(*Reading)) Reading {
		r := good
		change(&r)
		return r
	}
	exit := func(n int) shell.Ended { return shell.Ended{Result: sandbox.Result{Exit: n}} }
	killed := func(by string) shell.Ended {
		return shell.Ended{Result: sandbox.Result{Exit: -1, Signal: "SIGKILL", KilledBy: by}}
	}

	for name, c := range map[string]struct {
		ending
		want domain.Outcome
		says string
	}{
		"a result":                     {ending{reading: good}, domain.OutcomeSuccess, ""},
		"a result, exit 1":             {ending{reading: good, ended: exit(1)}, domain.OutcomeError, "exit 1"},
		"says that it failed":          {ending{reading: with(func(r *Reading) { r.Failed, r.Why = true, "no key" })}, domain.OutcomeError, "no key"},
		"says so, exit 1":              {ending{reading: with(func(r *Reading) { r.Failed, r.Why = true, "no key" }), ended: exit(1)}, domain.OutcomeError, "exit 1: no key (it has no network"},
		"with network":                 {ending{reading: with(func(r *Reading) { r.Failed, r.Why = true, "no key" }), network: true}, domain.OutcomeError, "no key"},
		"its own turns":                {ending{reading: with(func(r *Reading) { r.Failed, r.Limit = true, "turns" }), ended: exit(1)}, domain.OutcomeBudget, "its own limit of turns"},
		"its own cost":                 {ending{reading: with(func(r *Reading) { r.Failed, r.Limit = true, "cost" })}, domain.OutcomeBudget, "its own limit of cost"},
		"gemini's exit 53":             {ending{reading: Reading{Dialect: "gemini"}, ended: exit(53)}, domain.OutcomeBudget, "turns"},
		"nothing said":                 {ending{reading: with(func(r *Reading) { r.Text = " \n" })}, domain.OutcomeError, "said nothing"},
		"nothing said, chosen":         {ending{reading: with(func(r *Reading) { r.Text, r.Outcome = "", "nothing" })}, domain.OutcomeNothing, ""},
		"nothing to do":                {ending{reading: with(func(r *Reading) { r.Outcome = "nothing" })}, domain.OutcomeNothing, ""},
		"a part":                       {ending{reading: with(func(r *Reading) { r.Outcome = "partial" })}, domain.OutcomePartial, "missing"},
		"could not":                    {ending{reading: with(func(r *Reading) { r.Outcome = "error" })}, domain.OutcomeError, "could not"},
		"an outcome that there is not": {ending{reading: with(func(r *Reading) { r.Outcome = "splendid" })}, domain.OutcomeSuccess, ""},
		"refused calls":                {ending{reading: with(func(r *Reading) { r.Refused = []string{"Write", "Write", "Bash"} })}, domain.OutcomePartial, "refused 3 calls (Bash, Write)"},
		"no JSON":                      {ending{argv0: "claude"}, domain.OutcomeError, "claude -p --output-format stream-json --verbose"},
		"breaks off":                   {ending{reading: with(func(r *Reading) { r.Done = false })}, domain.OutcomeError, "breaks off"},
		"a signal":                     {ending{reading: with(func(r *Reading) { r.Done = false }), ended: shell.Ended{Result: sandbox.Result{Exit: -1, Signal: "SIGSEGV"}}}, domain.OutcomeError, "SIGSEGV"},
		"a result, and a signal":       {ending{reading: good, final: true, ended: shell.Ended{Result: sandbox.Result{Exit: -1, Signal: "SIGSEGV"}}}, domain.OutcomeSuccess, ""},
		"a result, and silence":        {ending{reading: good, final: true, ended: killed(sandbox.KilledByIdle)}, domain.OutcomeSuccess, ""},
		"a result, and exit 1":         {ending{reading: good, final: true, ended: exit(1)}, domain.OutcomeError, "exit 1"},
		"a failure, and silence":       {ending{reading: with(func(r *Reading) { r.Failed, r.Why = true, "no key" }), final: true, network: true, ended: killed(sandbox.KilledByIdle)}, domain.OutcomeError, "no key"},
		"a bound, and silence":         {ending{reading: good, final: true, ended: killed(sandbox.KilledByCancel), over: &bound{"too many turns"}}, domain.OutcomeBudget, "too many turns"},
		"silence":                      {ending{reading: good, ended: killed(sandbox.KilledByIdle), idle: time.Minute}, domain.OutcomeTimeout, "wrote nothing for 1m0s"},
		"memory":                       {ending{reading: good, ended: killed(sandbox.KilledByMemory)}, domain.OutcomeError, "executor.memory"},
		"processes":                    {ending{reading: good, ended: killed(sandbox.KilledByProcesses)}, domain.OutcomeError, "processes"},
		"a flood":                      {ending{reading: good, ended: killed(shell.KilledByOutput)}, domain.OutcomeBudget, "without end"},
		"a bound of the run":           {ending{reading: good, ended: killed(sandbox.KilledByCancel), over: &bound{"too many turns"}}, domain.OutcomeBudget, "too many turns"},
	} {
		c.asJSON = true
		if res := c.conclude(); res.Outcome != c.want || !strings.Contains(res.Error, c.says) || (c.says == "") != (res.Error == "") {
			t.Errorf("%s: %s %q", name, res.Outcome, res.Error)
		}
	}

	for said, want := range map[string]Result{
		"All done.\n":                       {Outcome: domain.OutcomeSuccess, Answer: "All done."},
		"":                                  {Outcome: domain.OutcomeError},
		"Looked.\n\nROUSE-OUTCOME: nothing": {Outcome: domain.OutcomeNothing, Answer: "Looked."},
		"I see two.\n**rouse-question: Which one?**\n": {Outcome: domain.OutcomeSuccess, Answer: "I see two.", Question: "Which one?"},
		"rouse-question: x\nand more":                  {Outcome: domain.OutcomeSuccess, Answer: "rouse-question: x\nand more"},
	} {
		res := ending{stdout: said, argv0: "x"}.conclude()
		if res.Outcome != want.Outcome || res.Answer != want.Answer || res.Question != want.Question {
			t.Errorf("%q: %+v", said, res)
		}
	}
}

// TestLocate checks that a program is found by its name in a folder of PATH, with the package to
// which it belongs.
func TestLocate(t *testing.T) {
	dir := t.TempDir()
	pkg := filepath.Join(dir, "lib", "node_modules", "@some", "agent")
	script := filepath.Join(pkg, "bin", "cli.js")
	if err := errors.Join(os.MkdirAll(filepath.Dir(script), 0o755), os.MkdirAll(filepath.Join(dir, "bin"), 0o755), os.WriteFile(script, []byte("#!/usr/bin/env node\n"), 0o755),
		os.Symlink(script, filepath.Join(dir, "bin", "agent")), os.WriteFile(filepath.Join(dir, "bin", "plain"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(dir, "bin"))

	got, err := Locate("agent")
	if err != nil || got.Path != resolved(t, script) || !reflect.DeepEqual(got.Read, []string{resolved(t, pkg)}) || got.Dir != filepath.Join(dir, "bin") {
		t.Errorf("%+v %v", got, err)
	}
	for name, says := range map[string]string{"nothing": "on the daemon's PATH", "plain": "PATH", filepath.Join(dir, "none"): "there is no program /", "./agent": "no program"} {
		if _, err := Locate(name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func resolved(t *testing.T, path string) string {
	t.Helper()
	out, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// FuzzReader checks that no output makes the reader fail, show a control character, count below
// zero, or report a success without a result.
func FuzzReader(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json*")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, file := range files {
		output, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(output, 16)
	}
	f.Fuzz(func(t *testing.T, output []byte, size int) {
		r := read(output, max(1, size%5000), &heard{})
		res := ending{reading: r, asJSON: true, argv0: "x"}.conclude()
		if res.Outcome == domain.OutcomeSuccess && res.Answer == "" && res.Question == "" && r.Outcome != "success" {
			t.Errorf("a success that says nothing: %q", output)
		}
		if r.CostMicroUSD < 0 || r.Usage.Input < 0 || r.Usage.Output < 0 || r.Turns < 0 || r.Calls < 0 {
			t.Errorf("%+v", r)
		}
		for _, s := range []string{res.Answer, res.Error, res.Question, res.Model, res.Session} {
			if !utf8.ValidString(s) || strings.ContainsAny(s, "\x1b\x00\x07") {
				t.Errorf("%q", s)
			}
		}
	})
}
