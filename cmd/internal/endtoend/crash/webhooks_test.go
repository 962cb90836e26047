package crash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/cmd/internal/webhook"
)

// TestWebhookKills kills the daemon repeatedly while a client sends deliveries. Each accepted
// delivery must have exactly one run, even if it was sent several times.
func TestWebhookKills(t *testing.T) {
	t.Parallel()
	endtoend.Unraced(t)
	config := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
limits: {runs: 2}
agents: [{name: clerk, workdir: ./work, database: {enabled: false}}]
jobs:
  - name: hook
    agent: clerk
    webhook: {path: /hooks/hook, secret: the-secret-of-the-bank, scheme: github}
    playbook: [{call: complete, with: {summary: "the delivery {{ .Delivery.ID }} was taken, and says {{ .Payload.n }}"}}]
`}) + "/rouse.yaml"

	// The address changes with each start.
	var address atomic.Pointer[string]
	start := func() *endtoend.Program {
		p := endtoend.Serve(t, config)
		var hooks []api.Webhook
		endtoend.RunJSON(t, &hooks, "webhooks", "--json", "--config", config)
		if len(hooks) != 1 || hooks[0].URL == "" {
			t.Fatalf("%+v", hooks)
		}
		address.Store(&hooks[0].URL)
		return p
	}
	p := start()

	const deliveries = 120
	accepted := make([]string, deliveries)
	var done atomic.Int64
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := w; i < deliveries; i += 4 {
				accepted[i] = deliver(t, &address, i)
				done.Add(1)
			}
		})
	}
	for kill := int64(1); kill <= 3; kill++ {
		cmdtest.Until(t, "more deliveries", func() bool { return done.Load() >= kill*deliveries/4 })
		p.Kill(t)
		p = start()
	}
	all.Wait()

	var runs []api.Run
	cmdtest.Until(t, "the end of all runs", func() bool {
		endtoend.RunJSON(t, &runs, "runs", "--json", "-n", "1000", "--config", config)
		for _, r := range runs {
			if r.Outcome == "" {
				return false
			}
		}
		return true
	})
	p.Stop(t)

	by := map[string]string{}
	for _, r := range runs {
		by[r.ID] = r.Summary + r.Error
	}
	for i, run := range accepted {
		if want := fmt.Sprintf("the delivery d-%d was taken, and says %d", i, i); by[run] != want {
			t.Errorf("delivery %d: run %q says %q", i, run, by[run])
		}
	}
	if len(runs) != deliveries {
		t.Errorf("%d runs of %d deliveries", len(runs), deliveries)
	}
}

// deliver sends a delivery until it is accepted, and returns its run.
func deliver(t *testing.T, address *atomic.Pointer[string], i int) string {
	body := fmt.Appendf(nil, `{"n":%d}`, i)
	h, err := webhook.GitHub.Sign("the-secret-of-the-bank", webhook.Delivery{ID: fmt.Sprint("d-", i)}, body, time.Now())
	if err != nil {
		t.Error(err)
		return ""
	}

	for deadline := time.Now().Add(cmdtest.Patience); time.Now().Before(deadline); {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, *address.Load(), bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return ""
		}
		r.Header = h.Clone()
		resp, err := http.DefaultClient.Do(r)
		if err != nil { // the daemon was killed
			continue
		}

		var out struct{ Run string }
		err = json.NewDecoder(resp.Body).Decode(&out)
		resp.Body.Close()
		if err == nil && (resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusOK) {
			return out.Run
		}
	}
	t.Errorf("delivery %d was never accepted", i)
	return ""
}
