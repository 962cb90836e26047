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

// Entry is a stretch of time in a calendar.
type Entry struct {
	Text     string // what its owner calls it
	From, To time.Time
	// Floating reports that From and To are clock readings, held as if they were UTC, in whichever zone is looked at: as whole days are.
	Floating bool
}

// entries are what a calendar holds at a time, and how that lies in the zones that were asked for.
type entries struct {
	all   []Entry
	zones sync.Map // of *zone to []span
}

// span is an entry in a zone, in Unix seconds; the end is not in it.
type span struct {
	from, to int64
	text     string
}

// NewCalendar is a calendar without entries.
func NewCalendar(name string) *Calendar {
	c := &Calendar{name: name}
	c.Set(nil)
	return c
}

// Name is the name by which configurations know it.
func (c *Calendar) Name() string { return c.name }

// Set replaces the entries; those that are empty or run backwards are left out.
func (c *Calendar) Set(all []Entry) { c.held.Store(&entries{all: slices.Clone(all)}) }

// Len is how many entries it has.
func (c *Calendar) Len() int { return len(c.held.Load().all) }

// spans are the entries in a zone, in order and apart: of those that overlap, the first says its name.
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

// at is the entry that covers an instant, "" when none does, and the first instant at which that may be otherwise; never is set when it stays so.
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
