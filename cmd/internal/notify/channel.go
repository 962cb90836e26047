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

// ErrNotAsked says that whether a channel works can only be found by sending something.
var ErrNotAsked = errors.New("whether it works shows with the next notice")

// Channel is a way to reach the owner.
type Channel interface {
	// Send hands a message over; it returns once the channel has it, or cannot have it.
	Send(ctx context.Context, m Message) (Receipt, error)
	// Check says why nothing can be sent now, nil if it can, and ErrNotAsked where that cannot be known.
	Check(ctx context.Context) error
}

// Message is a notice on its way.
type Message struct {
	ledger.Notice
	Link string // the page that it is about, "" where there is none
}

// newMessage is a notice as it is sent. A text that begins with its title, as models like to write them, says it once.
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

// text is what people read below the title.
func (m Message) text() string { return strings.TrimSpace(m.Body + "\n" + m.Link) }

// Receipt is what a channel says of a message that it took.
type Receipt struct {
	Proven bool   // the other end said that it has it
	Answer string // its words, one line, "" for none
}

// Settings are a channel as it is configured.
type Settings struct {
	Kind   string
	URL    string // of the kinds url and webhook; it may hold keys
	Secret string // with which a webhook is signed
}

// Rules say when a channel is used, and what is when it cannot be.
type Rules struct {
	Quiet    schedule.Quiet  // hours in which its notices wait
	Zone     *time.Location  // of these hours, and of the digest; nil: of this machine
	Fallback string          // the channel that is told of what this one does not deliver, "" for none
	Digest   *schedule.Daily // when a summary is sent; nil: never
	Session  *Session        // required for summaries; nil if the channel needs no session
}

// zone is where the clocks are by which hours and times of day are meant.
func (r Rules) zone() *time.Location {
	if r.Zone == nil {
		return time.Local
	}
	return r.Zone
}

// quietUntil is when the quiet hours end that hold now, zero if none do.
func (r Rules) quietUntil(now time.Time) time.Time {
	if end := r.Quiet.End(now, r.zone()); r.Quiet.From != r.Quiet.To && end.After(now) {
		return end
	}
	return time.Time{}
}

// kinds has a constructor for each kind of channel that a configuration can name (`notifications: kind:`).
// A new kind is a row here, a file beside this one, and a value of the key's enum in config.
var kinds = map[string]func(Settings) (Channel, error){
	"desktop": func(Settings) (Channel, error) { return Desktop(), nil },
	"url":     newAddress,
	"webhook": newWebhook,
}

// Open makes a channel. An error tells nothing of its keys.
func Open(s Settings) (Channel, error) {
	open, ok := kinds[s.Kind]
	if !ok {
		return nil, fmt.Errorf("there is no notification channel of kind %q; there is %s", s.Kind, text.List(slices.Sorted(maps.Keys(kinds)), len(kinds)))
	}
	return open(s)
}

// unusable is a channel that cannot be used as it is configured.
type unusable string

// Unusable is a channel of which is only known why it cannot be used: what is sent on it waits.
func Unusable(why string) Channel { return unusable(why) }

// Send implements Channel.
func (u unusable) Send(context.Context, Message) (Receipt, error) {
	return Receipt{}, fmt.Errorf("%w: %s", ErrUnavailable, string(u))
}

// Check implements Channel.
func (u unusable) Check(context.Context) error { return errors.New(string(u)) }
