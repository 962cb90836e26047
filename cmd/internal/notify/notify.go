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
	"rouse/internal/ledger/outbox"
)

const (
	sendTimeout      = 10 * time.Second
	unavailablePause = time.Hour // between attempts on a channel that cannot work here
	pageSize         = 64        // notices per channel and query
	maxSleep         = 30 * time.Second
	lookAgain        = time.Second // between reads of the outbox while channels are sending
	// maxWait is how long a notice waits for a channel that cannot work here, for example because
	// there is no desktop.
	maxWait = 7 * 24 * time.Hour
)

// retryPauses holds the delay after each failed attempt except the last.
var retryPauses = [...]time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour}

const (
	// maxTries is the maximum number of attempts per notice.
	maxTries = len(retryPauses) + 1
	// triesAlone is the number of failed attempts after which the fallback channel gets the notice.
	triesAlone = 3
)

// QuietHours is the prefix of the error of a notice that is held back during quiet hours.
const QuietHours = "it waits for the end of quiet hours, "

var (
	// ErrUnavailable is returned if a channel cannot work on this machine now. Its notices wait.
	ErrUnavailable = errors.New("cannot be reached here")

	errNoAnswer = fmt.Errorf("it did not answer within %s", sendTimeout)
)

// Options holds the settings of a Notifier.
type Options struct {
	Ledger   *ledger.Ledger
	Channels map[string]Channel
	Rules    map[string]Rules // rules by channel; optional
	// Link returns the address of the page a notice is about, or "" if there is none. Optional.
	Link   func(context.Context, ledger.Notice) string
	Logger *slog.Logger
	Now    func() time.Time // clock; nil means time.Now
}

// Notifier delivers the notices in the outbox.
type Notifier struct {
	ledger    *ledger.Ledger
	log       *slog.Logger
	now       func() time.Time
	link      func(context.Context, ledger.Notice) string
	recovered chan struct{} // capacity 1: a channel may be reachable again
	ended     chan struct{} // capacity 1: a channel has finished its queue
	senders   sync.WaitGroup

	mu          sync.Mutex
	channels    map[string]Channel // replaced as a whole, never modified
	rules       map[string]Rules   // replaced as a whole, never modified
	unavailable map[string]bool    // channels that could not be reached at the last attempt
	busy        map[string]bool    // channels that are sending
	nextDigest  time.Time          // zero if unknown
	// faults holds the errors logged per channel since the channel last worked, with long numbers
	// removed.
	faults map[string]map[string]bool
}

// New returns a notifier. Call Run to start it.
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
	n.wakeRetry() // a channel that was unavailable to the previous process may work now
	return n
}

// SetChannels replaces the channels and their rules.
func (n *Notifier) SetChannels(channels map[string]Channel, rules map[string]Rules) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.channels, n.rules, n.nextDigest = channels, rules, time.Time{}
	maps.DeleteFunc(n.unavailable, func(name string, _ bool) bool { return channels[name] == nil })
	clear(n.faults) // the new configuration can fail with the same text for another reason
	n.wakeRetry()   // Run must compute new wake-up times
}

// channel returns a channel and its rules, or an error if the channel is not configured.
func (n *Notifier) channel(name string) (c Channel, rules Rules, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, ok := n.channels[name]
	if !ok {
		err = fmt.Errorf("there is no channel %q in the configuration", name)
	}
	return c, n.rules[name], err
}

// recordReachable records whether a channel works. If it works again, its waiting notices are
// retried.
func (n *Notifier) recordReachable(channel string, works bool) {
	n.mu.Lock()
	back := works && n.unavailable[channel]
	n.unavailable[channel] = !works
	n.mu.Unlock()
	if back {
		n.wakeRetry()
	}
}

// Keys of faults that do not belong to a channel. A configured channel cannot have such a name.
const (
	faultDigest = "\x00digest"
	faultOutbox = "\x00outbox"
)

// maxCauses limits the number of errors logged per channel until it works again. Errors can contain
// a number that changes every time.
const maxCauses = 10

// longNumber matches the parts of an error that change between attempts: ports, request IDs and
// timestamps.
var longNumber = regexp.MustCompile(`[0-9]{5,}|[0-9a-fA-F-]{16,}`)

// isNewFault reports whether an error has not been logged yet for a channel or other fault key.
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

// faultLevel returns the level for logging an error: a warning for a new error, and the level again
// for a repeated one.
func (n *Notifier) faultLevel(what string, err error, again slog.Level) slog.Level {
	if n.isNewFault(what, err) {
		return slog.LevelWarn
	}
	return again
}

// endFaults forgets the logged errors of a channel that works. It reports whether there were any.
func (n *Notifier) endFaults(what string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	had := len(n.faults[what]) > 0
	delete(n.faults, what)
	return had
}

// wakeRetry makes Run retry the notices that wait for an unreachable channel.
func (n *Notifier) wakeRetry() { wake(n.recovered) }

// wake sends to a channel of capacity 1 unless a signal is already pending.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run delivers notices until ctx is done.
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

// try calls a function that returns the time of its next call. If the function fails, try logs a
// new error once and returns a time one minute ahead.
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

// wait waits until the ledger changes, a channel becomes reachable or finishes its queue, or next
// comes. A zero next means never. It checks the clock regularly because timers stop while a machine
// sleeps.
func (n *Notifier) wait(ctx context.Context, changed <-chan struct{}, next time.Time) {
	timer := time.NewTimer(maxSleep)
	defer timer.Stop()

	// Each sent notice changes the ledger. Do not read the outbox again for that.
	if len(n.sending()) > 0 {
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

// deliver passes the due notices to their channels and returns the time of the next notice.
func (n *Notifier) deliver(ctx context.Context) (time.Time, error) {
	// Get the busy channels before reading: the outbox then reflects every message they have sent.
	busy := n.sending()
	due, err := n.ledger.Outbox.Pending(ctx, n.now(), pageSize)
	if err != nil {
		return time.Time{}, err
	}
	n.sendAll(ctx, due, busy)
	return n.ledger.Outbox.Next(ctx, n.now())
}

// retryUnavailable makes notices due if their channel was unreachable and may work again.
func (n *Notifier) retryUnavailable(ctx context.Context) error {
	waiting, err := n.ledger.Outbox.Undelivered(ctx, 10*pageSize)
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
		if err := n.ledger.Outbox.Hurry(ctx, channel, ErrUnavailable.Error()); err != nil {
			return err
		}
	}
	return nil
}

// sendAll starts one goroutine per channel that sends its notices in order. It does not wait for
// them, so a hanging channel delays only its own notices.
//
// Notices for channels in busy stay due: these channels were sending when the notices were read.
// Only one goroutine may call sendAll.
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

// sendQueue sends the notices of one channel, oldest first. If a result cannot be recorded, it
// stops after a delay.
func (n *Notifier) sendQueue(ctx context.Context, queue []ledger.Notice) {
	for _, notice := range queue {
		err := n.sendOne(ctx, notice)
		if err == nil {
			continue
		}

		if ctx.Err() == nil {
			n.log.Error("what became of a notice is not on record; its channel is tried again in a minute", "channel", notice.Channel, "error", err)
		}
		select { // without a record the notice would be sent again and again
		case <-ctx.Done():
		case <-time.After(time.Minute):
		}
		return
	}
}

// sending returns the channels that are sending. A channel sends one notice at a time.
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

// sendOne sends a notice and records the result. It returns an error only if the ledger fails or
// ctx is done.
func (n *Notifier) sendOne(ctx context.Context, notice ledger.Notice) error {
	channel, rules, sendErr := n.channel(notice.Channel)
	if until := rules.quietUntil(n.now()); !until.IsZero() {
		notice.Error, notice.NextAt = QuietHours+rules.Quiet.String(), until
		return n.ledger.Outbox.Update(ctx, notice)
	}

	var receipt Receipt
	if sendErr == nil {
		receipt, sendErr = send(ctx, channel, newMessage(notice, n.link(ctx, notice)))
	}
	if stopped := ctx.Err(); stopped != nil {
		return stopped // it may have been sent; the next start tries again
	}

	// The outbox has no state for an unavailable channel. Use the error text to log it only the
	// first time.
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
		defer n.recordReachable(notice.Channel, true) // after the delivery is recorded
	case errors.Is(sendErr, ErrUnavailable):
		// This attempt does not count.
		notice.Error, notice.NextAt = sendErr.Error(), n.now().Add(unavailablePause)
		if n.now().Sub(notice.CreatedAt) >= maxWait {
			notice.State, notice.NextAt = ledger.NoticeFailed, n.now()
		}
		n.recordReachable(notice.Channel, false)
		if !waited {
			// If no channel is available, log the notice. It waits and does not fail the run.
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

		// The inbox, the channel's page and rouse doctor show each notice. The log reports the
		// channel's first failure.
		n.log.Log(ctx, n.faultLevel(notice.Channel, sendErr, slog.LevelDebug), "a notice could not be delivered", "job", notice.Job, "run", notice.Run, "channel", notice.Channel, "title", notice.Title,
			"tries", notice.Tries, "given_up", notice.State == ledger.NoticeFailed, "error", sendErr)
	}

	if sendErr != nil && rules.Fallback != "" && (errors.Is(sendErr, ErrUnavailable) || notice.Tries >= triesAlone) {
		if err := n.fallBack(ctx, notice, rules.Fallback); err != nil {
			return err
		}
	}
	return n.ledger.Outbox.Update(ctx, notice)
}

// fallBack adds a copy of a notice for another channel. Repeated calls add the copy once. A copy is
// not copied again: two broken channels would exchange it forever.
func (n *Notifier) fallBack(ctx context.Context, notice ledger.Notice, to string) error {
	if strings.HasPrefix(notice.Key, outbox.FallbackKey) {
		return nil
	}

	other := notice
	other.ID, other.Channel, other.Key = 0, to, outbox.FallbackKey+strconv.FormatInt(notice.ID, 10)
	other.Body = strings.TrimSpace(notice.Body + "\n" + fmt.Sprintf("(told here, for the channel %s did not take it: %s)", notice.Channel, notice.Error))
	return n.ledger.Outbox.Append(ctx, other)
}

// send sends a message with a time limit. A channel that ignores its context is abandoned.
func send(ctx context.Context, c Channel, m Message) (Receipt, error) {
	// Use a Go channel: an abandoned goroutine may write its receipt at any time.
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

// Send sends a text directly, without the outbox. If it succeeds, the channel's waiting notices are
// retried.
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

// CanDeliver returns nil if a channel can deliver now. It returns ErrNotAsked if the channel cannot
// be tested and its last notice gives no answer.
func (n *Notifier) CanDeliver(ctx context.Context, channel string) error {
	c, _, err := n.channel(channel)
	if err != nil {
		return err
	}
	err = withTimeout(ctx, c.Check)
	if !errors.Is(err, ErrNotAsked) {
		return err
	}
	last, found, failed := n.ledger.Outbox.Last(ctx, channel)
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

// Check tests all channels and returns an error for each, nil if the channel works. The error is
// ErrNotAsked if only sending can show it.
func (n *Notifier) Check(ctx context.Context) map[string]error {
	n.mu.Lock()
	channels := n.channels // the map is never modified
	n.mu.Unlock()
	var mu sync.Mutex
	var all sync.WaitGroup
	out := make(map[string]error, len(channels))
	for name, c := range channels { // concurrently: a hanging channel uses up its whole timeout
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
