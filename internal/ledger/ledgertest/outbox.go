package ledgertest

import (
	"strings"
	"testing"
	"time"

	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
)

func outbox(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	n := ledger.Notice{Job: "j", Key: "once", Channel: "desktop", Title: "t", Body: "b"}
	ok(t, l.Outbox.Append(ctx, n, n, ledger.Notice{Channel: "desktop", Title: "no key"}, ledger.Notice{Channel: "desktop", Title: "no key"}))
	pending := must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 10))
	if len(pending) != 3 || pending[0].Title != "t" {
		t.Fatalf("outbox: %+v", pending)
	}

	later := time.Now().Add(time.Hour)
	pending[0].Tries, pending[0].NextAt, pending[0].Error = 1, later, "no desktop"
	pending[1].State = ledger.NoticeDelivered
	pending[2].State = ledger.NoticeFailed
	for _, n := range pending {
		ok(t, l.Outbox.Update(ctx, n))
	}

	if now := must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 10)); len(now) != 0 {
		t.Errorf("due before its time: %+v", now)
	}
	if last, _, err := l.Outbox.Last(ctx, "desktop"); err != nil || last.State != ledger.NoticeFailed {
		t.Errorf("the last notice: %+v, %v", last, err)
	}
	if at := must[time.Time](t)(l.Outbox.Next(ctx, time.Now())); at.UnixMilli() != later.UnixMilli() {
		t.Errorf("next notice at %v, want %v", at, later)
	}
	others := ledger.Notice{Channel: "other", Title: "t"}
	ok(t, l.Outbox.Append(ctx, others))
	other := must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 10))[0]
	other.State, other.Answer = ledger.NoticeUnverified, "202 Accepted"
	ok(t, l.Outbox.Update(ctx, other))
	if last, _, err := l.Outbox.Last(ctx, "other"); err != nil || last.State != ledger.NoticeUnverified || last.Answer != "202 Accepted" {
		t.Errorf("what its channel answered is not kept: %+v, %v", last, err)
	}
	if left := must[[]ledger.Notice](t)(l.Outbox.Undelivered(ctx, 10)); len(left) != 2 {
		t.Errorf("undelivered: %+v", left)
	}

	if got := kinds(t, l, event.Filter{}); got != "notice.delivered notice.failed notice.unverified" { // a retried delivery causes no event
		t.Errorf("events: %s", got)
	}

	ok(t, l.Outbox.Hurry(ctx, "desktop", "no mail"))
	ok(t, l.Outbox.Hurry(ctx, "other", "no desktop"))
	if now := must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 10)); len(now) != 0 {
		t.Errorf("hurried without a reason: %+v", now)
	}
	ok(t, l.Outbox.Hurry(ctx, "desktop", "no desk"))
	if now := must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 10)); len(now) != 1 || now[0].ID != pending[0].ID || now[0].Tries != 1 {
		t.Errorf("not hurried: %+v", now)
	}

	// A channel with many notices leaves room for the others. Each channel gets its oldest notices
	// first.
	ok(t, l.Outbox.Append(ctx, ledger.Notice{Channel: "much", Title: "1"}, ledger.Notice{Channel: "much", Title: "2"}, ledger.Notice{Channel: "much", Title: "3"}, ledger.Notice{Channel: "late", Title: "4"}))
	var titles []string
	for _, n := range must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 2)) {
		titles = append(titles, n.Title)
	}
	if got := strings.Join(titles, " "); got != "t 1 2 4" {
		t.Errorf("due, two of each channel: %s", got)
	}
}
