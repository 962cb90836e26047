package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/internal/domain"
)

// TestAnswers checks answers to questions (OSA-26). Only the first of several concurrent answers
// counts. An item of a cancelled run takes no answer. A daemon reads answers that were given while
// no daemon ran. A run ends with an error if its job was removed before the answer. Each step of a
// run, including a question, is an event.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const asking = 4
	var turns []modeltest.Turn
	for range asking {
		turns = append(turns, modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "clarify", Args: []byte(`{"question":"Which account?"}`)}}})
	}

	turns = append(turns, modeltest.Turn{Calls: []model.Call{{ID: "2", Name: "complete", Args: []byte(`{"summary":"Booked on the account that was named."}`)}}})
	s := modeltest.New(t, turns...)
	text := `version: 1
home: ./home
models: [{name: scripted, provider: openai, model: scripted, base_url: "` + s.URL + `/v1", api_key: none}]
agents: [{name: clerk}]
jobs: [{name: books, agent: clerk, prompt: Do the books.}]
`

	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": text}), "rouse.yaml")
	say := func(args string) (out string, ok bool) {
		p := endtoend.Rouse(t, append(strings.Fields(args), "--config", config)...)
		err := p.Run()
		return p.Out.String() + p.Err.String(), err == nil
	}

	p := endtoend.Serve(t, config)
	for range asking {
		endtoend.RunJSON(t, nil, "run", "books", "--json", "--config", config)
	}

	var items []api.Item
	cmdtest.Until(t, "every run asks", func() bool {
		endtoend.RunJSON(t, &items, "inbox", "--json", "--config", config)
		return len(items) == asking
	})
	outcome := func(run string, want domain.Outcome, why string) {
		t.Helper()
		var d api.RunDetail
		cmdtest.Until(t, "the end of run "+run, func() bool {
			endtoend.RunJSON(t, &d, "show", run, "--json", "--config", config)
			return d.State == "finished"
		})
		if d.Outcome != want || !strings.Contains(d.Error, why) {
			t.Errorf("run %s: %+v", run, d.Run)
		}
	}

	heard, refused := make([]bool, 6), make([]string, 6)
	var all sync.WaitGroup
	for i := range heard {
		all.Go(func() { refused[i], heard[i] = say(fmt.Sprintf("answer %s shell%d", items[0].ID, i)) })
	}

	all.Wait()
	n := 0
	for i, ok := range heard {
		if ok {
			n++
		} else if !strings.Contains(refused[i], `is not open any more: it was answered "shell`) {
			t.Errorf("the other shells got %s", refused[i])
		}
	}

	if n != 1 {
		t.Errorf("%d of the shells were heard", n)
	}

	outcome(items[0].Run, "success", "")
	var kinds []string
	events, _ := say("logs " + items[0].Run)
	for line := range strings.Lines(events) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "run.") {
				kinds = append(kinds, word)
			}
		}
	}
	if got := strings.Join(kinds, " "); got != "run.queued run.started run.waiting run.answered run.started run.finished" {
		t.Errorf("events: %s in\n%s", got, events)
	}
	if asJSON, _ := say("logs --json " + items[1].Run); !strings.Contains(asJSON, `"question":"Which account?"`) || strings.Contains(asJSON, `"options"`) || strings.Contains(asJSON, "run.finished") {
		t.Errorf("a run that asks freely offers nothing and is not over: %s", asJSON)
	}

	for run, want := range map[string]string{items[0].Run: "answered: shell", items[1].Run: `rouse answer ` + items[1].ID + ` "…"`} {
		if out, _ := say("show " + run); !strings.Contains(out, "  asked     Which account?\n            "+want) {
			t.Errorf("show: %s", out)
		}
	}

	if out, ok := say("cancel " + items[1].Run); !ok {
		t.Error(out)
	}
	if out, ok := say("answer " + items[1].ID + " late"); ok || !strings.Contains(out, "its run ended otherwise") {
		t.Errorf("an answer to a cancelled run: %s", out)
	}

	p.Stop(t)

	if out, ok := say("answer " + items[2].ID + " GLS"); !ok || !strings.Contains(out, "goes on when a daemon starts") {
		t.Errorf("without a daemon: %s", out)
	}
	if err := os.WriteFile(config, []byte(strings.Replace(text, "name: books", "name: ledger", 1)), 0o644); err != nil {
		t.Fatal(err)
	}

	p = endtoend.Serve(t, config)
	outcome(items[2].Run, "error", `the job "books" is no longer in the configuration`)
	if out, ok := say("answer " + items[3].ID + " GLS"); !ok {
		t.Error(out)
	}

	outcome(items[3].Run, "error", `the job "books" is no longer in the configuration`)
	if out, _ := say("inbox"); !strings.Contains(out, "nothing waits for you") {
		t.Errorf("inbox: %s", out)
	}

	p.Stop(t)
}
