package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/contract"
	"rouse/internal/domain"
)

// fileTools is a set of files with tools of each class.
type fileTools struct {
	*bench
	files map[string]string
	calls []string // calls that reached a tool
}

type pathArgs struct {
	Path string `json:"path,omitempty"`
	Text string `json:"text,omitempty"`
	Rows []int  `json:"rows,omitempty"`
	Row  *int   `json:"row,omitempty"`
}

func newFileTools(t *testing.T, turns ...func(model.Request) []any) *fileTools {
	t.Helper()
	h := &fileTools{bench: setup(t, turns...), files: map[string]string{"/a": "one", "/dir/b": "two"}}
	var tools []tool.Tool
	define := func(name string, effect domain.Effect, class tool.Class, run func(a pathArgs) tool.Envelope) {
		s := tool.Spec{Name: name, Description: name, Effect: effect, Class: class}
		if class == tool.ClassRead || class == tool.ClassEdit {
			s.Path = "path"
			s.StatKey = func(path string) string { h.mu.Lock(); defer h.mu.Unlock(); return h.files[path] }
		}

		d, err := tool.Define(s, func(_ context.Context, _ tool.Invocation, a pathArgs) (tool.Envelope, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.calls = append(h.calls, strings.TrimSpace(name+" "+a.Path+" "+a.Text))
			return run(a), nil
		})
		if err != nil {
			t.Fatal(err)
		}

		tools = append(tools, d)
	}

	define("look", domain.EffectRead, tool.ClassRead, func(a pathArgs) tool.Envelope {
		if strings.HasSuffix(a.Path, "/") {
			return tool.Success(map[string]any{"kind": "listing", "entries": []string{"b"}[:min(1, len(a.Path)-1)], "truncated": a.Path == "/cut/"})
		}

		if strings.HasSuffix(a.Path, ".pdf") {
			return tool.Success(map[string]any{"kind": "pdf", "pages": []string{"one"}})
		}
		text, ok := h.files[a.Path]
		if !ok {
			return tool.Failure(tool.KindNotFound, "there is no %s", a.Path)
		}
		if text == "locked" {
			return tool.Failure(tool.KindUnavailable, "another program has it")
		}
		return tool.Success(map[string]any{"kind": "file", "text": text})
	})

	define("find", domain.EffectRead, tool.ClassSearch, func(pathArgs) tool.Envelope { return tool.Success("found") })
	define("edit", domain.EffectWrite, tool.ClassEdit, func(a pathArgs) tool.Envelope {
		if a.Text == "" {
			return tool.Failure(tool.KindInvalidArgs, "nothing to write")
		}
		h.files[a.Path] = a.Text
		return tool.Success("written")
	})

	define("load", domain.EffectRead, tool.ClassLoad, func(a pathArgs) tool.Envelope { return tool.Failure(tool.KindNotFound, "there is no %s", a.Path) })
	define("shell", domain.EffectExternal, tool.ClassExec, func(a pathArgs) tool.Envelope {
		if a.Text == "fails" {
			return tool.Failure(tool.KindExecutionError, "exit status 1")
		}
		return tool.Success("ran")
	})
	define("rows", domain.EffectDatabase, tool.ClassData, func(a pathArgs) tool.Envelope {
		if a.Text == "fails" {
			return tool.Failure(tool.KindExecutionError, "the table is full")
		}
		return tool.Success("moved")
	})
	define("query", domain.EffectRead, tool.ClassOther, func(pathArgs) tool.Envelope { return tool.Failure(tool.KindInvalidArgs, "no such table.") })
	define("plan", domain.EffectRead, tool.ClassPlan, func(a pathArgs) tool.Envelope { return tool.Success(map[string]int{"open": len(a.Rows)}) })
	registry, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}

	h.o.Registry, h.o.Bounds.Steps = registry, 40
	return h
}

// steps returns the turns of a model: one or several calls each, and a final text.
func steps(turns ...[]model.Call) []func(model.Request) []any {
	var out []func(model.Request) []any
	for _, calls := range turns {
		var parts []any
		for _, c := range calls {
			parts = append(parts, c)
		}
		out = append(out, say(parts...))
	}

	return append(out, say("that is all there is to say"))
}

func one(name, args string) []model.Call { return []model.Call{call(name, args)} }

func (h *fileTools) notices() []string {
	var out []string
	for _, s := range h.log.steps {
		for _, n := range s.Notices {
			if !strings.Contains(n, "steps remaining") {
				out = append(out, n)
			}
		}
	}

	return out
}

// TestDedupe: OSA-12, a file is not read again while its result is valid. The repeated call returns
// the same envelope, whatever the order of the arguments.
func TestDedupe(t *testing.T) {
	row := contract.Of(t, "OSA-12")
	look := one("look", `{"path":"/a"}`)
	for name, c := range map[string]struct {
		turns [][]model.Call
		want  string
	}{
		"twice":                 {[][]model.Call{look, look}, "look /a"},
		"in another order":      {[][]model.Call{one("look", `{"path":"/a","text":"x"}`), one("look", ` { "text" : "x", "path" : "/a" }`)}, "look /a x"},
		"with another argument": {[][]model.Call{look, one("look", `{"path":"/a","text":"x"}`)}, "look /a, look /a x"},
		"after its edit":        {[][]model.Call{look, one("edit", `{"path":"/a","text":"new"}`), look}, "look /a, edit /a new, look /a"},
		"an edit of no trace":   {[][]model.Call{look, one("edit", `{"path":"/a","text":"one"}`), look}, "look /a, edit /a one, look /a"},
		"after another's edit":  {[][]model.Call{look, one("edit", `{"path":"/c","text":"new"}`), look}, "look /a, edit /c new"},
		"a folder, edit inside": {[][]model.Call{one("look", `{"path":"/dir/"}`), one("edit", `{"path":"/dir/b","text":"new"}`), one("look", `{"path":"/dir/"}`)}, "look /dir/, edit /dir/b new, look /dir/"},
		"a search, any edit":    {[][]model.Call{one("find", `{}`), one("find", `{}`), one("edit", `{"path":"/c","text":"new"}`), one("find", `{}`)}, "find, edit /c new, find"},
		"after a command":       {[][]model.Call{look, one("shell", `{}`), look}, "look /a, shell, look /a"},
		"a command that fails":  {[][]model.Call{look, one("shell", `{"text":"fails"}`), look}, "look /a, shell  fails, look /a"},
		"rows that fail":        {[][]model.Call{look, one("rows", `{"text":"fails"}`), look}, "look /a, rows  fails"},
		"a folder, edit beside": {[][]model.Call{one("look", `{"path":"/dir/"}`), one("edit", `{"path":"/dirt","text":"new"}`), one("look", `{"path":"/dir/"}`)}, "look /dir/, edit /dirt new"},
		"a failed edit":         {[][]model.Call{look, one("edit", `{"path":"/a"}`), look}, "look /a, edit /a"},
		"rows are not files":    {[][]model.Call{one("query", `{}`), one("query", `{}`)}, "query, query"},
		"in one answer":         {[][]model.Call{append(append(slices.Clone(look), look...), one("edit", `{"path":"/c","text":"x"}`)...)}, "edit /c x, look /a"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFileTools(t, steps(c.turns...)...)
			h.run(t, t.Context())
			if name == "in one answer" {
				slices.Sort(h.calls)
			}

			if got := strings.Join(h.calls, ", "); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if name == "twice" && string(h.log.calls[1].State) != row.Quote("deduped") {
				t.Errorf("the second call is %s", h.log.calls[1].State)
			}
		})
	}
}

// TestDedupeSeesOthers checks that a file changed by another program is read again (OSA-12).
func TestDedupeSeesOthers(t *testing.T) {
	var h *fileTools
	turns := steps(one("look", `{"path":"/a"}`), one("look", `{"path":"/a"}`), one("look", `{"path":"/a"}`))
	second := turns[2]
	turns[2] = func(r model.Request) []any {
		h.mu.Lock()
		h.files["/a"] = "changed by its owner"
		h.mu.Unlock()
		return second(r)
	}

	h = newFileTools(t, turns...)
	h.run(t, t.Context())
	if len(h.calls) != 2 {
		t.Errorf("calls: %v", h.calls)
	}
	if last := h.log.calls[len(h.log.calls)-1]; last.State != "done" || !strings.Contains(string(last.Envelope), "its owner") {
		t.Errorf("the last result is %s, %s", last.State, last.Envelope)
	}
	if c := h.log.calls[1]; c.State != "deduped" || string(c.Envelope) != string(h.log.calls[0].Envelope) {
		t.Errorf("the repeated call is %s: %s", c.State, c.Envelope)
	}
}

// TestDedupeNotice checks that a notice about a known result depends on the policy (OSA-12).
func TestDedupeNotice(t *testing.T) {
	look := one("look", `{"path":"/a"}`)
	for name, c := range map[string]struct {
		policy loop.Policy
		told   []string
	}{
		"headless": {loop.Headless(), nil},
		"chat":     {loop.Chat(), []string{"[System Notice] You have made the same look call before, and nothing has changed since: its result was given again."}},
	} {
		h := newFileTools(t, steps(look, look)...)
		h.o.Policy = c.policy
		h.run(t, t.Context())
		if told := h.notices(); !slices.Equal(told, c.told) {
			t.Errorf("%s: told %q", name, told)
		}
	}
}

// TestDuplicates: OSA-08, a duplicate call in one answer waits for the first call. It reuses a
// success, and is made after a failure.
func TestDuplicates(t *testing.T) {
	row := contract.Of(t, "OSA-08")
	h := newFileTools(t, steps([]model.Call{call("look", `{"path":"/a"}`), call("find", `{}`), call("look", `{"path":"/a"}`), call("find", `{}`)})...)
	h.run(t, t.Context())
	slices.Sort(h.calls)
	if got := strings.Join(h.calls, ", "); got != "find, look /a" {
		t.Errorf("calls: %s", got)
	}
	if state := h.log.calls[2].State; string(state) != row.Quote("deduped") {
		t.Errorf("the repeated read is %s", state)
	}

	h = newFileTools(t, steps([]model.Call{call("look", `{"path":"/gone"}`), call("look", `{"path":"/gone"}`)})...)
	h.run(t, t.Context())
	if len(h.calls) != 2 || string(h.log.calls[1].State) != row.Quote("failed") {
		t.Errorf("calls %v, the second is %s", h.calls, h.log.calls[1].State)
	}
}

// TestRepeatedErrors: OSA-13, an error that would repeat is returned from memory with its count
// until something changes. Shell and database calls are always made.
func TestRepeatedErrors(t *testing.T) {
	row := contract.Of(t, "OSA-13")
	gone := one("look", `{"path":"/gone"}`)
	h := newFileTools(t, steps(gone, gone, gone, one("edit", `{"path":"/gone","text":"here"}`), gone)...)
	h.run(t, t.Context())
	if got := strings.Join(h.calls, ", "); got != "look /gone, edit /gone here, look /gone" {
		t.Errorf("calls: %s", got)
	}

	var told []string
	for _, n := range h.notices() {
		if strings.Contains(n, "failed") {
			told = append(told, n)
		}
	}
	if len(told) != 2 || !strings.Contains(told[0], row.Quote("failed 2 times")+": there is no /gone.") || !strings.Contains(told[1], row.Quote("failed 3 times")) {
		t.Errorf("notices: %q", told)
	}

	none := one("load", `{"path":"skill/none"}`)
	h = newFileTools(t, steps(none, none, one("load", `{"path":"skill/other"}`), none)...)
	h.run(t, t.Context())
	if got := strings.Join(h.calls, ", "); got != "load skill/none, load skill/other" {
		t.Errorf("calls that load: %s", got)
	}

	h = newFileTools(t, steps(one("query", `{}`), one("query", `{}`), one("query", `{}`))...)
	h.run(t, t.Context())
	if len(h.calls) != 3 {
		t.Errorf("an error of the database was held: %v", h.calls)
	}

	// A call with a transient error is made each time.
	locked := one("look", `{"path":"/locked"}`)
	h = newFileTools(t, steps(locked, locked, locked)...)
	h.files["/locked"] = "locked"
	h.run(t, t.Context())
	if len(h.calls) != 3 {
		t.Errorf("an error that passes was held: %v", h.calls)
	}
}

// TestRepeatedErrorsEndWithTheirPath: OSA-13, an error is reused only while its path is unchanged.
// Afterwards its count starts at one.
func TestRepeatedErrorsEndWithTheirPath(t *testing.T) {
	gone, empty := one("look", `{"path":"/gone"}`), one("edit", `{"path":"/a"}`)
	var h *fileTools
	owner := func(path, text string, then func(model.Request) []any) func(model.Request) []any {
		return func(r model.Request) []any {
			h.mu.Lock()
			h.files[path] = text
			h.mu.Unlock()
			return then(r)
		}
	}

	turns := steps(gone, gone, gone)
	turns[2] = owner("/gone", "here", turns[2])
	h = newFileTools(t, turns...)
	h.run(t, t.Context())
	if last := h.log.calls[2]; len(h.calls) != 2 || last.State != domain.CallDone || !strings.Contains(string(last.Envelope), "here") {
		t.Errorf("a file that came is still missing: calls %v, the last is %s %s", h.calls, last.State, last.Envelope)
	}

	turns = steps(empty, empty, empty, empty)
	turns[2] = owner("/a", "another", turns[2])
	h = newFileTools(t, turns...)
	h.run(t, t.Context())
	var told []string
	for _, n := range h.notices() {
		if strings.Contains(n, "has failed") {
			told = append(told, n)
		}
	}
	if len(h.calls) != 2 || len(told) != 2 || !strings.Contains(told[0], "failed 2 times") || !strings.Contains(told[1], "failed 2 times") {
		t.Errorf("calls %v, notices %q", h.calls, told)
	}
}

// TestNoticeOrder: OSA-05, the order is budget, state, todo list and notices about the turn.
func TestNoticeOrder(t *testing.T) {
	gone := call("look", `{"path":"/gone"}`)
	h := newFileTools(t, steps(one("plan", `{"rows":[1,2]}`), one("look", `{"path":"/gone"}`), one("edit", `{"path":"/f","text":"1"}`), one("edit", `{"path":"/f","text":"2"}`), []model.Call{call("look", `{"path":"/a"}`), gone})...)
	h.o.Bounds.Steps, h.o.Policy.Advice = 8, false
	h.run(t, t.Context())
	if got := describe(h.log.steps[5].Notices, "steps remaining", "same look call has failed", "todo list has 2 open items"); got != "012" {
		t.Errorf("the notices come as %s: %q", got, h.log.steps[5].Notices)
	}

	h = newFileTools(t, say(call("look", `{"path":"/a"}`)), say(), say("end"))
	h.o.Bounds.Steps = 3
	h.run(t, t.Context())
	if got := describe(h.log.steps[2].Notices, "steps remaining", "Your last answer was empty"); got != "01" {
		t.Errorf("the notices come as %s: %q", got, h.log.steps[2].Notices)
	}
}

// said returns the order of words in the notices. ? stands for any other notice.
func describe(notices []string, words ...string) (order string) {
	for _, n := range notices {
		i := slices.IndexFunc(words, func(w string) bool { return strings.Contains(n, w) })
		if i < 0 {
			order += "?"
			continue
		}
		order += fmt.Sprint(i)
	}
	return order
}

// TestAdvice: OSA-14, advice depends on the kinds of results and the classes of listings (OSA-15).
// Without advice the calls are the same.
func TestAdvice(t *testing.T) {
	row := contract.Of(t, "OSA-14")
	list := func(dir string) []model.Call { return one("look", fmt.Sprintf(`{"path":%q}`, dir)) }
	shell := one("shell", `{}`)
	for name, c := range map[string]struct {
		turns [][]model.Call
		want  string // "" means no advice
	}{
		"one listing":            {[][]model.Call{list("/x/")}, ""},
		"two listings":           {[][]model.Call{list("/x/"), list("/y/")}, row.Quote("Read one of the files")},
		"read in between":        {[][]model.Call{list("/x/"), one("look", `{"path":"/a"}`), list("/y/")}, ""},
		"another format":         {[][]model.Call{list("/x/"), one("look", `{"path":"/a.pdf"}`), list("/y/")}, ""},
		"read again":             {[][]model.Call{one("look", `{"path":"/a"}`), list("/x/"), one("look", `{"path":"/a"}`), list("/y/")}, ""},
		"listed again":           {[][]model.Call{list("/x/"), list("/x/")}, "Read one of the files"},
		"a failed read does not": {[][]model.Call{list("/x/"), one("look", `{"path":"/gone"}`), list("/y/")}, "Read one of the files"},
		"not whole":              {[][]model.Call{list("/x/"), list("/cut/")}, row.Quote("was not whole")},
		"empty":                  {[][]model.Call{list("/x/"), list("/")}, row.Quote("Do not make up")},
		"not found":              {[][]model.Call{one("look", `{"path":"/gone"}`)}, row.Quote("do not guess")},
		"not found, not whole":   {[][]model.Call{list("/cut/"), one("look", `{"path":"/gone"}`)}, "the last listing was not whole"},
		"twice the same":         {[][]model.Call{shell, shell}, ""},
		"three times the same":   {[][]model.Call{shell, shell, shell}, row.Quote("same shell call several times")},
		"and it fails":           {[][]model.Call{one("query", `{}`), one("query", `{}`), one("query", `{}`)}, "same query call 3 times in a row, and it failed again: no such table. Change its arguments"},
		"only planning":          {[][]model.Call{one("plan", `{"rows":[1]}`), one("plan", `{"rows":[1,2]}`), one("plan", `{"rows":[2]}`)}, row.Quote("without acting on it")},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFileTools(t, steps(c.turns...)...)
			h.run(t, t.Context())
			notices := h.notices()
			switch {
			case c.want == "" && len(notices) > 0:
				t.Errorf("notices: %q", notices)
			case c.want != "" && (len(notices) == 0 || !strings.Contains(notices[len(notices)-1], c.want)):
				t.Errorf("notices: %q, want %q", notices, c.want)
			}

			off := newFileTools(t, steps(c.turns...)...)
			off.o.Policy.Advice = false
			off.run(t, t.Context())
			if len(off.notices()) > 0 || !slices.Equal(off.calls, h.calls) {
				t.Errorf("without advice: %v, %q", off.calls, off.notices())
			}
		})
	}
}

// TestRepeatedToTheEnd: OSA-14, a repetition gets advice and does not end the run. When the steps
// are used up, the error names the repetition.
func TestRepeatedToTheEnd(t *testing.T) {
	for _, c := range []struct {
		tool  string
		steps int
		want  string
	}{
		{"query", 4, "the 4 steps of this run were used up; at the end it made the same query call 4 times"},
		{"query", 3, "the 3 steps of this run were used up; at the end it made the same query call 3 times"},
		{"query", 2, "the 2 steps of this run were used up"},
		{"look", 4, "the 4 steps of this run were used up"},
	} {
		h := newFileTools(t, say(call(c.tool, `{"path":"/a"}`)))
		h.o.Bounds.Steps = c.steps
		if res := h.run(t, t.Context()); res.Exit != domain.ExitIterationCap || res.Error != c.want {
			t.Errorf("%s: %s: %q, want %q", c.tool, res.Exit, res.Error, c.want)
		}
	}
}

// TestTodoStale: OSA-05, an unchanged list with open items gets a notice after four steps, and
// again after four more. There is no notice without open items or if the policy does not enable it.
func TestTodoStale(t *testing.T) {
	turns := [][]model.Call{one("plan", `{"rows":[1,2]}`)}
	for i := range 9 {
		turns = append(turns, one("edit", fmt.Sprintf(`{"path":"/f","text":"%d"}`, i)))
	}

	h := newFileTools(t, steps(turns...)...)
	h.run(t, t.Context())
	if n := h.notices(); len(n) != 2 || !strings.Contains(n[0], "2 open items") {
		t.Errorf("notices: %q", n)
	}

	turns[0] = one("plan", `{"rows":[]}`)
	h = newFileTools(t, steps(turns...)...)
	h.run(t, t.Context())
	if n := h.notices(); len(n) != 0 {
		t.Errorf("notices of a finished list: %q", n)
	}

	turns[0] = one("plan", `{"rows":[1,2]}`)
	h = newFileTools(t, steps(turns...)...)
	h.o.Policy.StaleTodoSteps = 0
	h.run(t, t.Context())
	if n := h.notices(); len(n) != 0 {
		t.Errorf("notices without a bound: %q", n)
	}
}

// TestTodoStaleAfterAnInterruption checks that a list from an earlier attempt keeps its number of
// open items.
func TestTodoStaleAfterAnInterruption(t *testing.T) {
	var turns [][]model.Call
	for i := range 5 {
		turns = append(turns, one("edit", fmt.Sprintf(`{"path":"/f","text":"%d"}`, i)))
	}

	h := newFileTools(t, steps(turns...)...)
	h.o.Messages = append(h.o.Messages, model.Message{Role: model.RoleAssistant, Calls: []model.Call{{ID: "1", Name: "plan"}, {ID: "2", Name: "find"}}},
		model.Message{Role: model.RoleTool, CallID: "1", Name: "plan", Text: `{"ok":true,"result":{"open":2}}`},
		model.Message{Role: model.RoleTool, CallID: "2", Name: "find", Text: `{"ok":true,"result":{}}`})
	h.run(t, t.Context())
	if n := h.notices(); len(n) != 1 || !strings.Contains(n[0], "2 open items") {
		t.Errorf("notices: %q", n)
	}
}

// TestDataMovement: OSA-23, a step that only moves rows in bulk is not charged, up to the limit.
func TestDataMovement(t *testing.T) {
	row := contract.Of(t, "OSA-23")
	bulk, single := one("rows", `{"rows":[1,2,3]}`), one("rows", `{"row":1}`)
	for name, c := range map[string]struct {
		turn  []model.Call
		steps int // steps that run within a bound of four
	}{
		"bulk":       {bulk, 4 + 3},
		"failed":     {one("rows", `{"rows":[],"text":"fails"}`), 4},
		"one failed": {append(slices.Clone(bulk), call("rows", `{"rows":[1],"text":"fails"}`)), 4},
		"single":     {single, 4},
		"with other": {append(slices.Clone(bulk), call("find", `{}`)), 4},
	} {
		h := newFileTools(t, say(c.turn[0]))
		if len(c.turn) > 1 {
			h = newFileTools(t, say(c.turn[0], c.turn[1]))
		}

		h.o.Bounds.Steps, h.o.Policy.FreeSteps, h.o.Policy.Advice = 4, 3, false
		h.run(t, t.Context())
		if got := len(h.log.steps) - 1; got != c.steps { // the last is the closing text
			t.Errorf("%s: %d steps, want %d", name, got, c.steps)
		}

		relief := 0
		for _, n := range h.notices() {
			relief += strings.Count(n, "is not counted; "+row.Quote("2 steps more can be free"))
		}
		if (name == "bulk") != (relief == 1) {
			t.Errorf("%s: told %d times: %q", name, relief, h.notices())
		}
	}
}

// TestRelief: OSA-23, at most as many steps that move rows are free as the bound allows. Empty
// answers between them are never charged (OSA-04). The result has the number of times the model was
// asked.
func TestRelief(t *testing.T) {
	empty := say()
	bulk := func(r model.Request) []any {
		return []any{call("rows", fmt.Sprintf(`{"rows":[1,%d]}`, len(r.Messages)))}
	}
	for name, c := range map[string]struct {
		turns []func(model.Request) []any
		bound int
		steps int // including the closing text
		says  string
	}{
		"rows":          {[]func(model.Request) []any{bulk}, 2, 2 + 2 + 1, "the 2 steps of this run were used up, beside 2 that were not charged"},
		"many rows":     {[]func(model.Request) []any{bulk}, 30, 30 + 16 + 1, "the 30 steps of this run were used up, beside 16 that were not charged"},
		"empty answers": {[]func(model.Request) []any{empty, say(call("look", `{}`)), empty, bulk, empty, bulk}, 2, 2 + 2 + 3 + 1, "beside 5"},
		"one":           {[]func(model.Request) []any{bulk}, 1, 1 + 1 + 1, "the 1 steps"},
	} {
		h := newFileTools(t, c.turns...)
		h.o.Bounds.Steps = c.bound
		res, err := loop.Run(t.Context(), h.o)
		if err != nil {
			t.Fatal(err)
		}
		if asked := len(h.model.requests); asked != c.steps || res.Steps != asked || !strings.Contains(res.Error, c.says) {
			t.Errorf("%s: the model was asked %d times, want %d: %+v", name, asked, c.steps, res)
		}
	}
}

// TestPriorCallsAreNotDeduped checks that a result recorded by an earlier attempt is used
// unchanged. The bookkeeping of the new attempt starts empty.
func TestPriorCallsAreNotDeduped(t *testing.T) {
	h := newFileTools(t, steps(one("look", `{"path":"/a"}`), one("look", `{"path":"/a"}`))...)
	h.o.PriorCalls = map[string]loop.PriorCall{"m1.1.1": {Envelope: json.RawMessage(`{"ok":true,"result":{"kind":"file","text":"old"}}`)}}
	h.run(t, t.Context())
	if len(h.calls) != 1 || h.log.calls[0].State != "replayed" || h.log.calls[1].State != "done" {
		t.Errorf("calls %v, states %s %s", h.calls, h.log.calls[0].State, h.log.calls[1].State)
	}
}
