package daemon

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/plan"
	"rouse/internal/ledger/runs"
)

const keyed = `version: 1
home: ./home
agents: [{name: ann, workdir: ./work}]
jobs:
  - {name: one, agent: ann, webhook: {path: /hooks/one, secret: the-secret-of-one, scheme: gitlab}, prompt: "{{ .Body }}"}
  - {name: two, agent: ann, webhook: {path: /hooks/two, secret: the-secret-of-two, scheme: gitlab}, prompt: "{{ .Body }}"}
  - {name: drops, agent: ann, watch: {path: ./in}, prompt: x}
`

// asked returns the response to a request with an Idempotency-Key.
func asked(t *testing.T, r *http.Request) (int, string, string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return 0, "", ""
	}
	defer resp.Body.Close()
	var out struct{ Run, ID, Error string }
	raw, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		t.Errorf("%s: %v", raw, err)
	}
	return resp.StatusCode, out.Run + out.ID, out.Error
}

// A repeated or concurrent request with the same key gets the same run. A key belongs to one job,
// so it cannot block the deliveries of another job. A different request with the same key is
// refused. A request with an invalid signature does not reserve its key.
func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	d := openHere(t, keyed)
	listenAt(t, d, func(s *plan.Setup) { s.Config.Dashboard.Listen = "127.0.0.1:0" })
	hook := func(job, secret, key, body string) (int, string, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.Door.URL("/hooks/"+job), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Gitlab-Token", secret)
		r.Header.Set("Idempotency-Key", key)
		return asked(t, r)
	}

	if status, _, _ := hook("one", "guessed", "k", "{}"); status != http.StatusUnauthorized {
		t.Errorf("unsigned: %d", status)
	}
	for i, c := range []struct {
		job, body string
		status    int
		run       string
	}{
		{"one", `{"n":1}`, http.StatusAccepted, "1"}, {"one", `{"n":1}`, http.StatusOK, "1"},
		{"one", `{"n":2}`, http.StatusUnprocessableEntity, ""}, {"two", `{"n":1}`, http.StatusAccepted, "2"},
	} {
		if status, run, why := hook(c.job, "the-secret-of-"+c.job, "k", c.body); status != c.status || run != c.run || (run == "") != strings.Contains(why, "Idempotency-Key") {
			t.Errorf("delivery %d: %d, run %q, %s", i, status, run, why)
		}
	}

	fire := func(f api.RunRequest) (int64, error) { return d.Fire(t.Context(), f) }
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 25 {
				if id, err := fire(api.RunRequest{Job: "one", Input: map[string]string{"a": "1", "b": "2"}, Key: "k"}); err != nil || id != 3 {
					t.Errorf("run %d (%v)", id, err)
				}
			}
		})
	}
	all.Wait()
	for what, c := range map[string]struct {
		f    api.RunRequest
		says string
	}{
		"another input": {api.RunRequest{Job: "one", Key: "k"}, "something else was asked for before"},
		"a file":        {api.RunRequest{Job: "drops", File: "in/a", Key: "k"}, "takes no Idempotency-Key"},
	} {
		if id, err := fire(c.f); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: run %d (%v)", what, id, err)
		}
	}
	for _, f := range []api.RunRequest{{Job: "two", Key: "k"}, {Agent: "ann", Prompt: "x", Key: "k"}} {
		first, err := fire(f)
		again, err2 := fire(f)
		if err != nil || err2 != nil || first != again || first <= 3 {
			t.Errorf("another scope: run %d, %d (%v, %v)", first, again, err, err2)
		}
	}
	if runs, err := d.ledger.Runs.List(t.Context(), runs.Filter{}); err != nil || len(runs) != 5 {
		t.Errorf("%d runs (%v)", len(runs), err)
	}
}

// The API passes the header to the run and refuses an empty one.
func TestIdempotencyKeyOfTheAPI(t *testing.T) {
	t.Parallel()
	f := newAPIFixture(t)
	post := func(path, body string, keys ...string) (int, string) {
		resp := f.send(http.MethodPost, path, "application/json", strings.NewReader(body), func(r *http.Request) { r.Header["Idempotency-Key"] = keys })
		defer resp.Body.Close()
		var out struct {
			ID  string
			Run api.Run
		}
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, out.ID + out.Run.ID
	}

	for path, body := range map[string]string{"/v1/runs": `{"job":"fails"}`, "/v1/agents/ann/run": `{"prompt":"Do it."}`} {
		status, run := post(path, body, "k")
		if again, same := post(path, body, "k"); status != http.StatusOK || again != http.StatusOK || run == "" || run != same {
			t.Errorf("%s: %d run %q, %d run %q", path, status, run, again, same)
		}
		if _, other := post(path, body); other == run {
			t.Errorf("%s: without a key it is run %s again", path, other)
		}
		for _, keys := range [][]string{{""}, {"a", "b"}, {strings.Repeat("x", 201)}, {"a\tb"}} {
			if status, _ := post(path, body, keys...); status != http.StatusBadRequest {
				t.Errorf("%s: %q gives %d", path, keys, status)
			}
		}
	}
}
