package web

import (
	"bufio"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/internal/ledger"
)

// An idle stream sends keep-alive comments and breaks off when the server stops.
func TestStreamsAreAlive(t *testing.T) {
	t.Parallel()
	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	stopping := make(chan struct{})
	s := &events{responder: &responder{log: slog.New(slog.DiscardHandler)}, ledger: l, stopping: stopping, heartbeat: 10 * time.Millisecond}
	web := httptest.NewServer(http.HandlerFunc(s.serve))
	defer web.Close()

	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	in, beats := bufio.NewScanner(resp.Body), 0
	for beats < 3 && in.Scan() {
		switch line := in.Text(); {
		case line == ":":
			beats++
		case line != "" && !strings.HasPrefix(line, "retry: "):
			t.Errorf("%q", line)
		}
	}
	if beats < 3 {
		t.Fatalf("it ended after %d beats: %v", beats, in.Err())
	}

	close(stopping)
	for in.Scan() {
	}
	if in.Err() == nil {
		t.Error("its end looks like the end of what was followed")
	}
}
