package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"rouse/agentdb/ledger"
)

const (
	sendTimeout      = 10 * time.Second
	unavailablePause = time.Hour // between looks at a channel that cannot work here
	page             = 64
)

// pauses are those after each failed try; after the last there is none.
var pauses = [...]time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour}

// maxTries is how often a notice is sent before it is given up.
const maxTries = len(pauses) + 1

// Errors that callers tell apart.
var (
	// ErrUnavailable says that a channel cannot work on this machine now; its notices wait.
	ErrUnavailable = errors.New("cannot be reached here")

	errNoAnswer = fmt.Errorf("it did not answer within %s", sendTimeout)
)

// Options are the notifier's parts.
type Options struct {
	Ledger   *ledger.Ledger
	Channels map[string]Channel
	Logger   *slog.Logger
}

// Notifier delivers the outbox.
type Notifier struct {
	ledger    *ledger.Ledger
	log       *slog.Logger
	recovered chan struct{} // capacity 1: a channel may be back

	mu          sync.Mutex
	channels    map[string]Channel // never written to, but replaced
	unavailable map[string]bool    // channels that could not be reached when last tried
}

// New checks the options.
func New(o Options) (*Notifier, error) {
	if o.Ledger == nil {
		return nil, errors.New("notify: a ledger is needed")
	}

	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}

	n := &Notifier{ledger: o.Ledger, channels: o.Channels, log: o.Logger, recovered: make(chan struct{}, 1), unavailable: map[string]bool{}}
	n.wakeRetry() // the session may be another than that of the last process
	return n, nil
}

// SetChannels replaces the channels.
func (n *Notifier) SetChannels(channels map[string]Channel) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.channels = channels
	maps.DeleteFunc(n.unavailable, func(name string, _ bool) bool { return channels[name] == nil })
}

func (n *Notifier) current() map[string]Channel {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.channels
}

// recordReachable notes that a channel works, or that it cannot be reached. When it is back, what
// waits for it is tried again.
func (n *Notifier) recordReachable(channel string, works bool) {
	n.mu.Lock()
	back := works && n.unavailable[channel]
	n.unavailable[channel] = !works
	n.mu.Unlock()
	if back {
		n.wakeRetry()
	}
}

// wakeRetry has the notices tried again that wait for a channel that could not be reached.
func (n *Notifier) wakeRetry() {
	select {
	case n.recovered <- struct{}{}:
	default:
	}
}

// Run delivers until ctx ends.
func (n *Notifier) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()

	for {
		changed := n.ledger.Changed()
		next, err := n.deliver(ctx)
		if err != nil && ctx.Err() == nil {
			n.log.Error("the outbox could not be read; it is tried again", "error", err)
			next = time.Now().Add(time.Minute)
		}

		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}

		select {
		case <-ctx.Done():
			return nil
		case <-n.recovered:
			if err := n.retryUnavailable(ctx); err != nil && ctx.Err() == nil {
				n.log.Error("notices that wait could not be tried again", "error", err)
			}
		case <-changed:
		case <-timer.C:
		}
	}
}

// deliver sends what is due and says when the next is.
func (n *Notifier) deliver(ctx context.Context) (time.Time, error) {
	for ctx.Err() == nil {
		due, err := n.ledger.PendingNotices(ctx, time.Now(), page)
		if err != nil {
			return time.Time{}, err
		}
		if len(due) == 0 {
			break
		}
		if err := n.sendAll(ctx, due); err != nil {
			return time.Time{}, err
		}
	}
	return n.ledger.NextNotice(ctx, time.Now())
}

// retryUnavailable sends, before their time, the notices that wait for a channel that could not
// be reached.
func (n *Notifier) retryUnavailable(ctx context.Context) error {
	waiting, err := n.ledger.UndeliveredNotices(ctx, 10*page)
	if err != nil {
		return err
	}

	var again []ledger.Notice
	n.mu.Lock()

	for i := len(waiting) - 1; i >= 0; i-- { // the oldest first
		if w := waiting[i]; w.State == ledger.NoticePending && !n.unavailable[w.Channel] && strings.Contains(w.Error, ErrUnavailable.Error()) {
			again = append(again, w)
		}
	}

	n.mu.Unlock()
	return n.sendAll(ctx, again)
}

// sendAll tries notices, those of a channel in their order and beside those of the others: a
// channel that hangs holds up its own.
func (n *Notifier) sendAll(ctx context.Context, notices []ledger.Notice) error {
	byChannel := map[string][]ledger.Notice{}
	for _, notice := range notices {
		byChannel[notice.Channel] = append(byChannel[notice.Channel], notice)
	}

	var group sync.WaitGroup
	errs := make(chan error, len(byChannel))
	for _, own := range byChannel {
		group.Go(func() {
			for _, notice := range own {
				sent, err := n.sendOne(ctx, notice)
				if err != nil {
					errs <- err
				}
				if err != nil || errors.Is(sent, errNoAnswer) {
					return // the rest is still due
				}
			}
		})
	}

	group.Wait()
	close(errs)
	return <-errs
}

// sendOne tries one notice and records how it went; sent is what came of it.
func (n *Notifier) sendOne(ctx context.Context, notice ledger.Notice) (sent, err error) {
	if channel, ok := n.current()[notice.Channel]; ok {
		sent = send(ctx, channel, notice)
	} else {
		sent = fmt.Errorf("there is no channel %q in the configuration any more", notice.Channel)
	}

	if stopped := ctx.Err(); stopped != nil {
		return sent, stopped // in the middle: it is tried at the next start
	}

	waited := strings.Contains(notice.Error, ErrUnavailable.Error())
	notice.Error = ""
	switch {
	case sent == nil:
		notice.State = ledger.NoticeDelivered
		notice.Tries++
		defer n.recordReachable(notice.Channel, true)
	case errors.Is(sent, ErrUnavailable):
		notice.Error, notice.NextAt = sent.Error(), time.Now().Add(unavailablePause)
		n.recordReachable(notice.Channel, false)
		if !waited {
			// OSA-80: without a notifier a notice is logged; it fails nothing, and waits.
			n.log.Warn("a notice waits in the outbox", "job", notice.Job, "run", notice.Run, "channel", notice.Channel, "title", notice.Title, "body", notice.Body, "reason", sent)
		}
	default:
		notice.Tries++
		notice.Error = sent.Error()
		if notice.Tries >= maxTries {
			notice.State = ledger.NoticeFailed
		} else {
			notice.NextAt = time.Now().Add(pauses[notice.Tries-1])
		}

		n.log.Warn("a notice could not be delivered", "job", notice.Job, "run", notice.Run, "channel", notice.Channel, "title", notice.Title,
			"tries", notice.Tries, "given_up", notice.State == ledger.NoticeFailed, "error", sent)
	}

	return sent, n.ledger.UpdateNotice(ctx, notice)
}

// send bounds a channel in time: one that hangs is left behind.
func send(ctx context.Context, c Channel, notice ledger.Notice) error {
	return withTimeout(ctx, func(ctx context.Context) error { return c.Send(ctx, notice) })
}

func withTimeout(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()

	done := make(chan error, 1)
	go func() { done <- do(ctx) }()

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errNoAnswer
	}
}

// Send sends one text at once, past the outbox. When it arrives, what waits for the same
// channel is tried again.
func (n *Notifier) Send(ctx context.Context, channel, title, body string) error {
	c, ok := n.current()[channel]
	if !ok {
		return fmt.Errorf("there is no channel %q", channel)
	}
	if err := send(ctx, c, ledger.Notice{Channel: channel, Title: title, Body: body}); err != nil {
		return err
	}

	n.recordReachable(channel, true)
	return nil
}

// Check says of each channel why nothing could be sent, nil when it could.
func (n *Notifier) Check(ctx context.Context) map[string]error {
	out := map[string]error{}
	for name, c := range n.current() {
		out[name] = withTimeout(ctx, c.Check)
	}
	return out
}
