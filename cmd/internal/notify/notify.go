package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"rouse/agentdb/ledger"
)

const (
	maxTries    = 8
	sendTimeout = 10 * time.Second
	awayPause   = time.Hour // between looks at a channel that cannot work here
	page        = 64
)

// ErrAway says that a channel cannot work on this machine now; its notices wait.
var ErrAway = errors.New("cannot be reached here")

// Channel is a way to reach the owner.
type Channel interface {
	Send(ctx context.Context, n ledger.Notice) error
	// Check says why nothing could be sent, nil when it could.
	Check(ctx context.Context) error
}

// Options are the notifier's parts.
type Options struct {
	Ledger   *ledger.Ledger
	Channels map[string]Channel
	Logger   *slog.Logger
}

// Notifier delivers the outbox.
type Notifier struct {
	ledger   *ledger.Ledger
	channels map[string]Channel
	log      *slog.Logger
	away     map[string]bool // channels of which it was said that they cannot work here
}

// New checks the options.
func New(o Options) (*Notifier, error) {
	if o.Ledger == nil {
		return nil, errors.New("notify: a ledger is needed")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Notifier{o.Ledger, o.Channels, o.Logger, map[string]bool{}}, nil
}

// Run delivers until ctx ends. Notices that had to wait for a desktop are tried anew first.
func (n *Notifier) Run(ctx context.Context) error {
	for {
		changed := n.ledger.Changed()
		next, err := n.deliver(ctx)
		if err != nil && ctx.Err() == nil {
			n.log.Error("the outbox could not be read; it is tried again", "error", err)
			next = time.Now().Add(time.Minute)
		}
		var timer <-chan time.Time
		var t *time.Timer
		if !next.IsZero() {
			t = time.NewTimer(time.Until(next))
			timer = t.C
		}
		over := false
		select {
		case <-ctx.Done():
			over = true
		case <-changed:
		case <-timer:
		}
		if t != nil {
			t.Stop()
		}
		if over {
			return nil
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
		for _, notice := range due {
			if ctx.Err() != nil {
				break
			}
			if err := n.one(ctx, notice); err != nil {
				return time.Time{}, err
			}
		}
		if len(due) < page {
			break
		}
	}
	return n.ledger.NextNotice(ctx, time.Now())
}

// one tries one notice and records how it went.
func (n *Notifier) one(ctx context.Context, notice ledger.Notice) error {
	channel, ok := n.channels[notice.Channel]
	err := fmt.Errorf("there is no channel %q in the configuration any more", notice.Channel)
	if ok {
		err = send(ctx, channel, notice)
	}
	if stopped := ctx.Err(); stopped != nil {
		return stopped // in the middle: it is tried at the next start
	}
	notice.Error = ""
	switch {
	case err == nil:
		notice.State = ledger.NoticeDelivered
		notice.Tries++
		n.away[notice.Channel] = false
	case errors.Is(err, ErrAway):
		notice.Error, notice.NextAt = err.Error(), time.Now().Add(awayPause)
		if !n.away[notice.Channel] {
			n.away[notice.Channel] = true
			n.log.Warn("notices wait in the outbox", "channel", notice.Channel, "reason", err)
		}
		n.log.Info("notice", "job", notice.Job, "run", notice.Run, "title", notice.Title, "body", notice.Body)
	default:
		notice.Tries++
		notice.Error, notice.NextAt = err.Error(), time.Now().Add(pauseAfter(notice.Tries))
		if notice.Tries >= maxTries {
			notice.State = ledger.NoticeFailed
		}
		n.log.Warn("a notice could not be delivered", "channel", notice.Channel, "title", notice.Title, "tries", notice.Tries, "given_up", notice.State == ledger.NoticeFailed, "error", err)
	}
	return n.ledger.MarkNotice(ctx, notice)
}

// pauseAfter grows from a minute to four hours.
func pauseAfter(tries int) time.Duration {
	return min(time.Minute<<(2*(tries-1)), 4*time.Hour)
}

// send bounds a channel in time: one that hangs is left behind.
func send(ctx context.Context, c Channel, notice ledger.Notice) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Send(ctx, notice) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("it did not answer within %s", sendTimeout)
	}
}

// Send sends one text at once, past the outbox.
func (n *Notifier) Send(ctx context.Context, channel, title, body string) error {
	c, ok := n.channels[channel]
	if !ok {
		return fmt.Errorf("there is no channel %q", channel)
	}
	return send(ctx, c, ledger.Notice{Channel: channel, Title: title, Body: body})
}

// Check says of each channel why nothing could be sent, nil when it could.
func (n *Notifier) Check(ctx context.Context) map[string]error {
	out := map[string]error{}
	for name, c := range n.channels {
		out[name] = c.Check(ctx)
	}
	return out
}
