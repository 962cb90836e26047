package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/load"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// newSetup loads a configuration with some models.
func newSetup(t *testing.T, models ...string) *plan.Setup {
	t.Helper()
	text := "version: 1\nhome: ./home\nmodels:\n"
	for _, m := range models {
		text += "  - {" + m + "}\n"
	}
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": text + "agents: [{name: clerk, workdir: ./work}]\n"})
	cfg, err := load.Config(yaml.Options{Path: filepath.Join(dir, "rouse.yaml")}, agent.Specs())
	if err != nil {
		t.Fatal(err)
	}
	return &plan.Setup{Config: cfg}
}

// TestServersAreBounded checks that Doctor asks all servers at once and limits the time of each.
func TestServersAreBounded(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-closed:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		close(closed)
		server.Close()
	})
	var models []string
	for i := range 20 {
		models = append(models, fmt.Sprintf("name: m%d, provider: openai, model: x, base_url: %s/v1", i, server.URL))
	}

	d, s := &Checker{Logger: slog.New(slog.DiscardHandler)}, newSetup(t, models...)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	asked := d.askServers(ctx, s)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("20 servers that hang take %s", took)
	}

	for _, c := range checkServers(s, asked) {
		if c.OK || !strings.Contains(c.Detail, "gave no answer in time") {
			t.Errorf("%+v", c)
		}
	}
	if c := checkServer(config.Model{Name: "r", Recording: "r.jsonl"}, askedServer{none: true}); !c.OK || c.NotTried != "a server: there is none" {
		t.Errorf("%+v", c)
	}
}

// TestClockOfTheLedger checks that a run queued in the future fails the clock check.
func TestClockOfTheLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(dir, "ledger.db"), Blobs: filepath.Join(dir, "blobs")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Enqueue(t.Context(), ledger.Request{Agent: "clerk", Trigger: domain.TriggerManual}); err != nil {
		t.Fatal(err)
	}
	d := &Checker{Ledger: l}
	if c := d.checkClock(t.Context(), time.Now().Add(-time.Hour), newSetup(t, "name: m, provider: openai, model: x, base_url: http://127.0.0.1:1/v1"), nil); c.OK || !strings.Contains(c.Detail, "which is still to come") {
		t.Errorf("%+v", c)
	}
}
