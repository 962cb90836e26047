package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/notify"
	"rouse/internal/ledger"
	"rouse/internal/text"
)

// maxUndelivered is the maximum number of undelivered notices that are counted.
const maxUndelivered = 100

// checkNotices checks each channel and the outbox.
func (d *Checker) checkNotices(ctx context.Context) []api.Check {
	var out []api.Check
	cfg := d.Setup().Config
	found := d.Notifier.Check(ctx)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		c, err := Passed("channel "+name, "can be reached"), found[name]
		switch {
		case err == nil:
			c.NotTried = "whether you see it (rouse notify TEXT)"
		case errors.Is(err, notify.ErrNotAsked):
			c.Detail, c.NotTried = "configured", "whether it takes anything (rouse notify TEXT --channel "+name+")"
		case errors.Is(err, notify.ErrUnavailable) && name == config.DefaultChannel && !cfg.Names(name):
			c.Detail = "is not a default here: " + strings.TrimPrefix(err.Error(), "the desktop cannot be reached here: ")
			if len(cfg.Notifications) == 0 {
				c.Detail += "; no other channel is configured, so failures are only recorded (rouse incidents); to get notices, add a channel to notifications"
			}
		case errors.Is(err, notify.ErrUnavailable):
			c = Failed(c.Name, err.Error(), "start rouse inside a desktop session, or take the channel out of notify: in the jobs")
		default:
			c = undone(c.Name, err)
		}
		out = append(out, c)
	}
	return append(out, d.checkOutbox(ctx))
}

func (d *Checker) checkOutbox(ctx context.Context) api.Check {
	waiting, err := d.Ledger.Outbox.Undelivered(ctx, maxUndelivered+1)
	if err != nil {
		return undone("outbox", err)
	}

	all := len(waiting)
	waiting = slices.DeleteFunc(waiting, func(n ledger.Notice) bool { return strings.HasPrefix(n.Error, notify.QuietHours) })
	quiet := all - len(waiting)
	switch {
	case len(waiting) > 0:
		many := text.Plural(len(waiting), "notice") + " not delivered"
		if len(waiting) > maxUndelivered {
			many = fmt.Sprintf("more than %d notices not delivered", maxUndelivered)
		}
		return Failed("outbox", fmt.Sprintf("%s; the latest: %q (%s)", many, waiting[0].Title, cmp.Or(waiting[0].Error, "not tried yet")), "they are delivered as soon as their channel can be reached")
	case quiet > 0:
		return Passed("outbox", text.Plural(quiet, "notice")+" for the end of quiet hours")
	}
	return Passed("outbox", "empty")
}
