package plan

import (
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/calendars"
	"rouse/cmd/internal/config"
	"rouse/internal/text"
)

// CalendarSource returns the source of a fetched calendar. It returns false if the calendar is not
// fetched.
func CalendarSource(c config.Calendar) (calendars.Source, bool) {
	return calendars.Source{Name: string(c.Name), Address: c.Address(), Near: c.Near, Refresh: time.Duration(c.Refresh)}, c.URL != ""
}

// fillCalendars fills fetched calendars from their local copies. A calendar without a copy is
// empty.
func fillCalendars(cfg *config.Config, now time.Time) {
	store := calendars.NewStore(string(cfg.Home))
	for _, c := range cfg.Calendars {
		if from, ok := CalendarSource(c); ok {
			cfg.CalendarOf(from.Name).Set(store.Load(from, now).Entries)
		}
	}
}

// Calendars returns the state of each calendar of a configuration.
func Calendars(cfg *config.Config) []api.Calendar {
	now := time.Now()
	store, out := calendars.NewStore(string(cfg.Home)), []api.Calendar{}
	for _, c := range cfg.Calendars {
		made := cfg.CalendarOf(string(c.Name))
		if made == nil {
			continue // without a name; loading the configuration has reported it
		}
		state := api.Calendar{Name: string(c.Name), Kind: "file", Times: made.Len()}
		if c.Holidays != "" {
			state.Kind = "holidays"
		}
		if from, ok := CalendarSource(c); ok {
			kept := store.Load(from, now)
			state.Kind, state.Times, state.FetchedAt, state.ChangedAt, state.Problem = "url", len(kept.Entries), api.At(kept.FetchedAt), api.At(kept.ChangedAt), text.OneLine(kept.Problem)
		}
		out = append(out, state)
	}
	return out
}
