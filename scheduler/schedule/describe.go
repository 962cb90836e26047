package schedule

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"rouse/internal/text"
)

var (
	dayNames   = []string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}
	monthNames = []string{"", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"}
)

// Describe returns a description of the schedule, like "every weekday at 08:00 (Europe/Berlin)".
func (s *Schedule) Describe() string {
	switch s.source {
	case sourceEvery:
		return "every " + text.FormatSpan(s.every)
	case sourceAt:
		return "once at " + s.at.In(s.zone.Location).Format("2006-01-02 15:04:05 MST")
	}

	times, days := s.cron.times(), s.cron.days()
	if s.source == sourceWindow {
		times = "once between " + s.window.String()
		if days == "" {
			times = "each day " + times
		}
	}
	if every := s.cron.everyDay(); every != "" && strings.HasPrefix(times, "at ") {
		times, days = every+" "+times, ""
	}
	if days != "" {
		times += " " + days
	}
	if s.cron.everyHour() && days == "" {
		return times // the same in every zone
	}
	return fmt.Sprintf("%s (%s)", times, ZoneName(s.zone.Location))
}

// times describes the times of day.
func (f *fields) times() string {
	// List a few times individually. Describe more times by their fields.
	seconds, minutes, hours := values(f.second, 60), values(f.minute, 60), values(uint64(f.hour), 24)
	if len(hours) < 24 && len(hours)*len(minutes)*len(seconds) <= 4 {
		return "at " + join(clocks(hours, minutes, seconds))
	}

	text := ""
	switch everyHour := len(hours) == 24; {
	case everyHour && len(minutes) == 60 && len(seconds) == 60:
		return "every second"
	case everyHour && len(minutes) == 60 && evenStep(seconds, 60) > 0:
		return fmt.Sprintf("every %d seconds", evenStep(seconds, 60))
	case everyHour && len(minutes) == 60:
		text = "every minute"
	case everyHour && evenStep(minutes, 60) > 0:
		text = fmt.Sprintf("every %d minutes", evenStep(minutes, 60))
	case everyHour:
		text = "every hour at " + numbered("minute", minutes)
	case len(minutes) == 60:
		text = "every minute of the " + numbered("hour", hours)
	case len(minutes) == 1:
		text = fmt.Sprintf("at %s of the %s", numbered("minute", minutes), numbered("hour", hours))
	default:
		text = fmt.Sprintf("at the %s of the %s", numbered("minute", minutes), numbered("hour", hours))
	}

	switch {
	case len(seconds) == 60:
		return text + ", each second"
	case len(seconds) > 1 || seconds[0] != 0:
		return text + ", at " + numbered("second", seconds)
	}

	return text
}

func clocks(hours, minutes, seconds []int) (out []string) {
	for _, h := range hours {
		for _, m := range minutes {
			for _, sec := range seconds {
				clock := fmt.Sprintf("%02d:%02d", h, m)
				if sec != 0 || len(seconds) > 1 {
					clock += fmt.Sprintf(":%02d", sec)
				}
				out = append(out, clock)
			}
		}
	}
	return out
}

// numbered returns a text like "minute 5" or "minutes 5, 10 and 15".
func numbered(unit string, values []int) string {
	if len(values) > 1 {
		unit += "s"
	}
	return unit + " " + list(values, nil)
}

// restrictions returns the allowed days of the month, weekdays and months.
func (f *fields) restrictions() (dom, dow, months []int) {
	dom, dow, months = values(uint64(f.dom), 32), values(uint64(f.dow), 7), values(uint64(f.month), 13)
	// One match is enough, and one of the fields always matches.
	if !f.domStar && !f.dowStar && (len(dom) == 31 || len(dow) == 7) {
		dom, dow = values(math.MaxUint32&^1, 32), values(math.MaxUint32, 7)
	}
	return dom, dow, months
}

// days describes the allowed dates. It returns "" if all dates are allowed.
func (f *fields) days() string {
	dom, dow, months := f.restrictions()
	var parts []string
	byDate, byWeekday := len(dom) < 31, len(dow) < 7
	date := "on day " + list(dom, nil)
	if last := dom[len(dom)-1]; f.clamped && last > 28 {
		date += " or the last of the month"
	}
	weekday := "on " + list(dow, dayNames)
	switch {
	case byDate && !f.domStar && !f.dowStar: // implies byWeekday, see restrictions
		parts = append(parts, date+" and "+weekday)
	case byDate && byWeekday:
		parts = append(parts, date+" if it is a "+list(dow, dayNames))
	case byDate:
		parts = append(parts, date)
	case byWeekday:
		parts = append(parts, weekday)
	}

	if len(months) < 12 {
		parts = append(parts, "in "+list(months, monthNames))
	}

	return strings.Join(parts, " ")
}

// everyDay names the days if only weekdays are restricted, for example "every weekday". It returns
// "" if there is no such name.
func (f *fields) everyDay() string {
	dom, dow, months := f.restrictions()
	switch {
	case len(dom) < 31 || len(months) < 12:
		return ""
	case len(dow) == 7:
		return "every day"
	case len(dow) == 1:
		return "every " + dayNames[dow[0]]
	case slices.Equal(dow, []int{1, 2, 3, 4, 5}):
		return "every weekday"
	}

	return ""
}

func values(mask uint64, n int) []int {
	mask &= 1<<n - 1
	out := make([]int, 0, bits.OnesCount64(mask))
	for m := mask; m != 0; m &= m - 1 {
		out = append(out, bits.TrailingZeros64(m))
	}
	return out
}

// evenStep returns the step of values that divide the range from 0 to n evenly, or 0 if they do
// not.
func evenStep(values []int, n int) int {
	if len(values) < 2 || values[0] != 0 || n%len(values) != 0 {
		return 0
	}

	step := n / len(values)
	for i, v := range values {
		if v != i*step {
			return 0
		}
	}
	return step
}

// list joins values, with three or more consecutive values as a range.
func list(values []int, names []string) string {
	name := func(v int) string {
		if names == nil {
			return fmt.Sprint(v)
		}
		return names[v]
	}

	var out []string
	for i := 0; i < len(values); i++ {
		run := 0
		for i+run+1 < len(values) && values[i+run+1] == values[i]+run+1 {
			run++
		}
		if run < 2 {
			out = append(out, name(values[i]))
			continue
		}
		out = append(out, name(values[i])+" to "+name(values[i+run]))
		i += run
	}
	return join(out)
}

func join(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

// Zone returns the schedule's time zone.
func (s *Schedule) Zone() *time.Location { return s.zone.Location }
