package schedule

import (
	"cmp"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// Calendar is a named set of times for schedules. Its entries can be replaced at any time.
type Calendar struct {
	name string
	held atomic.Pointer[entries]
}

// Entry is a time span in a calendar.
type Entry struct {
	Text     string // title of the entry
	From, To time.Time
	// Floating means that From and To are local times, stored as UTC. They apply in the zone of
	// each schedule, as for whole days.
	Floating bool
}

// entries are the entries of a calendar, with a cache of their spans per zone.
type entries struct {
	all   []Entry
	zones sync.Map // *zone to []span
}

// span is an entry in a zone, in Unix seconds. The end is exclusive.
type span struct {
	from, to int64
	text     string
}

// NewCalendar returns a calendar without entries.
func NewCalendar(name string) *Calendar {
	c := &Calendar{name: name}
	c.Set(nil)
	return c
}

// Name returns the name of the calendar in the configuration.
func (c *Calendar) Name() string { return c.name }

// Set replaces the entries. Entries that are empty or end before they begin have no effect.
func (c *Calendar) Set(all []Entry) { c.held.Store(&entries{all: slices.Clone(all)}) }

// Len returns the number of entries.
func (c *Calendar) Len() int { return len(c.held.Load().all) }

// spans returns the sorted, disjoint spans in a zone. If entries overlap, the first one covers the
// common part.
func (c *Calendar) spans(z *zone) []span {
	held := c.held.Load()
	if known, ok := held.zones.Load(z); ok {
		return known.([]span) //nolint:forcetypeassert // nothing else is stored
	}

	var all []span
	for _, e := range held.all {
		s := span{e.From.Unix(), e.To.Unix(), e.Text}
		if e.Floating {
			s.from, s.to = z.resolve(s.from), z.resolve(s.to)
		}
		if s.from < s.to {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })

	apart := all[:0]
	for _, s := range all {
		if n := len(apart); n > 0 && s.from < apart[n-1].to {
			if s.to <= apart[n-1].to {
				continue
			}
			s.from = apart[n-1].to
		}
		apart = append(apart, s)
	}

	held.zones.Store(z, apart)
	return apart
}

// at returns the title of the entry at t, and whether there is an entry. until is the first time at
// which this may change. never is true if it does not change.
func (c *Calendar) at(t int64, z *zone) (entry string, covered bool, until int64, never bool) {
	spans := c.spans(z)
	i := sort.Search(len(spans), func(i int) bool { return spans[i].to > t })
	switch {
	case i == len(spans):
		return "", false, 0, true
	case spans[i].from <= t:
		return spans[i].text, true, spans[i].to, false
	}
	return "", false, spans[i].from, false
}
