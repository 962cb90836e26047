package notify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"rouse/internal/ledger"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

// ErrNotAsked is returned by Channel.Check if only sending a message can show whether the channel
// works.
var ErrNotAsked = errors.New("whether it works shows with the next notice")

// Channel is a way to reach the owner.
type Channel interface {
	// Send sends a message. It returns when the channel has accepted the message or cannot accept
	// it.
	Send(ctx context.Context, m Message) (Receipt, error)
	// Check returns nil if the channel can send now. It returns ErrNotAsked if that cannot be
	// determined without sending.
	Check(ctx context.Context) error
}

// Message is a notice to be sent.
type Message struct {
	ledger.Notice
	Link string // page the notice is about; optional
}

// newMessage returns the message for a notice. If the body repeats the title in its first line, as
// models often do, that line is removed.
func newMessage(n ledger.Notice, link string) Message {
	first, rest, _ := strings.Cut(n.Body, "\n")
	said := text.Collapse(n.Title)
	for _, title := range []string{said, strings.TrimPrefix(said, n.Agent+": ")} {
		if title != "" && strings.EqualFold(strings.TrimRight(text.Collapse(first), ".:"), strings.TrimRight(title, ".:")) {
			n.Body = strings.TrimSpace(rest)
			break
		}
	}
	return Message{n, link}
}

// text returns the text below the title: the body and the link.
func (m Message) text() string { return strings.TrimSpace(m.Body + "\n" + m.Link) }

// Receipt is a channel's answer to an accepted message.
type Receipt struct {
	Proven bool   // the receiving server confirmed the message
	Answer string // response text on one line; optional
}

// Settings holds the configuration of a channel.
type Settings struct {
	Kind   string
	URL    string // for the kinds url and webhook; may contain keys
	Secret string // signing key of a webhook
}

// Rules holds the delivery rules of a channel.
type Rules struct {
	Quiet    schedule.Quiet  // hours during which notices are held back
	Zone     *time.Location  // time zone of Quiet and Digest; nil means local time
	Fallback string          // channel that gets notices this channel cannot deliver; optional
	Digest   *schedule.Daily // time of the daily summary; nil means no summary
	Session  *Session        // required for summaries; nil if the channel needs no session
}

// zone returns the time zone of the quiet hours and the digest.
func (r Rules) zone() *time.Location {
	if r.Zone == nil {
		return time.Local
	}
	return r.Zone
}

// quietUntil returns the end of the current quiet hours, or the zero time if there are none now.
func (r Rules) quietUntil(now time.Time) time.Time {
	if end := r.Quiet.End(now, r.zone()); r.Quiet.From != r.Quiet.To && end.After(now) {
		return end
	}
	return time.Time{}
}

// kinds maps each channel kind of the configuration (`notifications: kind:`) to its constructor. A
// new kind needs an entry here, its own file, and a value in the enum of the configuration key.
var kinds = map[string]func(Settings) (Channel, error){
	"desktop": func(Settings) (Channel, error) { return Desktop(), nil },
	"url":     newAddress,
	"webhook": newWebhook,
}

// Open returns the channel for the given settings. Errors do not contain keys.
func Open(s Settings) (Channel, error) {
	open, ok := kinds[s.Kind]
	if !ok {
		return nil, fmt.Errorf("there is no notification channel of kind %q; there is %s", s.Kind, text.List(slices.Sorted(maps.Keys(kinds)), len(kinds)))
	}
	return open(s)
}

// unusable is a Channel that cannot be used as configured. Its value is the reason.
type unusable string

// Unusable returns a channel that fails every message with ErrUnavailable and the given reason, so
// that its notices wait.
func Unusable(why string) Channel { return unusable(why) }

// Send implements Channel.
func (u unusable) Send(context.Context, Message) (Receipt, error) {
	return Receipt{}, fmt.Errorf("%w: %s", ErrUnavailable, string(u))
}

// Check implements Channel.
func (u unusable) Check(context.Context) error { return errors.New(string(u)) }
