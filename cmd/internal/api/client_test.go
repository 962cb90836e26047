package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// handler responds like a daemon: with JSON, an error message, or a stream of lines.
func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/ok", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"name":%q}`, r.URL.Query().Get("name"))
	})
	mux.HandleFunc("POST /v1/fail", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error":"no job is named inbx; did you mean inbox?","usage":true}`)
	})
	mux.HandleFunc("GET /v1/lines", func(w http.ResponseWriter, _ *http.Request) {
		for i := range 3 {
			fmt.Fprintf(w, "{\"n\":%d}\n", i)
			w.(http.Flusher).Flush()
		}
	})

	return mux
}

// TestClient checks that a client behaves the same with the daemon's socket and with an in-process
// handler.
func TestClient(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}

	server := &http.Server{Handler: handler()}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	dialled, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]*Client{"socket": dialled, "in process": InProcess(handler())} {
		t.Run(name, func(t *testing.T) { exercise(t, c) })
	}
}

// TestKeepsItsConnection checks that a client sends all requests over one connection, even if
// responses need several writes.
func TestKeepsItsConnection(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}

	var connections atomic.Int32
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "{\"text\":%q}\n", strings.Repeat("long ", 10_000))
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		},
	}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })

	c, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)

	var first int32
	for i := range 5 {
		var out struct{ Text string }
		if err := c.Get(t.Context(), "/v1/long", nil, &out); err != nil || len(out.Text) != 50_000 {
			t.Fatalf("%d bytes: %v", len(out.Text), err)
		}
		if i == 0 {
			first = connections.Load() // includes the probe by Dial
		}
	}
	if got := connections.Load(); got != first {
		t.Errorf("4 further requests made %d connections", got-first)
	}
}

// TestClose checks that a closed client leaves no connection open. Otherwise, clients created for
// each retry would leak connections.
func TestClose(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}

	closed := make(chan struct{}, 100)
	server := &http.Server{Handler: handler(), ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })

	c, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), "/v1/ok", nil, &struct{ Name string }{}); err != nil {
		t.Fatal(err)
	}

	c.Close()
	for _, which := range []string{"of the trial", "of the request"} {
		select {
		case <-closed:
		case <-time.After(3 * time.Minute):
			t.Fatalf("the connection %s is still open", which)
		}
	}
}

func exercise(t *testing.T, c *Client) {
	var ok struct{ Name string }
	if err := c.Get(t.Context(), "/v1/ok", map[string][]string{"name": {"a b"}}, &ok); err != nil || ok.Name != "a b" {
		t.Errorf("Get = %q, %v", ok.Name, err)
	}

	var failure *Error
	if err := c.Post(t.Context(), "/v1/fail", struct{}{}, nil); !errors.As(err, &failure) || failure.Status != 404 || !failure.Usage {
		t.Errorf("Post = %#v, want the server's own words and that it is a usage error", err)
	}

	n := 0
	for line, err := range c.Lines(t.Context(), "/v1/lines", nil) {
		var got struct{ N int }
		if err != nil || json.Unmarshal(line, &got) != nil || got.N != n {
			t.Fatalf("line %d = %s, %v", n, line, err)
		}
		n++
	}

	if n != 3 {
		t.Errorf("%d lines, want 3", n)
	}
}

func TestDialNobody(t *testing.T) {
	if _, err := Dial(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("Dial = %v, want ErrNoDaemon", err)
	}
}

func TestTime(t *testing.T) {
	for _, c := range []struct {
		in   Time
		want string
	}{
		{Time{}, "null"},
		{Time{time.Date(2026, 3, 1, 12, 0, 0, 5e6, time.FixedZone("x", 3600))}, `"2026-03-01T11:00:00.005Z"`},
	} {
		text, err := json.Marshal(c.in)
		var back Time
		if err != nil || string(text) != c.want || json.Unmarshal(text, &back) != nil || !back.Equal(c.in.Time) {
			t.Errorf("%v → %s, %v; want %s and back", c.in, text, err, c.want)
		}
	}
}

// If the daemon dies during a request, the error states that the outcome is unknown.
func TestClientOfADyingDaemon(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	socket := filepath.Join(t.TempDir(), "s.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}

	server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()

	c, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), "/v1/runs", nil, nil); err == nil || !strings.Contains(err.Error(), "repeat the command") {
		t.Errorf("Get: %v", err)
	}
	if err := c.Post(t.Context(), "/v1/runs", struct{}{}, nil); err == nil || !strings.Contains(err.Error(), "whether it still did this") {
		t.Errorf("Post: %v", err)
	}
}
