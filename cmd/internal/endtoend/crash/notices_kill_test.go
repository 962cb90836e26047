package crash

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// mailbox receives the requests of a webhook channel. It can delay the response to one.
type mailbox struct {
	mu      sync.Mutex
	ids     map[string]map[string]int // title → webhook-id → number of requests
	hold    bool
	held    chan struct{} // a request waits for its response
	release chan struct{}
}

func (m *mailbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct{ Data struct{ Title string } }
	_ = json.NewDecoder(r.Body).Decode(&body) // an invalid body has no title, which the test finds

	m.mu.Lock()
	if m.ids[body.Data.Title] == nil {
		m.ids[body.Data.Title] = map[string]int{}
	}
	m.ids[body.Data.Title][r.Header.Get("webhook-id")]++
	hold := m.hold
	m.hold = false
	m.mu.Unlock()

	if hold {
		m.held <- struct{}{}
		<-m.release
	}
	w.WriteHeader(http.StatusNoContent)
}

// TestNoticeKills kills the daemon after a notice was sent and before its delivery is recorded. No
// notice may be lost, and a notice that arrives twice must have the same ID.
func TestNoticeKills(t *testing.T) {
	t.Parallel()
	endtoend.Unraced(t)
	m := &mailbox{ids: map[string]map[string]int{}, held: make(chan struct{}), release: make(chan struct{})}
	s := httptest.NewServer(m)
	defer s.Close()

	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
limits: {runs: 2}
agents: [{name: clerk, workdir: ./work, database: {enabled: false}}]
notifications: [{name: ops, kind: webhook, url: "` + s.URL + `", secret: s3cret-of-some-length}]
jobs:
  - name: inbox
    agent: clerk
    watch: {path: ./inbox, existing: process, responsiveness: fast}
    playbook: [{call: complete, with: {summary: "12 files were copied to the disk"}}]
    notify: {on: [success], channels: [ops], title: "{{ .File.Name }}"}
`})
	config := filepath.Join(dir, "rouse.yaml")
	if err := os.Mkdir(filepath.Join(dir, "inbox"), 0o755); err != nil {
		t.Fatal(err)
	}

	const kills, files = 4, 12
	p := endtoend.Serve(t, config)
	for kill := range kills {
		m.mu.Lock()
		m.hold = true
		m.mu.Unlock()
		for i := range files / kills {
			name := fmt.Sprintf("%d.txt", kill*files/kills+i)
			if err := os.WriteFile(filepath.Join(dir, "inbox", name), []byte(name), 0o644); err != nil {
				t.Fatal(err)
			}
		}

		select {
		case <-m.held:
		case <-time.After(cmdtest.Patience):
			t.Fatal("no notice came")
		}
		p.Kill(t)
		m.release <- struct{}{}
		p = endtoend.Serve(t, config)
	}

	delivered := func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.ids)
	}
	cmdtest.Until(t, "the last notice", func() bool { return delivered() == files })
	p.Stop(t)

	requests := 0
	for title, ids := range m.ids {
		if len(ids) != 1 {
			t.Errorf("%s came under the ids %v", title, ids)
		}
		for _, n := range ids {
			requests += n
		}
	}
	if requests < files+kills || requests > files+2*kills {
		t.Errorf("%d requests for %d notices and %d kills", requests, files, kills)
	}
}
