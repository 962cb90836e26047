package agent_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rouse/agent/plan"
	"rouse/internal/domain"
)

// TestHTTPCondition checks that a 2xx status is true. Any other status or a missing response is
// false.
func TestHTTPCondition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var last atomic.Pointer[http.Request]
	hang := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch last.Store(r.Clone(r.Context())); r.URL.Path {
		case "/ok":
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		case "/busy":
			http.Error(w, strings.Repeat("x", 1<<20), http.StatusServiceUnavailable)
		case "/moved":
			http.Redirect(w, r, "/ok", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "ftp://127.0.0.1/secret", http.StatusFound)
		case "/file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusMovedPermanently)
		case "/inwards":
			http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		case "/hang":
			<-hang
		case "/endless":
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		default:
			w.WriteHeader(599)
		}
	}))

	t.Cleanup(func() { close(hang); s.Close() })
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect led to another server of this machine") }))
	t.Cleanup(inner.Close)
	const inwards = " of this machine, of its network, or of nobody; only the configuration can name such an address, with its port"
	dead := "http://127.0.0.1:1" // No server listens on this port. A port that a test freed could be taken by another test.
	begin := time.Now()

	for url, want := range map[string]string{
		s.URL + "/ok":                      "200 OK",
		s.URL + "/none":                    "204 No Content",
		s.URL + "/moved":                   "200 OK",
		s.URL + "/endless":                 "200 OK",
		s.URL + "/busy":                    "503 Service Unavailable",
		s.URL + "/odd":                     "599",
		s.URL + "/away":                    "a redirect to ftp:, which is refused",
		s.URL + "/file":                    "a redirect to file:, which is refused",
		s.URL + "/round":                   "more than 10 redirects",
		s.URL + "/inwards?to=" + inner.URL: "127.0.0.1 is an address" + inwards,
		s.URL + "/inwards?to=" + strings.Replace(inner.URL, "127.0.0.1", "localhost", 1): "",
		s.URL + "/hang":                  "no answer within 2s",
		"http://rouse-gate-test.invalid": "",
		"https" + s.URL[4:] + "/ok":      "http: server gave HTTP response to HTTPS client",
	} {
		res, events := b.gated(plan.Condition{HTTP: url, Timeout: 2 * time.Second})
		ok := strings.HasPrefix(want, "2")
		if (res.Outcome == domain.OutcomeSuccess) != ok || (!ok && res.Outcome != domain.OutcomeSkipped) || (want != "" && events[0].Value != want) || events[0].Value == "" {
			t.Errorf("%s: %+v, %+v", url, res, events)
		}
	}

	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	if res, events := b.gated(plan.Condition{HTTP: dead, Not: true}); res.Outcome != domain.OutcomeSuccess || (runtime.GOOS != "windows" && events[0].Value != "connection refused") {
		t.Errorf("%+v, %+v", res, events)
	}

	// Secrets in a URL are sent only to its server.
	u := strings.Replace(s.URL, "http://", "http://owner:pass-1@", 1) + "/moved?token=abc123&secretword#part"
	_, events := b.gated(plan.Condition{HTTP: u})
	if want := "http \"http://…@" + s.Listener.Addr().String() + "/moved?token=…&…\""; events[0].Gate != want {
		t.Errorf("%s, want %s", events[0].Gate, want)
	}
	if referer := last.Load().Header.Get("Referer"); referer != "" {
		t.Errorf("the next server is told of %s", referer)
	}

	for _, url := range []string{"http://owner:pass-1@sk-canary.invalid/x?token=abc123", "http://sk-canary/?x=sk-canary-and-more#sk-canary"} {
		res, events := b.gated(plan.Condition{HTTP: url, Timeout: 2 * time.Second})
		for _, secret := range []string{"sk-canary", "and-more", "owner", "pass-1", "abc123"} {
			if text := fmt.Sprint(res.Error, events); strings.Contains(text, secret) {
				t.Errorf("%s is told: %s", secret, text)
			}
		}
	}
}
