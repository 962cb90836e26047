package upkeep

import (
	"context"
	"maps"
	"time"

	"rouse/cmd/internal/calendars"
	"rouse/cmd/internal/plan"
	"rouse/scheduler/schedule"
)

// lookCalendars is the interval between checks for calendars that are due.
const lookCalendars = 15 * time.Second

// FollowCalendars fetches calendars when they are due, until ctx ends.
func (k *Keeper) FollowCalendars(ctx context.Context) error {
	store := calendars.NewStore(k.Home)
	tick := time.NewTicker(lookCalendars)
	defer tick.Stop()
	for said, filled := map[string]string{}, map[*schedule.Calendar]time.Time{}; ; {
		for _, c := range k.Setup().Config.Calendars {
			if from, ok := plan.CalendarSource(c); ok {
				k.fetchCalendar(ctx, store, from, said)
			}
		}
		if k.refill(store, filled) {
			k.Reloader.RecalculateSoon()
		}

		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// fetchCalendar fetches a calendar if it is due. It logs each problem once.
func (k *Keeper) fetchCalendar(ctx context.Context, store calendars.Store, from calendars.Source, said map[string]string) {
	if time.Now().Before(store.Load(from, time.Now()).Due(from)) {
		return
	}
	body, err := calendars.Fetch(ctx, from)
	if ctx.Err() != nil {
		return // the daemon is stopping
	}
	changed, kerr := store.Keep(from, time.Now(), body, err)
	if kerr != nil {
		k.Logger.Error("a calendar could not be kept", "calendar", from.Name, "error", kerr)
		return
	}

	kept := store.Load(from, time.Now())
	switch {
	case kept.Problem == "" && changed:
		k.Logger.Info("a calendar was fetched", "calendar", from.Name, "times", len(kept.Entries))
	case kept.Problem == said[from.Name]:
	case kept.FetchedAt.IsZero():
		k.Logger.Error("a calendar could never be fetched: nothing is excluded by it, and what keeps to it does not start", "calendar", from.Name, "error", kept.Problem)
	case kept.Problem != "":
		k.Logger.Warn("a calendar could not be fetched; the copy that is kept goes on", "calendar", from.Name, "of", kept.FetchedAt, "error", kept.Problem)
	}
	said[from.Name] = kept.Problem
}

// refill updates the calendars in force with newer copies. filled holds the time of the copy in
// each calendar.
func (k *Keeper) refill(store calendars.Store, filled map[*schedule.Calendar]time.Time) (changed bool) {
	cfg := k.Setup().Config
	before := maps.Clone(filled)
	clear(filled) // forgets calendars of older configurations
	for _, c := range cfg.Calendars {
		from, ok := plan.CalendarSource(c)
		if !ok {
			continue
		}
		made, kept := cfg.CalendarOf(from.Name), store.Load(from, time.Now())
		if at, known := before[made]; !known || !at.Equal(kept.ChangedAt) {
			made.Set(kept.Entries)
			changed = true
		}
		filled[made] = kept.ChangedAt
	}
	return changed
}
