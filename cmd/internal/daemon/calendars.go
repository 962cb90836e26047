package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/calendars"
	"rouse/cmd/internal/config"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

// lookCalendars is how often it is looked whether a calendar is to be fetched.
const lookCalendars = 15 * time.Second

// calendarSource is where a calendar is fetched from, false for one that is not.
func calendarSource(c config.Calendar) (calendars.Source, bool) {
	return calendars.Source{Name: string(c.Name), Address: c.Address(), Near: c.Near, Refresh: time.Duration(c.Refresh)}, c.URL != ""
}

// fillCalendars fills the fetched calendars from their copies. A calendar without a copy is empty.
func fillCalendars(cfg *config.Config, now time.Time) {
	store := calendars.NewStore(string(cfg.Home))
	for _, c := range cfg.Calendars {
		if from, ok := calendarSource(c); ok {
			cfg.CalendarOf(from.Name).Set(store.Load(from, now).Entries)
		}
	}
}

// followCalendars fetches calendars when they are due, until ctx ends.
func (d *Daemon) followCalendars(ctx context.Context) error {
	store := calendars.NewStore(d.home.Dir)
	tick := time.NewTicker(lookCalendars)
	defer tick.Stop()
	for said, filled := map[string]string{}, map[*schedule.Calendar]time.Time{}; ; {
		for _, c := range d.Current().Config.Calendars {
			if from, ok := calendarSource(c); ok {
				d.fetchCalendar(ctx, store, from, said)
			}
		}
		if d.refill(store, filled) {
			d.reloads.recalculateSoon()
		}

		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// fetchCalendar fetches a calendar that is due. What goes wrong is said once, until something else does.
func (d *Daemon) fetchCalendar(ctx context.Context, store calendars.Store, from calendars.Source, said map[string]string) {
	kept := store.Load(from, time.Now())
	if time.Now().Before(kept.Due(from)) {
		return
	}

	body, err := calendars.Fetch(ctx, from)
	if ctx.Err() != nil {
		return // it only says that the daemon stops
	}
	changed, kerr := store.Keep(from, time.Now(), body, err)
	if kerr != nil {
		d.log.Error("a calendar could not be kept", "calendar", from.Name, "error", kerr)
		return
	}

	kept = store.Load(from, time.Now())
	switch {
	case kept.Problem == "":
		delete(said, from.Name)
		if changed {
			d.log.Info("a calendar was fetched", "calendar", from.Name, "times", len(kept.Entries))
		}
	case said[from.Name] != kept.Problem && kept.FetchedAt.IsZero():
		d.log.Error("a calendar could never be fetched: nothing is excluded by it, and what keeps to it does not start", "calendar", from.Name, "error", kept.Problem)
	case said[from.Name] != kept.Problem:
		d.log.Warn("a calendar could not be fetched; the copy that is kept goes on", "calendar", from.Name, "of", kept.FetchedAt, "error", kept.Problem)
	}
	said[from.Name] = kept.Problem
}

// refill gives the calendars of the configuration in force what has come since they were filled, and says whether that is another.
func (d *Daemon) refill(store calendars.Store, filled map[*schedule.Calendar]time.Time) (changed bool) {
	cfg := d.Current().Config
	now := map[*schedule.Calendar]time.Time{}
	for _, c := range cfg.Calendars {
		from, ok := calendarSource(c)
		if !ok {
			continue
		}

		made, kept := cfg.CalendarOf(from.Name), store.Load(from, time.Now())
		if at, known := filled[made]; !known || !at.Equal(kept.ChangedAt) {
			made.Set(kept.Entries)
			changed = true
		}
		now[made] = kept.ChangedAt
	}

	clear(filled) // those of older configurations are gone
	for made, at := range now {
		filled[made] = at
	}
	return changed
}

// calendarStates are how the calendars of the configuration are.
func (d *Daemon) calendarStates() []api.Calendar {
	now, cfg := time.Now(), d.Current().Config
	store, out := calendars.NewStore(string(cfg.Home)), []api.Calendar{}
	for _, c := range cfg.Calendars {
		made := cfg.CalendarOf(string(c.Name))
		if made == nil {
			continue // it has no name, which was refused
		}
		state := api.Calendar{Name: string(c.Name), Kind: "file", Times: made.Len()}
		if c.Holidays != "" {
			state.Kind = "holidays"
		}
		if from, ok := calendarSource(c); ok {
			kept := store.Load(from, now)
			state.Kind, state.Times, state.FetchedAt, state.ChangedAt, state.Problem = "url", len(kept.Entries), api.At(kept.FetchedAt), api.At(kept.ChangedAt), text.OneLine(kept.Problem)
		}
		out = append(out, state)
	}
	return out
}

// checkCalendars reports the state of the calendars, if there are any.
func (d *Daemon) checkCalendars() []api.Check {
	c := passed("calendars", "")
	var details []string
	for _, one := range d.calendarStates() {
		details = append(details, one.Text(time.Now()))
		c.OK = c.OK && one.Problem == ""
	}
	if len(details) == 0 {
		return nil
	}
	if c.Detail = strings.Join(details, "; "); !c.OK {
		c.Remedy = "see the message, and the address under calendars; it is tried again every ten minutes while a daemon runs"
	}
	return []api.Check{c}
}

// calendarNotes say how the calendars are that a job asks.
func (e *explanation) calendarNotes() (out []string) {
	if e.job == nil {
		return nil
	}
	for _, one := range e.d.calendarStates() {
		if !slices.Contains(e.job.Exclude, one.Name) && !slices.Contains(e.job.Only, one.Name) {
			continue
		}
		note := one.Text(e.now)
		if one.Kind == "url" && one.FetchedAt.IsZero() {
			note += "; nothing is excluded by it, and what keeps to it (only) does not start"
		}
		if one.Problem != "" {
			note = "▲ " + note
		}
		out = append(out, note)
	}
	return out
}

// calendarChange says whether a calendar of the job was changed since an instant, which may have been left out by what it held then.
func (e *explanation) calendarChange(t time.Time) string {
	if e.job == nil {
		return ""
	}
	for _, one := range e.d.calendarStates() {
		asked := slices.Contains(e.job.Exclude, one.Name) || slices.Contains(e.job.Only, one.Name)
		if asked && one.ChangedAt.After(t) {
			return fmt.Sprintf("; the calendar %s was changed %s, and may have left it out before", one.Name, api.LocalTime(one.ChangedAt.Time, e.zone))
		}
	}
	return ""
}
