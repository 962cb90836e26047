package schedule

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"
)

var (
	dayNames   = []string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}
	monthNames = []string{"", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"}
)

// Describe says the schedule in words: "every weekday at 08:00 (Europe/Berlin)".
func (s *Schedule) Describe() string {
	switch s.source {
	case "every":
		text := s.every.String()
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
		return "every " + text
	case "at":
		return "once at " + s.at.In(s.zone).Format("2006-01-02 15:04:05 MST")
	}
	text, days := s.cron.times(), s.cron.days()
	if every := s.cron.everyDay(); every != "" && strings.HasPrefix(text, "at ") {
		text, days = every+" "+text, ""
	}
	if days != "" {
		text += " " + days
	}
	if s.cron.all24() && days == "" {
		return text // the same in every zone
	}
	zone := s.zone.String()
	if zone == "Local" {
		zone = "local time"
	}
	return fmt.Sprintf("%s (%s)", text, zone)
}

// times says when within a day.
func (f *fields) times() string {
	seconds, minutes, hours := values(f.second, 60), values(f.minute, 60), values(f.hour, 24)
	switch {
	case len(hours) == 24 && len(minutes) == 60 && len(seconds) == 60:
		return "every second"
	case len(hours) == 24 && len(minutes) == 60 && len(seconds) == 1:
		return "every minute"
	case len(hours) == 24 && len(minutes) == 60:
		return "every minute at second " + list(seconds, nil)
	case len(hours) == 24 && len(minutes) == 1:
		return fmt.Sprintf("every hour at minute %d", minutes[0])
	case len(hours) == 24:
		if step := even(minutes, 60); step > 0 {
			return fmt.Sprintf("every %d minutes", step)
		}
		return "every hour at minutes " + list(minutes, nil)
	case len(hours)*len(minutes)*len(seconds) <= 4:
		var at []string
		for _, h := range hours {
			for _, m := range minutes {
				for _, sec := range seconds {
					clock := fmt.Sprintf("%02d:%02d", h, m)
					if sec != 0 || len(seconds) > 1 {
						clock += fmt.Sprintf(":%02d", sec)
					}
					at = append(at, clock)
				}
			}
		}
		return "at " + join(at)
	case len(minutes) == 1:
		return fmt.Sprintf("at minute %d of the hours %s", minutes[0], list(hours, nil))
	case len(minutes) == 60:
		return "every minute of the hours " + list(hours, nil)
	}
	return fmt.Sprintf("at the minutes %s of the hours %s", list(minutes, nil), list(hours, nil))
}

// restrictions are the days, weekdays and months that a spec allows.
func (f *fields) restrictions() (dom, dow, months []int) {
	dom, dow, months = values(f.dom&^1, 32), values(f.dow, 7), values(f.month&^1, 13)
	if !f.domStar && !f.dowStar && (len(dom) == 31 || len(dow) == 7) { // either matches, and one always does
		dom, dow = values(math.MaxUint32&^1, 32), values(math.MaxUint32, 7)
	}
	return dom, dow, months
}

// days says on which dates, "" when on all.
func (f *fields) days() string {
	dom, dow, months := f.restrictions()
	var parts []string
	byDate, byWeekday := len(dom) < 31, len(dow) < 7
	date := "on day " + list(dom, nil)
	weekday := "on " + list(dow, dayNames)
	switch {
	case byDate && byWeekday && !f.domStar && !f.dowStar:
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

// everyDay names the days of a spec that only weekdays restrict, "" when there is no name.
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
	var out []int
	for m := mask & (1<<n - 1); m != 0; m &= m - 1 {
		out = append(out, bits.TrailingZeros64(m))
	}
	return out
}

// even is the step of values that divide n evenly from 0 on, else 0.
func even(values []int, n int) int {
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

// list names values, and runs of three or more as a range.
func list(values []int, names []string) string {
	name := func(v int) string {
		if names == nil {
			return fmt.Sprint(v)
		}
		return names[v]
	}
	var out []string
	for i := 0; i < len(values); {
		j := i
		for j+1 < len(values) && values[j+1] == values[j]+1 {
			j++
		}
		if j-i >= 2 {
			out = append(out, name(values[i])+" to "+name(values[j]))
		} else {
			for k := i; k <= j; k++ {
				out = append(out, name(values[k]))
			}
		}
		i = j + 1
	}
	return join(out)
}

func join(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

// Zone is the time zone that local readings are in.
func (s *Schedule) Zone() *time.Location { return s.zone }
