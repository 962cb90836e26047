package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/cmd/internal/webhook"
	"rouse/internal/domain"
)

// TestDeliveryToNoticeToPage checks a webhook from delivery to page. A signed delivery starts one
// run, even if it is repeated. The owner gets an ntfy notice with a link to the page of the run,
// which only a logged-in browser can open. An MCP client asks why the eight o'clock job did not
// run, and gets the recorded reason.
func TestDeliveryToNoticeToPage(t *testing.T) {
	t.Parallel()
	notices := make(chan string, 10)
	ntfy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		notices <- r.URL.Path + "\n" + r.Header.Get("Title") + "\n" + string(body)
		fmt.Fprint(w, `{"id":"x"}`)
	}))
	t.Cleanup(ntfy.Close)

	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
timezone: UTC
agents:
  - {name: clerk, workdir: ./work, database: {enabled: false}}
  - {name: reader, workdir: ./reader, database: {enabled: false}, grants: {read: [./not-mounted]}}
notifications: [{name: phone, kind: url, url: "ntfy://` + strings.TrimPrefix(ntfy.URL, "http://") + `/topic-of-mine?scheme=http"}]
jobs:
  - name: payments
    agent: clerk
    webhook: {path: /hooks/payments, secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}
    when: [{that: 'Payload.type == "payment"'}]
    notify: {on: [success], channels: [phone]}
    playbook: [{call: complete, with: {summary: "took the payment {{ .Payload.n }}, as it was asked for"}}]
  - name: morning
    agent: reader
    schedule: "0 8 * * *"
    notify: {on: [waiting], channels: [phone]}
    playbook: [{call: complete, with: {summary: "looked at everything that there is to see"}}]
`})
	config := filepath.Join(dir, "rouse.yaml")
	p := endtoend.Serve(t, config)
	defer p.Stop(t)
	var st api.Status
	endtoend.RunJSON(t, &st, "status", "--json", "--config", config)
	pages := strings.TrimSuffix(st.Dashboard, "/")

	// The same delivery, sent a thousand times, starts one run.
	body := []byte(`{"type":"payment","n":7}`)
	headers, err := webhook.Standard.Sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", webhook.Delivery{ID: "msg_1"}, body, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	status := map[int]int{}
	for range 1000 {
		code, said := send(t, pages+"/hooks/payments", headers, bytes.NewReader(body), "application/json")
		if status[code]++; !strings.Contains(said, `"run":"1"`) {
			t.Fatalf("%d %s", code, said)
		}
	}
	if status[http.StatusAccepted] != 1 || status[http.StatusOK] != 999 {
		t.Errorf("the answers: %v", status)
	}

	// Invalid deliveries are refused with distinct messages and start no run.
	old, err := webhook.Standard.Sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", webhook.Delivery{ID: "msg_2"}, body, time.Now().Add(-6*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		path    string
		headers http.Header
		body    io.Reader
		kind    string
		status  int
		says    string
	}{
		"another body":        {"/hooks/payments", headers, strings.NewReader(`{"type":"payment","n":8}`), "application/json", 401, "signature"},
		"no signature":        {"/hooks/payments", http.Header{}, bytes.NewReader(body), "application/json", 401, "are not all there"},
		"an old time":         {"/hooks/payments", old, bytes.NewReader(body), "application/json", 401, "older than 5m0s"},
		"a picture":           {"/hooks/payments", headers, bytes.NewReader(body), "image/png", 415, "JSON, forms and texts"},
		"a hundred megabytes": {"/hooks/payments", headers, io.LimitReader(zeros{}, 100<<20), "application/json", 413, "max_body"},
		"a path to elsewhere": {"/hooks/%2e%2e/%2e%2e/etc/passwd", headers, bytes.NewReader(body), "application/json", 404, ""},
		"another path":        {"/hooks/payment", headers, bytes.NewReader(body), "application/json", 404, "no webhook"},
	} {
		if code, said := send(t, pages+c.path, c.headers, c.body, c.kind); code != c.status || !strings.Contains(said, c.says) {
			t.Errorf("%s: %d %s, want %d %s", what, code, said, c.status, c.says)
		}
	}
	if why, err := endtoend.Rouse(t, "why", "payments", "--config", config).Quietly(); err != nil || !strings.Contains(why, "refused") {
		t.Errorf("what was refused is not on record: %v %s", err, why)
	}

	notice := <-notices
	link := regexp.MustCompile(`http://\S+/runs/\d+`).FindString(notice)
	if !strings.Contains(notice, "/topic-of-mine") || !strings.Contains(notice, "took the payment 7") || link == "" {
		t.Fatalf("the notice says %s", notice)
	}
	opensForOwner(t, p, map[string]string{link: "took the payment 7", pages + "/jobs": "not-mounted is not there", pages + "/jobs/morning": "not-mounted is not there",
		pages + "/": "not-mounted is not there", pages + "/health": "not-mounted is not there"})
	var runs []api.Run
	endtoend.RunJSON(t, &runs, "runs", "--json", "--config", config)
	if len(runs) != 1 || runs[0].Trigger != domain.TriggerWebhook || runs[0].Outcome != domain.OutcomeSuccess || !strings.Contains(strings.Join(runs[0].Taint, ""), "A") {
		t.Errorf("the runs: %+v", runs)
	}

	// The eight o'clock job cannot run. A client that asks gets the reason.
	token, err := os.ReadFile(filepath.Join(dir, "home", "dashboard", "token"))
	if err != nil {
		t.Fatal(err)
	}
	c := newMCPClient(t, &mcp.StreamableClientTransport{Endpoint: pages + "/mcp", HTTPClient: &http.Client{Transport: bearer{strings.TrimSpace(string(token))}}})
	c.says("why", map[string]any{"job": "morning", "at": "8:00"}, "blocked: folder: what the agent was granted to read:")
	c.says("list_jobs", nil, "not-mounted is not there")
}

// zeros is an endless request body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// send posts a delivery and returns the response. It retries once, because a connection that is
// closed during the request may lose the response.
func send(t *testing.T, url string, headers http.Header, body io.Reader, kind string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = headers.Clone()
	r.Header.Set("Content-Type", kind)
	r.Header.Set("Expect", "100-continue") // so that a refusal arrives before the body is sent
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// opensForOwner opens pages in a logged-in and an anonymous browser. Only the first may see the
// content.
func opensForOwner(t *testing.T, p *endtoend.Program, pages map[string]string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	get := func(browser *http.Client, url string) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	owner := &http.Client{Jar: jar}
	get(owner, regexp.MustCompile(`http://\S+/login\?code=\S+`).FindString(p.Out.String()))
	for link, want := range pages {
		if text := get(http.DefaultClient, link); strings.Contains(text, want) {
			t.Errorf("%s is open to everybody: %s", link, text)
		}
		if text := get(owner, link); !strings.Contains(text, want) {
			t.Errorf("%s does not say %q: %s", link, want, text)
		}
	}
}
