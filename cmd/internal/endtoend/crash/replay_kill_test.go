package crash

import (
	"path/filepath"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestReplayAfterAKill kills a recorded run while its model answers. The run resumes after a
// restart, and both attempts can be replayed without differences.
func TestReplayAfterAKill(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t,
		modeltest.Turn{Text: "I write it.", Usage: model.Usage{Input: 100, Output: 20}, Calls: []model.Call{endtoend.Call("1", "file_write", `{"path":"a.txt","content":"a"}`)}},
		modeltest.Turn{Hang: true},
		modeltest.Turn{Usage: model.Usage{Input: 200, Output: 30}, Calls: []model.Call{endtoend.Call("2", "file_read", `{"path":"a.txt"}`)}},
		modeltest.Turn{Usage: model.Usage{Input: 300, Output: 40}, Calls: []model.Call{endtoend.Call("3", "complete", `{"summary":"Wrote a file and read it, as it was asked."}`)}})

	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
models: [{name: m, provider: openai, model: scripted, base_url: "` + s.URL + `/v1", api_key: none, price: {input: 1, output: 10}}]
agents: [{name: clerk, workdir: ./work}]
jobs: [{name: j, agent: clerk, prompt: "Write a file, attempt {{ .Attempt }}.", record: true, notify: {on: []}}]
`}), "rouse.yaml")

	p := endtoend.Serve(t, config)
	var r api.Run
	endtoend.RunJSON(t, &r, "run", "j", "--json", "--config", config)
	cmdtest.Until(t, "the model is silent", func() bool { return len(s.Requests()) == 2 })
	unfinished := endtoend.Rouse(t, "replay", r.ID, "--config", config)
	if err := unfinished.Run(); err == nil || unfinished.Err.String() != "rouse: run 1 has not finished (running); wait for its end, or cancel it\n" {
		t.Errorf("an unfinished run: %v %s", err, unfinished.Err.String())
	}

	p.Kill(t)
	p = endtoend.Serve(t, config)
	cmdtest.Until(t, "the end", func() bool {
		endtoend.RunJSON(t, &r, "show", r.ID, "--json", "--config", config)
		return r.State == "finished"
	})
	if r.Outcome != "success" || r.Attempt != 2 {
		t.Fatalf("run: %+v", r)
	}
	if played := endtoend.Replay(t, r.ID, "--config", config); !played.Same || played.Now != played.Recorded || played.Now.Steps != 4 {
		t.Errorf("with the daemon: %s", played.Text())
	}

	p.Stop(t)
	if played := endtoend.Replay(t, r.ID, "--config", config); !played.Same {
		t.Errorf("without it: %s", played.Text())
	}
}

// TestReplayAfterAKillInAReduction kills a run during a reduction (OSA-24). The run repeats the
// reduction after a restart and can be replayed.
func TestReplayAfterAKillInAReduction(t *testing.T) {
	t.Parallel()
	usage := model.Usage{Input: 100, Output: 20}
	s := modeltest.New(t,
		modeltest.Turn{Usage: usage, Calls: []model.Call{endtoend.Call("1", "reduce", `{"task":"Sum it up."}`)}},
		modeltest.Turn{Hang: true},
		modeltest.Turn{Usage: usage, Text: "Nothing is there."},
		modeltest.Turn{Usage: usage, Calls: []model.Call{endtoend.Call("2", "complete", `{"summary":"There was nothing in the folder to sum up."}`)}})

	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
models: [{name: m, provider: openai, model: scripted, base_url: "` + s.URL + `/v1", api_key: none, price: {input: 1, output: 10}}]
agents: [{name: clerk, workdir: ./work}]
jobs: [{name: j, agent: clerk, prompt: Look into it., record: true, notify: {on: []}}]
`}), "rouse.yaml")

	p := endtoend.Serve(t, config)
	var r api.Run
	endtoend.RunJSON(t, &r, "run", "j", "--json", "--config", config)
	cmdtest.Until(t, "the reduction is silent", func() bool { return len(s.Requests()) == 2 })
	p.Kill(t)
	p = endtoend.Serve(t, config)
	cmdtest.Until(t, "the end", func() bool {
		endtoend.RunJSON(t, &r, "show", r.ID, "--json", "--config", config)
		return r.State == "finished"
	})
	if r.Outcome != "success" || r.Attempt != 2 || len(s.Requests()) != 4 {
		t.Errorf("after %d requests: %+v", len(s.Requests()), r)
	}

	p.Stop(t)
	if played := endtoend.Replay(t, r.ID, "--config", config); !played.Same {
		t.Errorf("played again: %s", played.Text())
	}
}
