package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
)

const (
	sendTimeout      = 10 * time.Second
	unavailablePause = time.Hour // between tries at a channel that cannot work here
	pageSize         = 64        // notices of a channel read at once
	maxSleep         = 30 * time.Second
	lookAgain        = time.Second // between looks at the outbox while channels are at work
	// maxWait is how long a notice waits for a channel that cannot work here, such as a missing desktop.
	maxWait = 7 * 24 * time.Hour
)

// retryPauses are the pauses after each failed try but the last.
var retryPauses = [...]time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour}

const (
	// maxTries is how often a notice is sent before it is given up.
	maxTries = len(retryPauses) + 1
	// triesAlone is after how many of them the channel's fallback is told.
	triesAlone = 3
)

// QuietHours is how the reason begins for which a notice waits that could be sent.
const QuietHours = "it waits for the end of quiet hours, "

// Errors that callers distinguish.
var (
	// ErrUnavailable says that a channel cannot work on this machine now; its notices wait.
	ErrUnavailable = errors.New("cannot be reached here")

	errNoAnswer = fmt.Errorf("it did not answer within %s", sendTimeout)
)

// Options are the notifier's parts.
type Options struct {
	Ledger   *ledger.Ledger
	Channels map[string]Channel
	Rules    map[string]Rules // of channels that have some
	// Link is the address of the page that a notice is about, "" where there is none; nil: nowhere.
	Link   func(context.Context, ledger.Notice) string
	Logger *slog.Logger
	Now    func() time.Time // the clock by which the outbox is kept; nil means the system's
}

// Notifier delivers the outbox.
type Notifier struct {
	ledger    *ledger.Ledger
	log       *slog.Logger
	now       func() time.Time
	link      func(context.Context, ledger.Notice) string
	recovered chan struct{} // capacity 1: a channel may be back
	ended     chan struct{} // capacity 1: a channel has sent what it was given
	senders   sync.WaitGroup

	mu          sync.Mutex
	channels    map[string]Channel // replaced as a whole, never written to
	rules       map[string]Rules   // likewise
	unavailable map[string]bool    // channels that could not be reached when last tried
	busy        map[string]bool    // channels that are sending
	nextDigest  time.Time          // zero: not known
	// faults are the causes that were logged of each channel since it last worked, without their long numbers.
	faults map[string]map[string]bool
}

// New returns a notifier that does not run yet.
func New(o Options) *Notifier {
	if o.Link == nil {
		o.Link = func(context.Context, ledger.Notice) string { return "" }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	n := &Notifier{ledger: o.Ledger, now: o.Now, channels: o.Channels, rules: o.Rules, log: o.Logger, link: o.Link, recovered: make(chan struct{}, 1), ended: make(chan struct{}, 1), unavailable: map[string]bool{}, busy: map[string]bool{}, faults: map[string]map[string]bool{}}
	n.wakeRetry() // a channel that was unavailable to the last process may be there for this one
	return n
}

// SetChannels replaces the channels and their rules.
func (n *Notifier) SetChannels(channels map[string]Channel, rules map[string]Rules) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.channels, n.rules, n.nextDigest = channels, rules, time.Time{}
	maps.DeleteFunc(n.unavailable, func(name string, _ bool) bool { return channels[name] == nil })
	clear(n.faults) // another configuration may have another fault with the same text
	n.wakeRetry()   // so that Run learns of the new times
}

// channel returns a channel and its rules.
func (n *Notifier) channel(name string) (c Channel, rules Rules, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, ok := n.channels[name]
	if !ok {
		err = fmt.Errorf("there is no channel %q in the configuration", name)
	}
	return c, n.rules[name], err
}

// recordReachable records whether a channel works. If it works again, its notices are tried again.
func (n *Notifier) recordReachable(channel string, works bool) {
	n.mu.Lock()
	back := works && n.unavailable[channel]
	n.unavailable[channel] = !works
	n.mu.Unlock()
	if back {
		n.wakeRetry()
	}
}

// Faults of no channel, whose names no configuration can give to one.
const (
	faultDigest = "\x00digest"
	faultOutbox = "\x00outbox"
)

// maxCauses is how many causes of a channel are logged until it works again: an error can hold a number that is never the same.
const maxCauses = 10

// longNumber matches the part of an error that differs from one try to the next: a port of this machine, a request id, a timestamp.
var longNumber = regexp.MustCompile(`[0-9]{5,}|[0-9a-fA-F-]{16,}`)

// isNewFault reports whether a cause was not logged yet for what fails: a channel, or one of the other faults.
func (n *Notifier) isNewFault(what string, err error) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	known, cause := n.faults[what], longNumber.ReplaceAllString(err.Error(), "#")
	if known[cause] || len(known) >= maxCauses {
		return false
	}
	if known == nil {
		known = map[string]bool{}
		n.faults[what] = known
	}
	known[cause] = true
	return true
}

// faultLevel returns the level at which a fault is logged: a warning once for each cause, until the channel works again.
func (n *Notifier) faultLevel(what string, err error, again slog.Level) slog.Level {
	if n.isNewFault(what, err) {
		return slog.LevelWarn
	}
	return again
}

// endFaults forgets what was logged of a channel that works, and reports whether anything was.
func (n *Notifier) endFaults(what string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	had := len(n.faults[what]) > 0
	delete(n.faults, what)
	return had
}

// wakeRetry has Run try the notices again that wait for a channel that could not be reached.
func (n *Notifier) wakeRetry() { wake(n.recovered) }

// wake sends to a channel of capacity 1, unless a signal is pending.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run delivers until ctx ends.
func (n *Notifier) Run(ctx context.Context) error {
	defer n.senders.Wait()
	for ctx.Err() == nil {
		changed := n.ledger.Changed() // before reading, so that no new notice is missed
		digest := n.try(ctx, faultDigest, "a digest could not be made; it is tried again", n.appendDigests)
		next := n.try(ctx, faultOutbox, "the outbox could not be read; it is tried again", n.deliver)
		n.wait(ctx, changed, domain.Earlier(next, digest))
	}
	return nil
}

// try calls a function that returns the time of its next call. An error is logged once, and the next call is in a minute.
func (n *Notifier) try(ctx context.Context, what, failure string, call func(context.Context) (time.Time, error)) time.Time {
	next, err := call(ctx)
	switch {
	case err == nil:
		n.endFaults(what)
	case ctx.Err() == nil:
		if n.isNewFault(what, err) {
			n.log.Error(failure, "error", err)
		}
		next = n.now().Add(time.Minute)
	}
	return next
}

// wait ends when something may be due: the ledger has changed, a channel is back or has sent what it was given, or it is next, zero for
// never. It looks at the clock now and then, for timers stand still while a machine sleeps.
func (n *Notifier) wait(ctx context.Context, changed <-chan struct{}, next time.Time) {
	timer := time.NewTimer(maxSleep)
	defer timer.Stop()

	if len(n.sending()) > 0 { // each notice that is sent changes the ledger, and is no reason to read the outbox again
		timer.Reset(lookAgain)
		select {
		case <-ctx.Done():
			return
		case <-n.ended:
			return
		case <-timer.C:
		}
	}

	for {
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(min(next.Sub(n.now()), maxSleep))
		}

		select {
		case <-ctx.Done():
			return
		case <-n.recovered:
			if err := n.retryUnavailable(ctx); err != nil && ctx.Err() == nil {
				n.log.Error("notices that wait could not be tried again", "error", err)
			}
			return
		case <-n.ended:
			return
		case <-changed:
			return
		case <-timer.C:
			if !n.now().Before(next) {
				return
			}
		}
	}
}

// deliver has the channels send what is due, and returns when the next notice is due.
func (n *Notifier) deliver(ctx context.Context) (time.Time, error) {
	// Before reading: what a channel has sent since then is among what was read.
	busy := n.sending()
	due, err := n.ledger.PendingNotices(ctx, n.now(), pageSize)
	if err != nil {
		return time.Time{}, err
	}
	n.sendAll(ctx, due, busy)
	return n.ledger.NextNotice(ctx, n.now())
}

// retryUnavailable makes the notices due that wait for a channel that could not be reached.
func (n *Notifier) retryUnavailable(ctx context.Context) error {
	waiting, err := n.ledger.UndeliveredNotices(ctx, 10*pageSize)
	if err != nil {
		return err
	}

	n.mu.Lock()
	unavailable := maps.Clone(n.unavailable)
	n.mu.Unlock()
	channels := map[string]bool{}
	for _, w := range waiting {
		if w.State == ledger.NoticePending && strings.Contains(w.Error, ErrUnavailable.Error()) && !unavailable[w.Channel] {
			channels[w.Channel] = true
		}
	}
	for channel := range channels {
		if err := n.ledger.HurryNotices(ctx, channel, ErrUnavailable.Error()); err != nil {
			return err
		}
	}
	return nil
}

// sendAll has each channel send its notices in order, beside the others and without waiting for any: one that hangs delays only its own.
// What is due for one of the busy channels, which were sending when the notices were read, stays due. Only one goroutine may call it.
func (n *Notifier) sendAll(ctx context.Context, notices []ledger.Notice, busy map[string]bool) {
	byChannel := map[string][]ledger.Notice{}
	for _, notice := range notices {
		if !busy[notice.Channel] {
			byChannel[notice.Channel] = append(byChannel[notice.Channel], notice)
		}
	}

	for channel, queue := range byChannel {
		n.begin(channel)
		n.senders.Go(func() {
			defer n.end(channel)
			n.sendQueue(ctx, queue)
		})
	}
}

// sendQueue sends the notices of one channel, oldest first.
func (n *Notifier) sendQueue(ctx context.Context, queue []ledger.Notice) {
	for _, notice := range queue {
		err := n.sendOne(ctx, notice)
		if err == nil {
			continue
		}

		if ctx.Err() == nil {
			n.log.Error("what became of a notice is not on record; its channel is tried again in a minute", "channel", notice.Channel, "error", err)
		}
		select { // what cannot be recorded would be sent over and over
		case <-ctx.Done():
		case <-time.After(time.Minute):
		}
		return
	}
}

// sending are the channels that are at work: each does one thing at a time.
func (n *Notifier) sending() map[string]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.busy)
}

func (n *Notifier) begin(channel string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy[channel] = true
}

func (n *Notifier) end(channel string) {
	n.mu.Lock()
	delete(n.busy, channel)
	n.mu.Unlock()
	wake(n.ended)
}

// sendOne tries one notice and records the result. Its error is that of the ledger.
func (n *Notifier) sendOne(ctx context.Context, notice ledger.Notice) error {
	channel, rules, sendErr := n.channel(notice.Channel)
	if until := rules.quietUntil(n.now()); !until.IsZero() {
		notice.Error, notice.NextAt = QuietHours+rules.Quiet.String(), until
		return n.ledger.UpdateNotice(ctx, notice)
	}

	var receipt Receipt
	if sendErr == nil {
		receipt, sendErr = send(ctx, channel, newMessage(notice, n.link(ctx, notice)))
	}
	if stopped := ctx.Err(); stopped != nil {
		return stopped // it may or may not be out; it is tried again at the next start
	}

	// The outbox has no state of its own for this, so the error says it: log only the first time.
	waited := strings.Contains(notice.Error, ErrUnavailable.Error())
	notice.Error = ""
	switch {
	case sendErr == nil:
		notice.State, notice.Answer = ledger.NoticeUnverified, receipt.Answer
		if receipt.Proven {
			notice.State = ledger.NoticeDelivered
		}
		notice.Tries++
		if n.endFaults(notice.Channel) {
			n.log.Info("a channel delivers again", "channel", notice.Channel)
		}
		defer n.recordReachable(notice.Channel, true) // once the delivery is on record
	case errors.Is(sendErr, ErrUnavailable):
		// Not a try that counts.
		notice.Error, notice.NextAt = sendErr.Error(), n.now().Add(unavailablePause)
		if n.now().Sub(notice.CreatedAt) >= maxWait {
			notice.State, notice.NextAt = ledger.NoticeFailed, n.now()
		}
		n.recordReachable(notice.Channel, false)
		if !waited {
			// OSA-80: without a notifier a notice is logged; it fails nothing, and waits.
			n.log.Log(ctx, n.faultLevel(notice.Channel, sendErr, slog.LevelInfo), "a notice waits in the outbox", "job", notice.Job, "run", notice.Run, "channel", notice.Channel, "title", notice.Title, "body", notice.Body, "reason", sendErr)
		}
	default:
		notice.Tries++
		notice.Error = sendErr.Error()
		if notice.Tries >= maxTries {
			notice.State, notice.NextAt = ledger.NoticeFailed, n.now()
		} else {
			notice.NextAt = n.now().Add(retryPauses[notice.Tries-1])
		}

		// The inbox, the page of the channel and rouse doctor tell of each notice; the log tells of the channel.
		n.log.Log(ctx, n.faultLevel(notice.Channel, sendErr, slog.LevelDebug), "a notice could not be delivered", "job", notice.Job, "run", notice.Run, "channel", notice.Channel, "title", notice.Title,
			"tries", notice.Tries, "given_up", notice.State == ledger.NoticeFailed, "error", sendErr)
	}

	if sendErr != nil && rules.Fallback != "" && (errors.Is(sendErr, ErrUnavailable) || notice.Tries >= triesAlone) {
		if err := n.fallBack(ctx, notice, rules.Fallback); err != nil {
			return err
		}
	}
	return n.ledger.UpdateNotice(ctx, notice)
}

// fallBack tells another channel of a notice, once, however often its own is tried. What a channel is told in place of
// another one goes no further: two that are down would hand it to each other.
func (n *Notifier) fallBack(ctx context.Context, notice ledger.Notice, to string) error {
	if strings.HasPrefix(notice.Key, ledger.FallbackKey) {
		return nil
	}

	other := notice
	other.ID, other.Channel, other.Key = 0, to, ledger.FallbackKey+strconv.FormatInt(notice.ID, 10)
	other.Body = strings.TrimSpace(notice.Body + "\n" + fmt.Sprintf("(told here, for the channel %s did not take it: %s)", notice.Channel, notice.Error))
	return n.ledger.AppendNotices(ctx, other)
}

// send limits the time of a channel: one that ignores its context is abandoned.
func send(ctx context.Context, c Channel, m Message) (Receipt, error) {
	// Through a channel, for an abandoned one may write its receipt at any time.
	receipts := make(chan Receipt, 1)
	err := withTimeout(ctx, func(ctx context.Context) error {
		receipt, err := c.Send(ctx, m)
		receipts <- receipt
		return err
	})
	if err != nil {
		return Receipt{}, err
	}
	return <-receipts, nil
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

// Send sends a text without the outbox. If that works, waiting notices of the channel are tried again.
func (n *Notifier) Send(ctx context.Context, channel, title, body string) error {
	c, _, err := n.channel(channel)
	if err != nil {
		return err
	}
	if _, err := send(ctx, c, newMessage(ledger.Notice{Channel: channel, Title: title, Body: body}, "")); err != nil {
		return err
	}

	n.recordReachable(channel, true)
	return nil
}

// CanDeliver returns nil if a channel can deliver now, and ErrNotAsked if that is unknown until the next notice.
func (n *Notifier) CanDeliver(ctx context.Context, channel string) error {
	c, _, err := n.channel(channel)
	if err != nil {
		return err
	}
	err = withTimeout(ctx, c.Check)
	if !errors.Is(err, ErrNotAsked) {
		return err
	}
	last, found, failed := n.ledger.LastNotice(ctx, channel)
	switch {
	case failed != nil || !found:
		return err
	case last.State == ledger.NoticeDelivered:
		return nil
	case last.Error != "" && !strings.HasPrefix(last.Error, QuietHours):
		return fmt.Errorf("the last notice was not delivered: %s", last.Error)
	}
	return err
}

// Check says for each channel why nothing can be sent now, nil if it can, and ErrNotAsked where nobody knows.
func (n *Notifier) Check(ctx context.Context) map[string]error {
	n.mu.Lock()
	channels := n.channels // it is never written to
	n.mu.Unlock()
	var mu sync.Mutex
	var all sync.WaitGroup
	out := make(map[string]error, len(channels))
	for name, c := range channels { // at once: one that hangs takes its whole time
		all.Go(func() {
			err := withTimeout(ctx, c.Check)
			mu.Lock()
			defer mu.Unlock()
			out[name] = err
		})
	}
	all.Wait()
	return out
}
