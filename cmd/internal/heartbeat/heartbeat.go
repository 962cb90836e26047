// Package heartbeat is a dead man's switch: it pings a monitor every minute while the daemon is
// healthy. A monitor such as healthchecks.io, Uptime Kuma or Cronitor alerts the owner when the
// pings stop. Possible causes are a machine that is off, a broken network, or a hanging daemon.
//
// A ping carries no data. Its URL is a secret: anyone with the URL could ping in place of the
// daemon.
package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"rouse/internal/text"
)

const (
	// Every is the maximum time between two pings while the daemon is healthy.
	Every = time.Minute
	// spread is the maximum random reduction of that time. It keeps many machines from pinging at
	// the same moment.
	spread = 5 * time.Second
	// wellWithin is the timeout of the health check.
	wellWithin = 30 * time.Second
	// answersWithin is the timeout of a ping.
	answersWithin = 10 * time.Second
	// maxAnswer is the maximum number of bytes read from a response.
	maxAnswer = 4 << 10
)

// Options holds the settings of a Heartbeat.
type Options struct {
	// URL returns the address to ping according to the current configuration, or "" if pings are
	// off.
	URL func() string
	// Well checks the daemon's health. It returns nil if the daemon is healthy.
	Well      func(ctx context.Context) error
	Transport http.RoundTripper // nil means http.DefaultTransport
	Logger    *slog.Logger
}

// Heartbeat sends pings.
type Heartbeat struct {
	o      Options
	client *http.Client

	mu sync.Mutex
	is State
}

// State is the state of the pings.
type State struct {
	To       string    // host that is pinged, without the secret parts of the URL; "" if pings are off
	LastPing time.Time // time of the last successful ping; zero until the first one
	Problem  string    // error of the last ping; "" if it succeeded
}

// New returns a heartbeat. Call Run to start it.
func New(o Options) *Heartbeat {
	client := &http.Client{Transport: o.Transport, Timeout: answersWithin,
		// Following a redirect would reveal the ping to another server, and its arrival would be
		// unknown.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &Heartbeat{o: o, client: client}
}

// State returns the state of the pings.
func (h *Heartbeat) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.is
}

// Run pings until ctx is done, starting immediately. The caller must first arm all triggers.
func (h *Heartbeat) Run(ctx context.Context) error {
	for {
		next := time.NewTimer(Every - rand.N(spread))
		h.beat(ctx, h.o.URL())

		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return nil
		}
	}
}

// beat sends one ping if an address is configured and the daemon is healthy.
func (h *Heartbeat) beat(ctx context.Context, to string) {
	if to == "" {
		h.mu.Lock()
		h.is = State{}
		h.mu.Unlock()
		return
	}

	checking, cancel := context.WithTimeout(ctx, wellWithin)
	err := h.o.Well(checking)
	cancel()
	if err != nil {
		err = fmt.Errorf("no ping is sent, for the daemon does not do its work: %w", err)
	} else {
		err = h.ping(ctx, to)
	}

	if ctx.Err() == nil { // during shutdown, errors are expected
		h.note(to, err)
	}
}

// ping sends one request to the monitor. Errors contain only the host, because the URL is a secret.
func (h *Heartbeat) ping(ctx context.Context, to string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
	if err != nil {
		return errors.New("the address cannot be used")
	}
	request.Header.Set("User-Agent", "rouse")

	response, err := h.client.Do(request)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return fmt.Errorf("%s cannot be reached: %w", request.URL.Host, err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer)) // so that the connection can be reused

	switch response.StatusCode / 100 {
	case 2:
		return nil
	case 3:
		return fmt.Errorf("%s answered %s: redirects are not followed; write the address that is meant", request.URL.Host, text.OneLine(response.Status))
	}
	return fmt.Errorf("%s answered %s", request.URL.Host, text.OneLine(response.Status))
}

// note records the result of a ping and logs a change.
func (h *Heartbeat) note(to string, err error) {
	h.mu.Lock()
	was := h.is
	h.is.To, h.is.Problem = host(to), ""
	if err != nil {
		h.is.Problem = err.Error()
	} else {
		h.is.LastPing = time.Now()
	}
	is := h.is
	h.mu.Unlock()

	switch {
	case err != nil && was.Problem == "":
		h.o.Logger.Warn("the heartbeat does not arrive; it is tried again each minute", "to", is.To, "problem", is.Problem)
	case err == nil && was.Problem != "":
		h.o.Logger.Info("the heartbeat arrives again", "to", is.To)
	case err == nil && was.LastPing.IsZero():
		h.o.Logger.Info("the heartbeat arrives", "to", is.To)
	}
}

// host returns the part of an address that may be shown.
func host(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}
