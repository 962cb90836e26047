// Package heartbeat pings an address each minute while the daemon does its work: a dead-man's switch. Whoever watches the
// address (healthchecks.io, Uptime Kuma, Cronitor, a monitor of one's own) tells the owner when the pings stop, whatever
// stopped them: a machine that is off, a network that is gone, a daemon that hangs or whose disk is full.
//
// A ping says nothing but that it came. Its address is a secret: whoever knows it could ping in the daemon's name.
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
	// Every is how far two pings are apart at most, while all is well.
	Every = time.Minute
	// spread is by how much one may come sooner, so that the pings of many machines do not come at the same time.
	spread = 5 * time.Second
	// wellWithin is how long the daemon may take to show that it does its work.
	wellWithin = 30 * time.Second
	// answersWithin is how long a ping may take.
	answersWithin = 10 * time.Second
	// maxAnswer is how much of an answer is read, in bytes.
	maxAnswer = 4 << 10
)

// Options are the parts.
type Options struct {
	URL       func() string                   // that is pinged, as the configuration in force has it; "": none is
	Well      func(ctx context.Context) error // why the daemon does not do its work, nil while it does
	Transport http.RoundTripper               // nil: the system's
	Logger    *slog.Logger
}

// Heartbeat sends the pings.
type Heartbeat struct {
	o      Options
	client *http.Client

	mu sync.Mutex
	is State
}

// State is how the pings are doing.
type State struct {
	To       string    // the server that is pinged, without what is secret of the address; "": none is
	LastPing time.Time // when one was last taken; zero: none was since the daemon started
	Problem  string    // why the last one was not sent, or not taken; "": it was
}

// New returns a heartbeat that does not run yet.
func New(o Options) *Heartbeat {
	client := &http.Client{Transport: o.Transport, Timeout: answersWithin,
		// A ping that was sent on would tell somebody else, and would not be known to have arrived.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &Heartbeat{o: o, client: client}
}

// State says how the pings are doing.
func (h *Heartbeat) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.is
}

// Run pings until ctx ends, the first time at once. It belongs where all triggers are armed.
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

// beat pings once, if there is somebody to ping and all is well.
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

	if ctx.Err() == nil { // else it only says that the daemon stops
		h.note(to, err)
	}
}

// ping asks the address, of which no error tells more than the host.
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
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer)) // so that the connection can be used again

	switch response.StatusCode / 100 {
	case 2:
		return nil
	case 3:
		return fmt.Errorf("%s answered %s: redirects are not followed; write the address that is meant", request.URL.Host, text.OneLine(response.Status))
	}
	return fmt.Errorf("%s answered %s", request.URL.Host, text.OneLine(response.Status))
}

// note remembers what became of a ping, and logs when that has changed.
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

// host is what may be shown of an address.
func host(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}
