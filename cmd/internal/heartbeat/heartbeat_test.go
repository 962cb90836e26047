package heartbeat_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/heartbeat"
)

const secretURL = "https://ping.test/1f2e3d4c-uuid?key=hidden"

// monitor is the monitoring server, inside a synctest bubble.
type monitor struct {
	at     []time.Time
	answer func() (*http.Response, error)
}

func (m *monitor) RoundTrip(r *http.Request) (*http.Response, error) {
	m.at = append(m.at, time.Now())
	if m.answer != nil {
		return m.answer()
	}
	return status(200, r), nil
}

func status(code int, r *http.Request) *http.Response {
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Body: io.NopCloser(strings.NewReader("")), Request: r, Header: http.Header{}}
}

// run runs a heartbeat for the given time and returns its log.
func run(t *testing.T, m *monitor, well func(context.Context) error, d time.Duration) (*heartbeat.Heartbeat, string) {
	t.Helper()
	var log strings.Builder
	h := heartbeat.New(heartbeat.Options{URL: func() string { return secretURL }, Well: well, Transport: m, Logger: slog.New(slog.NewTextHandler(&log, nil))})

	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := h.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return h, log.String()
}

func fine(context.Context) error { return nil }

// A ping is sent at once and then at least every minute while the daemon runs.
func TestEachMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &monitor{}
		began := time.Now()
		h, log := run(t, m, fine, time.Hour)
		if n := len(m.at); n < 60 || n > 66 {
			t.Fatalf("%d pings in an hour", n)
		}
		if !m.at[0].Equal(began) {
			t.Errorf("the first came at %v, and the start was at %v", m.at[0], began)
		}

		together := 0
		for i, at := range m.at[1:] {
			if gap := at.Sub(m.at[i]); gap > time.Minute || gap < 55*time.Second {
				t.Errorf("%v between two pings", gap)
			} else if gap == time.Minute {
				together++
			}
		}
		if together > len(m.at)/2 {
			t.Error("the pings are not spread")
		}

		if s := h.State(); s.Problem != "" || s.To != "ping.test" || !s.LastPing.Equal(m.at[len(m.at)-1]) {
			t.Errorf("%+v", s)
		}
		if strings.Count(log, "msg=") != 1 {
			t.Error(log)
		}

		n := len(m.at)
		time.Sleep(time.Hour)
		if len(m.at) != n {
			t.Error("it went on after the stop")
		}
	})
}

// No pings are sent while the health check fails or hangs. Pings resume afterwards, and both
// changes are logged once.
func TestNotWell(t *testing.T) {
	t.Parallel()
	for name, ill := range map[string]func(context.Context) error{
		"fails": func(context.Context) error { return errors.New("the disk is full") },
		"hangs": func(ctx context.Context) error { <-ctx.Done(); return errors.New("the disk is full") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m, began := &monitor{}, time.Now()
				h, log := run(t, m, func(ctx context.Context) error {
					if since := time.Since(began); since > 10*time.Minute && since < 20*time.Minute {
						return ill(ctx)
					}
					return nil
				}, 30*time.Minute)

				for _, at := range m.at {
					if since := at.Sub(began); since > 10*time.Minute && since < 20*time.Minute {
						t.Errorf("a ping at %v", since)
					}
				}
				if n := len(m.at); n < 19 || n > 24 {
					t.Errorf("%d pings", n)
				}
				if strings.Count(log, "does not arrive") != 1 || strings.Count(log, "arrives again") != 1 || !strings.Contains(log, "the disk is full") {
					t.Error(log)
				}
				if h.State().Problem != "" {
					t.Errorf("%+v", h.State())
				}
			})
		})
	}
}

// A failed ping is logged once, without the address.
func TestProblems(t *testing.T) {
	t.Parallel()
	for want, answer := range map[string]func() (*http.Response, error){
		"ping.test answered Not Found":                         func() (*http.Response, error) { return status(404, nil), nil },
		"ping.test answered Found: redirects are not followed": func() (*http.Response, error) { return status(302, nil), nil },
		"ping.test cannot be reached: no route":                func() (*http.Response, error) { return nil, errors.New("no route") },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h, log := run(t, &monitor{answer: answer}, fine, 10*time.Minute)
				if s := h.State(); !strings.Contains(s.Problem, want) || !s.LastPing.IsZero() {
					t.Errorf("%+v", s)
				}
				if strings.Count(log, "msg=") != 1 {
					t.Error(log)
				}
				if strings.Contains(log+h.State().Problem, "1f2e3d4c") || strings.Contains(log+h.State().Problem, "hidden") {
					t.Errorf("the address is shown: %s", log)
				}
			})
		})
	}
}

// A real server gets one request per ping, and redirects are not followed.
func TestRedirect(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	asked := make(chan *http.Request, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r
		http.Redirect(w, r, other.URL, http.StatusFound)
	}))
	defer server.Close()

	h := heartbeat.New(heartbeat.Options{URL: func() string { return server.URL + "/uuid" }, Well: fine, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- h.Run(ctx) }()
	if r := <-asked; r.URL.Path != "/uuid" || r.Method != http.MethodGet || r.UserAgent() != "rouse" {
		t.Errorf("%s %s by %s", r.Method, r.URL, r.UserAgent())
	}
	cmdtest.Until(t, "the answer was read", func() bool { return strings.Contains(h.State().Problem, "redirects are not followed") })
	cancel()
	if err := <-over; err != nil || elsewhere.Load() != 0 {
		t.Errorf("%v, %d requests elsewhere", err, elsewhere.Load())
	}
}
