package wire_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/wire"
)

// network is a transport in a synctest bubble.
type network func(try int, r *http.Request) (*http.Response, error)

type counted struct {
	network
	tries int
	at    []time.Time
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
	}

	c.tries++
	c.at = append(c.at, time.Now())
	return c.network(c.tries, r)
}

func answered(status int, retryAfter, text string) *http.Response {
	r := &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}
	if retryAfter != "" {
		r.Header.Set("Retry-After", retryAfter)
	}
	return r
}

const good = `data: {"text":"hello","end":"stop"}` + "\n\n"

// describeBody is a provider for a dialect with text and an end.
type describeBody struct{ server *wire.Client }

func (p describeBody) EncodeRequest() any               { return map[string]string{"model": p.server.Model()} }
func (p describeBody) Adapt(int, wire.ServerError) bool { return false }
func (p describeBody) Decode(f wire.Frame, a *wire.Accumulator) (string, error) {
	var said struct{ Text, End string }
	if err := json.Unmarshal(f.Data, &said); err != nil {
		return "", p.server.InvalidChunk(err)
	}

	if said.End != "" {
		a.SetFinishReason(said.End, map[string]string{"stop": model.StopDone})
	}
	return said.Text, nil
}

// Stream implements model.Provider.
func (p describeBody) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return p.server.Stream(ctx, p, r.MaxOutput)
}

func provider(t testing.TB, e wire.Endpoint) describeBody {
	t.Helper()
	e.Model = "m"
	s, err := wire.New(e, wire.Dialect{Name: "plain", Path: "chat", KeyHeader: "Authorization"})
	if err != nil {
		t.Fatal(err)
	}
	return describeBody{s}
}

// ask runs one turn over a network. Durations are those of the bubble.
func ask(t testing.TB, ctx context.Context, e wire.Endpoint, w network) (modeltest.Answer, *counted) {
	t.Helper()
	c := &counted{network: w}
	e.BaseURL, e.APIKey, e.Transport = "http://model/v1", "sk-canary", c
	return modeltest.Ask(t, ctx, provider(t, e), model.Request{}), c
}

// TestRetries checks that retries are limited and have jitter, and that Retry-After is obeyed in
// both formats.
func TestRetries(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		retryAfter func() string
		min, max   time.Duration // of the first pause
	}{
		"down":         {503, func() string { return "" }, 250 * time.Millisecond, 500 * time.Millisecond},
		"limited":      {429, func() string { return "" }, 250 * time.Millisecond, 500 * time.Millisecond},
		"seconds":      {429, func() string { return "20" }, 20 * time.Second, 22 * time.Second},
		"any status":   {529, func() string { return "20" }, 20 * time.Second, 22 * time.Second},
		"a date":       {503, func() string { return time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat) }, 29 * time.Second, 33 * time.Second},
		"a past date":  {503, func() string { return time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat) }, 0, 0},
		"no sense":     {503, func() string { return "soon" }, 250 * time.Millisecond, 500 * time.Millisecond},
		"a connection": {0, nil, 250 * time.Millisecond, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				got, w := ask(t, t.Context(), wire.Endpoint{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(try int, _ *http.Request) (*http.Response, error) {
					switch {
					case try == 2:
						return answered(200, "", good), nil
					case c.status == 0:
						return nil, errors.New("connection reset by peer")
					}
					return answered(c.status, c.retryAfter(), "not now"), nil
				})
				if got.Err != nil || got.Text != "hello" || w.tries != 2 {
					t.Fatalf("%d tries: %+v", w.tries, got)
				}
				if pause := w.at[1].Sub(w.at[0]); pause < c.min || pause > c.max {
					t.Errorf("paused for %s, want %s to %s", pause, c.min, c.max)
				}
				if !strings.Contains(log.String(), "asked again") || strings.Contains(log.String(), "canary") {
					t.Errorf("log: %s", log.String())
				}
			})
		})
	}
}

func TestRetriesEnd(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		retryAfter string
		timeout    time.Duration
		tries      int
		say        string
		kind       model.ErrorKind
	}{
		"always down":                   {503, "", 0, 4, "no", model.KindUnavailable},
		"a refusal":                     {400, "", 0, 1, "no", model.KindBadRequest},
		"a pause that is too long":      {429, "61", 0, 1, "no", model.KindRateLimited},
		"a pause beyond the whole time": {429, "30", 20 * time.Second, 1, "no", model.KindRateLimited},
		"a quota that is spent":         {429, "", 0, 1, `{"error":{"message":"no","code":"insufficient_quota"}}`, model.KindQuota},
		"and one with a pause":          {429, "5", 0, 1, `{"error":{"message":"no","code":"insufficient_quota"}}`, model.KindQuota},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, w := ask(t, t.Context(), wire.Endpoint{Timeout: c.timeout}, func(int, *http.Request) (*http.Response, error) {
					return answered(c.status, c.retryAfter, c.say), nil
				})
				var e *model.Error
				if !errors.As(got.Err, &e) || e.Kind != c.kind || !strings.HasSuffix(e.Message, ": no") || w.tries != c.tries {
					t.Errorf("%d tries, want %d: %v", w.tries, c.tries, got.Err)
				}
			})
		})
	}
}

// TestUnreachable checks that an error names an unreachable server, but not the credentials in its
// URL, which errors of the transport contain. It also checks the error for a closed connection.
func TestUnreachable(t *testing.T) {
	for want, fails := range map[string]func(r *http.Request) error{
		"dial http://user:[secret]@model:1/v1/chat?key=[secret]: connection refused": func(r *http.Request) error { return fmt.Errorf("dial %s: connection refused", r.URL) },
		"it closed the connection without an answer":                                 func(*http.Request) error { return io.EOF },
	} {
		synctest.Test(t, func(t *testing.T) {
			p := provider(t, wire.Endpoint{BaseURL: "http://user:canary@model:1/v1?key=canary%2F2", Transport: &counted{network: func(_ int, r *http.Request) (*http.Response, error) {
				return nil, fails(r)
			}}})
			got := modeltest.Ask(t, t.Context(), p, model.Request{})
			var e *model.Error
			want := "the model server http://model:1/v1 cannot be reached for the model m: " + want
			if !errors.As(got.Err, &e) || e.Kind != model.KindUnavailable || !e.Retryable || e.Error() != want {
				t.Errorf("%v, want %s", got.Err, want)
			}
		})
	}
}

// slowly is a body that sends its parts with a pause before each, and then hangs.
type slowly struct {
	ctx   context.Context
	pause time.Duration
	parts []string
}

func (s *slowly) Read(b []byte) (int, error) {
	var next <-chan time.Time
	if len(s.parts) > 0 {
		next = time.After(s.pause)
	}

	select {
	case <-next:
		n := copy(b, s.parts[0])
		s.parts = s.parts[1:]
		return n, nil
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}

func (s *slowly) Close() error { return nil }

// TestHangingModel checks that a hanging model is abandoned at its timeout, and that the error
// names the timeout.
func TestHangingModel(t *testing.T) {
	chunk := `data: {"text":"a"}` + "\n\n"
	hang := func(_ int, r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	sending := func(pause time.Duration, parts ...string) network {
		return func(_ int, r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: &slowly{r.Context(), pause, parts}}, nil
		}
	}
	for name, c := range map[string]struct {
		network network
		took    time.Duration
		say     string
	}{
		"no answer":      {hang, 10 * time.Second, "sent nothing for 10s"},
		"silence":        {sending(9*time.Second, chunk, chunk), 28 * time.Second, "sent nothing for 10s"},
		"endless":        {sending(5*time.Second, strings.SplitAfter(strings.Repeat(chunk, 100), "\n\n")...), time.Minute, "did not finish its answer within 1m0s"},
		"comments alone": {sending(5*time.Second, strings.SplitAfter(strings.Repeat(": wait\n\n", 100), "\n\n")...), time.Minute, "did not finish its answer within 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				got, w := ask(t, t.Context(), wire.Endpoint{Timeout: time.Minute, Idle: 10 * time.Second}, c.network)
				var e *model.Error
				if !errors.As(got.Err, &e) || e.Kind != model.KindUnavailable || !e.Retryable || !strings.Contains(e.Error(), c.say) || w.tries != 1 {
					t.Errorf("%d tries: %v", w.tries, got.Err)
				}
				if took := time.Since(start); took != c.took {
					t.Errorf("it took %s, want %s", took, c.took)
				}
			})
		})
	}
}

// TestRetryPauseIsNotIdle checks that the idle timeout does not run during a retry delay.
func TestRetryPauseIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, w := ask(t, t.Context(), wire.Endpoint{Idle: time.Second}, func(try int, _ *http.Request) (*http.Response, error) {
			if try == 1 {
				return answered(503, "50", "no"), nil
			}
			return answered(200, "", good), nil
		})
		if got.Err != nil || w.tries != 2 {
			t.Errorf("%d tries: %v", w.tries, got.Err)
		}
	})
}

// TestSlowReader checks that the idle timeout does not run while the consumer is busy.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counted{network: func(_ int, r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(io.MultiReader(
				strings.NewReader(`data: {"text":"a"}`+"\n\n"), strings.NewReader(good)))}, nil
		}}
		p := provider(t, wire.Endpoint{BaseURL: "http://model", Idle: time.Second, Transport: c})
		var text string
		for e, err := range p.Stream(t.Context(), model.Request{}) {
			if err != nil {
				t.Fatal(err)
			}
			text += e.Text
			time.Sleep(time.Minute) // time of the bubble
		}
		if text != "ahello" {
			t.Errorf("text: %q", text)
		}
	})
}

// TestCancelledWhileWaiting checks that the error of a cancelled turn is the cause. During a retry
// delay it must also contain the reason for the delay.
func TestCancelledWhileWaiting(t *testing.T) {
	refused := func() (*http.Response, error) { return nil, errors.New("connection refused") }
	busy := func() (*http.Response, error) { return answered(503, "50", "no"), nil }
	for name, c := range map[string]struct {
		first func() (*http.Response, error)
		hangs time.Duration // time for which the second attempt has been running
		say   string
	}{
		"for a server that is busy":     {busy, 0, "the model server http://model/v1 answered Service Unavailable for the model m: no"},
		"for one that is not there":     {refused, 0, "the model server http://model/v1 cannot be reached for the model m: connection refused"},
		"for one that is thinking then": {refused, time.Second, "somebody said stop"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stop := errors.New("somebody said stop")
				ctx, cancel := context.WithCancelCause(t.Context())
				after := 100*time.Millisecond + c.hangs
				time.AfterFunc(after, func() { cancel(stop) })
				start := time.Now()
				got, _ := ask(t, ctx, wire.Endpoint{}, func(try int, r *http.Request) (*http.Response, error) {
					if try == 1 {
						return c.first()
					}
					<-r.Context().Done()
					return nil, r.Context().Err()
				})
				if !errors.Is(got.Err, stop) || got.Err.Error() != c.say || time.Since(start) != after {
					t.Errorf("after %s: %v", time.Since(start), got.Err)
				}
				if e := new(model.Error); errors.As(got.Err, &e) != (c.hangs == 0) {
					t.Errorf("as an error of the model: %+v", e)
				}
			})
		})
	}
}

// TestHangingConnect checks that the idle timeout also applies while connecting.
func TestHangingConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := provider(t, wire.Endpoint{BaseURL: "http://model/v1", Idle: time.Minute, Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				select {
				case <-ctx.Done():
				case <-time.After(2 * time.Minute): // a dialer's own timeout, in case it is not cancelled
				}
				return nil, errors.New("no answer")
			}}})

		got := modeltest.Ask(t, t.Context(), p, model.Request{})
		var e *model.Error
		if !errors.As(got.Err, &e) || e.Kind != model.KindUnavailable || !strings.Contains(e.Message, "sent nothing for 1m0s") || time.Since(began) != time.Minute {
			t.Errorf("%v after %s", got.Err, time.Since(began))
		}

		time.Sleep(2 * time.Minute)
	})
}
