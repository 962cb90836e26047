package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const key = "a key of some length"

// vector is a signed request, as in the documentation of a sender.
type vector struct {
	scheme  Scheme
	secret  string
	headers map[string]string
	body    string
	at      int64 // seconds; 0 if the scheme does not sign a time
	want    Delivery
}

const slackBody = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"

var vectors = map[string]vector{
	"standard": {Standard, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", map[string]string{"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330", "webhook-signature": "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
		`{"test": 2432232314}`, 1614265330, Delivery{ID: "msg_p5jXN8AQM9LWM0D4loKWxJek"}},
	"github": {GitHub, "It's a Secret to Everybody", map[string]string{"X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17", "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958", "X-GitHub-Event": "issues"},
		"Hello, World!", 0, Delivery{ID: "72d3162e-cc78-11e3-81ab-4c9367dc0958", Event: "issues"}},
	"gitlab": {GitLab, "a token of GitLab", map[string]string{"X-Gitlab-Token": "a token of GitLab", "Idempotency-Key": "f5e5f430-f57b-4e6e-9fac-d9128cd7232f", "X-Gitlab-Event": "Push Hook"},
		`{"object_kind":"push"}`, 0, Delivery{ID: "f5e5f430-f57b-4e6e-9fac-d9128cd7232f", Event: "Push Hook", Keyed: true}},
	"stripe": {Stripe, "whsec_test_secret", map[string]string{"Stripe-Signature": "t=1614265330,v1=00,v1=a77f58ed88dac6c2cb9d24f149d7424c41f234b3beb04e25d9492b330816350e,v0=11"},
		`{"id":"evt_1","type":"charge.succeeded"}`, 1614265330, Delivery{ID: "evt_1", Event: "charge.succeeded"}},
	"slack": {Slack, "8f742231b10e8888abcd99yyyzzz85a5", map[string]string{"X-Slack-Request-Timestamp": "1531420618", "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"},
		slackBody, 1531420618, Delivery{}},
}

func (v vector) header() http.Header {
	h := http.Header{}
	for name, value := range v.headers {
		h.Set(name, value)
	}
	return h
}

func (v vector) now() time.Time {
	if v.at == 0 {
		return time.Now()
	}
	return time.Unix(v.at, 0).Add(time.Minute)
}

// The documented examples of each sender are valid. Another body or secret, a missing or truncated
// signature, and a wrong time are not.
func TestVectors(t *testing.T) {
	for name, v := range vectors {
		t.Run(name, func(t *testing.T) {
			got, err := v.scheme.Verify(v.secret, v.header(), []byte(v.body), v.now())
			if name == "slack" && strings.HasPrefix(got.ID, "sha256:") {
				got.ID = "" // depends on the body's bytes
			}
			if err != nil || got != v.want {
				t.Fatalf("%+v (%v), want %+v", got, err, v.want)
			}

			refused := func(what string, secret string, h http.Header, body string, now time.Time) {
				t.Helper()
				if got, err := v.scheme.Verify(secret, h, []byte(body), now); err == nil {
					t.Errorf("%s: %+v", what, got)
				} else if strings.Contains(err.Error(), v.secret) {
					t.Errorf("%s: the secret is told: %v", what, err)
				}
			}
			refused("another secret", v.secret+"x", v.header(), v.body, v.now())
			refused("no secret", "", v.header(), v.body, v.now())
			refused("no headers", v.secret, http.Header{}, v.body, v.now())
			if v.scheme != GitLab { // GitLab does not sign
				refused("another body", v.secret, v.header(), v.body+" ", v.now())
			}
			for header, value := range v.headers {
				if strings.Contains(header, "ignature") || strings.Contains(header, "Token") {
					h := v.header()
					h.Set(header, value[:len(value)-2])
					if v.scheme == Stripe {
						h.Set(header, strings.Replace(value, "v1=", "v2=", 2))
					}
					refused("a cut signature", v.secret, h, v.body, v.now())
				}
			}
			if v.at != 0 {
				refused("an old request", v.secret, v.header(), v.body, time.Unix(v.at, 0).Add(Window+time.Second))
				refused("one of the future", v.secret, v.header(), v.body, time.Unix(v.at, 0).Add(-Window-time.Second))
			}
		})
	}
}

// A signature made here is accepted here, and both attempts of a sender have the same ID.
func TestSign(t *testing.T) {
	for _, s := range []Scheme{Standard, GitHub, GitLab, Stripe, Slack} {
		for _, secret := range []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "plain words are bytes"} {
			body := []byte(`{"id":"evt_7","event_id":"evt_7"}`)
			h, err := s.Sign(secret, Delivery{ID: "evt_7", Event: "e"}, body, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if got, err := s.Verify(secret, h, body, time.Now()); err != nil || got.ID != "evt_7" {
				t.Errorf("%s: %+v (%v)", s, got, err)
			}
		}
	}

	// A sender without IDs repeats the same bytes.
	h, err := GitHub.Sign(key, Delivery{}, []byte("x"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	one, err := GitHub.Verify(key, h, []byte("x"), time.Now())
	if err != nil || !strings.HasPrefix(one.ID, "sha256:") {
		t.Errorf("%+v (%v)", one, err)
	}
	h.Set("X-GitHub-Delivery", "a\x1b[31m")
	if _, err := GitHub.Verify(key, h, []byte("x"), time.Now()); err == nil {
		t.Error("a name that steers a terminal")
	}
}

// keeper is an in-memory Engine.
type keeper struct {
	mu      sync.Mutex
	kept    map[string]int64
	busy    *BusyError
	broken  error
	refused []string
}

func (k *keeper) Webhook(path string) (Hook, bool) {
	return Hook{Job: "j", Path: path, Scheme: GitHub, Secret: key, MaxBody: 100}, path == "/hooks/j"
}

func (k *keeper) Deliver(_ context.Context, _ Hook, d Delivery, _ string) (Accepted, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if run, ok := k.kept[d.ID]; ok {
		return Accepted{run, true}, nil
	}
	if k.busy != nil {
		return Accepted{}, k.busy
	}
	if k.broken != nil {
		return Accepted{}, k.broken
	}
	k.kept[d.ID] = int64(len(k.kept) + 1)
	return Accepted{Run: k.kept[d.ID]}, nil
}

func (k *keeper) Refused(_ context.Context, _ Hook, why string) { k.refused = append(k.refused, why) }

// endless is a body without an end, of which only a limited part may be read.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	if e.read > 1<<20 {
		return 0, errors.New("too much of it was read")
	}
	return len(p), nil
}

// Each kind of invalid request gets its own status and no run. A response of 202 has a run.
func TestHandler(t *testing.T) {
	k := &keeper{kept: map[string]int64{}}
	h := NewHandler(k, slog.New(slog.DiscardHandler))
	ask := func(method, path, kind string, body io.Reader, signed string) (*httptest.ResponseRecorder, answer) {
		t.Helper()
		r := httptest.NewRequest(method, path, body)
		if signed != "" {
			headers, err := GitHub.Sign(key, Delivery{ID: "d", Event: "e"}, []byte(signed), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			r.Header = headers
		}
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var a answer
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			t.Fatalf("%s: %v", w.Body, err)
		}
		return w, a
	}

	const ok = "application/json; charset=utf-8"
	for what, c := range map[string]struct {
		method, path, kind string
		body               io.Reader
		signed             string
		status             int
	}{
		"another path":        {"POST", "/hooks/k", ok, strings.NewReader("{}"), "{}", 404},
		"GET":                 {"GET", "/hooks/j", ok, nil, "", 405},
		"unsigned":            {"POST", "/hooks/j", ok, strings.NewReader("{}"), "", 401},
		"another body":        {"POST", "/hooks/j", ok, strings.NewReader("{} "), "{}", 401},
		"too large":           {"POST", "/hooks/j", ok, strings.NewReader(strings.Repeat("x", 101)), strings.Repeat("x", 101), 413},
		"endless":             {"POST", "/hooks/j", ok, &endless{}, "x", 413},
		"a picture":           {"POST", "/hooks/j", "image/png", strings.NewReader("{}"), "{}", 415},
		"a type that is none": {"POST", "/hooks/j", "a b c", strings.NewReader("{}"), "{}", 415},
		"no text":             {"POST", "/hooks/j", ok, strings.NewReader("\xff"), "\xff", 415},
	} {
		w, a := ask(c.method, c.path, c.kind, c.body, c.signed)
		if w.Code != c.status || a.Error == "" || a.Run != "" || len(k.kept) > 0 {
			t.Errorf("%s: %d %+v, want %d; %v is kept", what, w.Code, a, c.status, k.kept)
		}
	}
	if len(k.refused) != 7 { // all except those without a webhook
		t.Errorf("%d are told: %q", len(k.refused), k.refused)
	}

	k.busy = &BusyError{Why: "paused", After: 90 * time.Second}
	if w, a := ask("POST", "/hooks/j", ok, strings.NewReader("{}"), "{}"); w.Code != 503 || w.Header().Get("Retry-After") != "90" || a.Error != "paused" {
		t.Errorf("busy: %d %v %+v", w.Code, w.Header(), a)
	}
	k.busy, k.broken = nil, errors.New("the disk is full")
	if w, a := ask("POST", "/hooks/j", ok, strings.NewReader("{}"), "{}"); w.Code != 503 || w.Header().Get("Retry-After") == "" || strings.Contains(a.Error, "disk") {
		t.Errorf("broken: %d %+v", w.Code, a)
	}
	k.broken = nil
	if w, a := ask("POST", "/hooks/j", ok, strings.NewReader("{}"), "{}"); w.Code != 202 || a.Run != "1" || a.Repeated {
		t.Errorf("accepted: %d %+v", w.Code, a)
	}
	if w, a := ask("POST", "/hooks/j", ok, strings.NewReader("{}"), "{}"); w.Code != 200 || a.Run != "1" || !a.Repeated {
		t.Errorf("repeated: %d %+v", w.Code, a)
	}
}

// FuzzVerify checks that arbitrary requests are rejected without a panic.
func FuzzVerify(f *testing.F) {
	for _, v := range vectors {
		for name, value := range v.headers {
			f.Add(string(v.scheme), name, value, v.body)
		}
	}
	f.Fuzz(func(t *testing.T, scheme, name, value, body string) {
		h := http.Header{}
		h.Set(name, value)
		if d, err := Scheme(scheme).Verify("a secret that nobody guesses", h, []byte(body), time.Now()); err == nil {
			t.Fatalf("%+v", d)
		}
	})
}

// part is a body that blocks after its first part until it is released.
type part struct {
	left int
	came chan<- struct{} // signaled after the first part
	rest <-chan struct{}
}

func (p *part) Read(b []byte) (int, error) {
	if p.left == 0 {
		if p.came != nil {
			p.came <- struct{}{}
			<-p.rest
		}
		return 0, io.EOF
	}
	n := min(p.left, len(b))
	p.left -= n
	return n, nil
}

// large is an Engine with a webhook that accepts large bodies.
type large struct{ keeper }

func (l *large) Webhook(path string) (Hook, bool) {
	return Hook{Job: "j", Path: path, Scheme: GitHub, Secret: key, MaxBody: 100 << 20}, true
}

func (l *large) Refused(context.Context, Hook, string) {}

// The total size of bodies in memory is limited, however many large bodies are sent at once.
// Rejected senders can retry, and the memory is released.
func TestBodiesAreBounded(t *testing.T) {
	h := NewHandler(&large{}, slog.New(slog.DiscardHandler)).(*handler) //nolint:errcheck // NewHandler returns a *handler
	send := func(body io.Reader) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/hooks/j", body))
		return w
	}

	// Together larger than the limit for all bodies and the limit for one.
	const n, size = 4, 30 << 20
	came, rest := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for range n - 1 {
		all.Go(func() {
			if w := send(&part{left: size, came: came, rest: rest}); w.Code != http.StatusUnauthorized {
				t.Errorf("one that has room: %d", w.Code)
			}
		})
		<-came
	}
	if w := send(&part{left: size}); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "5" {
		t.Errorf("one too many: %d %v", w.Code, w.Header())
	}
	close(rest)
	all.Wait()
	if held := h.held.Load(); held != 0 {
		t.Errorf("%d bytes are held by nobody", held)
	}
	if w := send(&part{left: size}); w.Code != http.StatusUnauthorized {
		t.Errorf("afterwards: %d", w.Code)
	}
}

// An Idempotency-Key is the delivery's ID only if the scheme signs neither an ID nor a time.
// Otherwise a captured request could be replayed under another key.
func TestIdempotencyKey(t *testing.T) {
	for scheme, want := range map[Scheme]Delivery{GitHub: {ID: "k", Keyed: true}, GitLab: {ID: "k", Keyed: true}, Standard: {ID: "d"}, Stripe: {}, Slack: {}} {
		h, err := scheme.Sign(key, Delivery{ID: "d"}, []byte("{}"), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		h.Del("X-GitHub-Delivery")
		h.Set("Idempotency-Key", "k")
		got, err := scheme.Verify(key, h, []byte("{}"), time.Now())
		if strings.HasPrefix(got.ID, "sha256:") {
			got.ID = ""
		}
		if err != nil || got != want {
			t.Errorf("%s: %+v (%v), want %+v", scheme, got, err, want)
		}
	}

	h, err := GitHub.Sign(key, Delivery{ID: "d"}, []byte("{}"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	h.Set("Idempotency-Key", "k")
	if got, err := GitHub.Verify(key, h, []byte("{}"), time.Now()); err != nil || got.ID != "d" || got.Keyed {
		t.Errorf("beside the number of the scheme: %+v (%v)", got, err)
	}
}

// Weak keys are rejected in every spelling, for signing and for verifying.
func TestKeysThatAreGuessed(t *testing.T) {
	t.Parallel()
	for _, s := range []Scheme{Standard, GitHub, GitLab, Stripe, Slack} {
		for _, secret := range []string{"", " ", strings.Repeat(" ", 40), "whsec_", "whsec_AA==", "whsec_AAAAAAAAAAAAAAAAAAA=", "short"} {
			if s != Standard && strings.HasSuffix(secret, "AAA=") {
				continue // 25 characters are not valid base64
			}
			if _, err := s.Sign(secret, Delivery{ID: "d"}, []byte("{}"), time.Now()); err == nil {
				t.Errorf("%s: %q signs", s, secret)
			}
			if _, err := s.Verify(secret, http.Header{}, []byte("{}"), time.Now()); err == nil || strings.Contains(err.Error(), "header") {
				t.Errorf("%s: %q: %v", s, secret, err)
			}
		}
		if err := s.CheckSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// The signature of a Standard Webhooks request is not valid for another request, wherever there are
// dots.
func TestDotsShiftNoSignature(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := strconv.FormatInt(now.Unix(), 10)
	h := http.Header{}
	h.Set("webhook-id", "d."+at)
	h.Set("webhook-timestamp", at)
	h.Set("webhook-signature", signStandard(key, "d", at, []byte(at+".{}")))
	if got, err := Standard.Verify(key, h, []byte("{}"), now); err == nil || !strings.Contains(err.Error(), "has a dot") {
		t.Errorf("%+v, %v", got, err)
	}
}
