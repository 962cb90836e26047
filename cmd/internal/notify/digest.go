package notify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// digestKey is the beginning of the key of a digest.
const digestKey = "digest:"

// IsDigest says whether a notice is the summary of a day.
func IsDigest(n ledger.Notice) bool { return strings.HasPrefix(n.Key, digestKey) }

// clockAhead is how far the end of the last digest may lie in the future. Beyond it the clock was wrong when that was made,
// and waiting for it to be reached could take years.
const clockAhead = 24 * time.Hour

// appendDigests puts the digests that are due into the outbox, and returns when the next one is, zero for never. Each begins
// where the one before has ended, and ends when it is made: a machine that was off or asleep leaves nothing out, and gets one
// for all the days. The ledger keeps that end in the transaction of the notice, so that a crash makes none twice.
func (n *Notifier) appendDigests(ctx context.Context, now time.Time) (time.Time, error) {
	n.mu.Lock()
	rules, next := n.rules, n.nextDigest
	n.mu.Unlock()
	if now.Before(next) && next.Sub(now) <= clockAhead+time.Hour { // a day with a clock change has 25
		return next, nil
	}

	channels := map[string]bool{}
	for channel, r := range rules {
		channels[channel] = r.Digest != nil
	}
	err := n.ledger.KeepDigests(ctx, channels)

	next = time.Time{}
	for channel, r := range rules {
		if r.Digest == nil {
			continue
		}
		if r.Session != nil && !r.Session.Exists() {
			next = domain.Earlier(next, now.Add(time.Hour))
			continue
		}
		at, failure := n.appendDigest(ctx, channel, r, now)
		next, err = domain.Earlier(next, at), errors.Join(err, failure)
	}
	if err != nil {
		return time.Time{}, err
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	n.nextDigest = next
	return next, nil
}

// appendDigest puts the digest of a channel into the outbox if it is due, and returns when the next one is.
func (n *Notifier) appendDigest(ctx context.Context, channel string, r Rules, now time.Time) (time.Time, error) {
	from, err := n.ledger.DigestThrough(ctx, channel, now)
	if err != nil {
		return time.Time{}, err
	}
	if from.Sub(now) > clockAhead {
		n.log.Warn("the clock was ahead when the last digest was made; the next one begins now", "channel", channel, "last", from)
		from = now
		if err := n.ledger.RestartDigest(ctx, channel, now); err != nil {
			return time.Time{}, err
		}
	}

	due := r.Digest.Next(from, r.zone())
	if due.After(now) {
		return due, nil
	}

	s, err := n.summarize(ctx, from, now)
	if err != nil {
		return time.Time{}, fmt.Errorf("channel %s: %w", channel, err)
	}
	notice := ledger.Notice{Channel: channel, Key: fmt.Sprintf("%s%s:%d", digestKey, channel, from.UnixMilli()), Title: s.title(), Body: s.body(r.zone())}
	if _, err := n.ledger.AppendDigest(ctx, from, now, notice); err != nil {
		return time.Time{}, fmt.Errorf("channel %s: %w", channel, err)
	}
	return r.Digest.Next(now, r.zone()), nil
}
