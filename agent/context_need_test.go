package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"rouse/agent"
	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/openai"
	"rouse/agent/plan"
	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/view"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// pager is a model that reads a file to its end, page by page, as the results instruct it.
type pager struct {
	page    int // lines per request
	largest int // estimated tokens of its largest request
	seen    map[string]bool
}

var (
	numbered = regexp.MustCompile(`\b(line \d+) of the log`)
	goOn     = regexp.MustCompile(`call file_read again with start_line (\d+) to go on`)
	lastLine = regexp.MustCompile(`(\d+)\|line`)
)

// Stream implements model.Provider.
func (p *pager) Stream(_ context.Context, r model.Request) iter.Seq2[model.Event, error] {
	size := len(r.System)
	for _, t := range r.Tools {
		size += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	for _, m := range r.Messages {
		size += len(m.Text) + len(m.Raw)
		for _, c := range m.Calls {
			size += len(c.Name) + len(c.Args)
		}
	}

	p.largest = max(p.largest, size/4)
	latest := r.Messages[len(r.Messages)-1].Text
	for _, l := range numbered.FindAllStringSubmatch(latest, -1) {
		p.seen[l[1]] = true
	}

	next := "1"
	if told := goOn.FindStringSubmatch(latest); told != nil {
		next = told[1]
	} else if lines := lastLine.FindAllStringSubmatch(latest, -1); lines != nil {
		var last int
		_, _ = fmt.Sscan(lines[len(lines)-1][1], &last)
		next = fmt.Sprint(last + 1)
	}

	return func(yield func(model.Event, error) bool) {
		if p.seen["line 400"] || next == "401" {
			yield(model.Event{Text: "It is read."}, nil)
			return
		}

		var first int
		_, _ = fmt.Sscan(next, &first)
		args, _ := json.Marshal(map[string]any{"path": "huge.txt", "start_line": first, "end_line": min(first+p.page-1, 400)})
		yield(model.Event{Call: &model.Call{ID: "c" + next, Name: "file_read", Args: args}}, nil)
	}
}

// TestSmallContexts checks OSA-21 and OSA-22: an agent with all its tools works in a small context.
// It is given fewer tools with short descriptions. A page that does not fit is cut, with the way to
// continue, so the whole file can be read.
func TestSmallContexts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ window, page int }{{3072, 30}, {4096, 30}, {4096, 400}, {6000, 100}, {8192, 100}, {12_000, 400}} {
		t.Run(fmt.Sprint(c.window, " ", c.page), func(t *testing.T) {
			t.Parallel()
			p := &pager{page: c.page, seen: map[string]bool{}}
			b := furnish(t, modeltest.New(t), p)
			b.selfScheduling()
			var file strings.Builder
			for i := range 400 {
				fmt.Fprintf(&file, "line %d of the log says no more than this\n", i+1)
			}
			b.put("work/huge.txt", file.String())

			a := b.plan.Agents["clerk"]
			m := *a.Model
			m.Window = c.window
			a.Model, a.Bounds.Steps = &m, 100
			b.plan.Agents["clerk"] = a
			res := b.execute(b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Read huge.txt."}}))
			if res.Outcome != domain.OutcomeSuccess || len(p.seen) != 400 || p.largest > c.window*85/100 {
				t.Errorf("%d of 400 lines were read in requests of up to %d tokens: %+v", len(p.seen), p.largest, res)
			}
		})
	}
}

// TestSmallPrompts checks OSA-63 in a small context: descriptions of tables, views and the folder
// are shortened, to leave room for the messages of the run.
func TestSmallPrompts(t *testing.T) {
	t.Parallel()
	for _, window := range []int{4096, 12_000} {
		p := &pager{page: 30, seen: map[string]bool{}}
		b := furnish(t, modeltest.New(t), p)
		b.put("work/huge.txt", "line 1 of the log\nline 400 of the log\n")
		b.put("work/go.mod", "module x\n"+strings.Repeat("// more\n", 1000))
		b.put("work/AGENTS.md", strings.Repeat("Be careful with all of it.\n", 1000))
		db, release, err := b.pool.Get(t.Context(), "clerk")
		if err != nil {
			t.Fatal(err)
		}
		var tables strings.Builder
		for i := range 30 {
			b.put(fmt.Sprintf("work/a/rather/long/name/of/a/file/%d.txt", i), "x")
			fmt.Fprintf(&tables, "create table t%d (id integer primary key, a_column_of_some_length text, another_column_of_some_length text, and_one_more text, and_the_last_one text);", i)
		}
		if _, err := db.Migrate(t.Context(), changelog.By{}, agentdb.MigrateSpec{Up: tables.String(), Down: "select 1", Description: "many"}); err != nil {
			t.Fatal(err)
		}

		rows := "with recursive n(i) as (select 1 union all select i + 1 from n where i < 400) select 'a row of some length, number ' || i what from n"
		if _, err := db.Views.Save(t.Context(), changelog.By{}, view.View{Name: "v", SQL: rows, RenderHint: "table", Refresh: "manual"}); err != nil {
			t.Fatal(err)
		}
		release()

		a := b.plan.Agents["clerk"]
		m := *a.Model
		m.Window = window
		a.Model = &m
		b.plan.Agents["clerk"] = a
		b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Prompt: "Read huge.txt.", ContextViews: []string{"v"}}
		if res := b.execute(b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})); res.Outcome != domain.OutcomeSuccess || len(p.seen) != 2 || p.largest > window*85/100 {
			t.Errorf("%d: requests of up to %d tokens: %+v", window, p.largest, res)
		}
	}
}

// TestContextNeeds checks that the context size that ContextNeeds reports is sufficient. With the
// smallest window a run works. With a window without any room the model is not called.
func TestContextNeeds(t *testing.T) {
	t.Parallel()
	need := func(window int) (agent.ContextNeed, ledger.Result) {
		p := &pager{page: 30, seen: map[string]bool{}}
		b := furnish(t, modeltest.New(t), p)
		b.put("work/huge.txt", "line 1 of the log\nline 400 of the log\n")
		a := b.plan.Agents["clerk"]
		m := *a.Model
		m.Window = window
		a.Model = &m
		b.plan.Agents["clerk"] = a
		b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Prompt: strings.Repeat("Read huge.txt with care. ", 100)}
		needs, err := agent.ContextNeeds(b.plan)
		if err != nil {
			t.Fatal(err)
		}

		for _, n := range needs {
			if n.Job == "j" {
				return n, b.execute(b.enqueue(ledger.Request{Job: "j", Agent: "clerk"}))
			}
		}
		return agent.ContextNeed{}, ledger.Result{}
	}

	n, res := need(2048)
	if n.Starts() || n.Fits() || n.Prompt < 625 || n.ToolCount == 0 || res.Exit != domain.ExitOverBudget {
		t.Errorf("2048: %+v, %+v", n, res)
	}

	least, res := need(n.Least)
	if !least.Fits() || least.Least != n.Least || res.Outcome != domain.OutcomeSuccess {
		t.Errorf("%d: %+v, %+v", n.Least, least, res)
	}
	if below, _ := need(n.Least - 512); below.Fits() {
		t.Errorf("it would fit into less: %+v", below)
	}
}

// TestServerSaysItsContext checks OSA-21: a run uses the context size with which its server was
// started, regardless of the configuration. The server is asked once. If it does not report a size,
// its refusals determine the size for this run and later runs.
func TestServerSaysItsContext(t *testing.T) {
	t.Parallel()
	const size = 6000 // in tokens
	for name, c := range map[string]struct {
		props   string
		window  int
		refused int // requests of two runs
	}{
		"it says":                 {`{"default_generation_settings":{"n_ctx":6000}}`, 0, 0},
		"less than is configured": {`{"default_generation_settings":{"n_ctx":6000}}`, 64_000, 0},
		"it does not say":         {`{}`, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scripted := modeltest.New(t, modeltest.Turn{Text: "done"})
			var listed, refused atomic.Int32
			mux := http.NewServeMux()
			mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
				listed.Add(1)
				fmt.Fprint(w, `{"data":[{"id":"x.gguf","owned_by":"llamacpp"}]}`)
			})
			mux.HandleFunc("GET /props", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.props) })
			mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return
				}
				if n := len(body) / 4; n > size {
					refused.Add(1)
					w.WriteHeader(http.StatusBadRequest)
					fmt.Fprintf(w, `{"error":{"code":400,"message":"request (%d tokens) exceeds the available context size (%d tokens), try increasing it","type":"exceed_context_size_error"}}`, n, size)
					return
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				scripted.ServeHTTP(w, r)
			})
			server := httptest.NewServer(mux)
			t.Cleanup(server.Close)
			p, err := openai.New(openai.Options{BaseURL: server.URL + "/v1", Model: "any"})
			if err != nil {
				t.Fatal(err)
			}

			b := furnish(t, modeltest.New(t), p)
			a := b.plan.Agents["clerk"]
			m := *a.Model
			m.Window, m.AsksWindow = c.window, true
			a.Model = &m
			b.plan.Agents["clerk"] = a
			for range 2 {
				if res := b.execute(b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Say that you are done."}})); res.Outcome != domain.OutcomeSuccess {
					t.Errorf("%+v", res)
				}
			}
			if listed.Load() != 1 || int(refused.Load()) > c.refused {
				t.Errorf("it was asked %d times for its models, and refused %d requests", listed.Load(), refused.Load())
			}
		})
	}
}
