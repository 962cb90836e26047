package yaml

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"rouse/scheduler/schedule"
)

var (
	spokenSpan  = regexp.MustCompile(`^(?:every|each|all|in)?\s*(\d{1,4}|an?|one|other|second)?\s*(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|days?|weeks?)$`)
	spokenClock = regexp.MustCompile(`(?:^|\s)(?:at\s+)?(\d{1,2})(?:[:.](\d{2}))?\s*(am|pm|a\.m\.|p\.m\.|o'clock|h|uhr)?(?:\s|,|$)`)
	spokenDay   = regexp.MustCompile(`\b(mon|tue|wed|thu|fri|sat|sun)(?:day|sday|nesday|rsday|urday|s)?s?\b`)
	// spokenMonth matches the day of a month: 1st of the month, monthly on the 15th.
	spokenMonth = regexp.MustCompile(`\b(\d{1,2})(?:st|nd|rd|th)\b`)
)

// spokenTimes maps words to a time of day.
var spokenTimes = []struct{ word, clock string }{{"midnight", "00:00"}, {"noon", "12:00"}, {"midday", "12:00"}, {"morning", "08:00"}, {"afternoon", "15:00"}, {"evening", "18:00"}, {"night", "02:00"}}

// TimingHint returns the line for a time in English, such as "every weekday at 8am". If it cannot
// translate the time, it returns examples.
func TimingHint(key, said string) string {
	if key != "schedule" && key != "every" && key != "at" {
		return ""
	}
	if line := spoken(said); line != "" {
		return "write " + line
	}
	if key == "schedule" && regexp.MustCompile(`[a-zA-Z]{3,}`).MatchString(said) && !strings.HasPrefix(said, "@") && !strings.Contains(said, "*") {
		return "write schedule: daily at 08:00, or weekly on mon-fri at 08:00"
	}
	return ""
}

// TimingLine returns the line of a job for a time: a schedule, a duration, an instant, or English
// such as "every weekday at 8am". Any other text becomes a schedule, which Load refuses.
func TimingLine(said string) string {
	for _, o := range []struct {
		key string
		schedule.Options
	}{{"schedule", schedule.Options{Cron: said}}, {"every", schedule.Options{Every: said}}, {"at", schedule.Options{At: said}}} {
		if _, err := schedule.Parse(o.Options); err == nil {
			return o.key + ": " + Literal(said, "")
		}
	}
	if line := spoken(said); line != "" {
		return line
	}
	return "schedule: " + Literal(said, "")
}

// spoken translates a time in English. It returns "" if it cannot.
func spoken(said string) string {
	text := strings.Join(strings.Fields(strings.ToLower(said)), " ")
	if line := spokenEvery(text); line != "" {
		return line
	}

	clock, rest, timed := spokenTime(text)
	says := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(rest, word) })
	}
	var days []string
	for _, m := range spokenDay.FindAllStringSubmatch(rest, -1) {
		days = append(days, m[1])
	}

	switch m := spokenMonth.FindStringSubmatch(rest); {
	case m != nil && (says("month") || !says("week", "day")):
		return fmt.Sprintf("schedule: monthly on %s at %s", m[1], clock)
	case says("last day", "end of"):
		return "schedule: monthly on 31 at " + clock
	case says("month"):
		return "schedule: monthly on 1 at " + clock
	case says("weekday", "workday", "working day", "business day", "work day", "week day"):
		return "schedule: weekly on mon-fri at " + clock
	case says("weekend"):
		return "schedule: weekly on sat,sun at " + clock
	case len(days) == 2 && says(" to ", " through ", " till ", " until ", "-"):
		return fmt.Sprintf("schedule: weekly on %s-%s at %s", days[0], days[1], clock)
	case len(days) > 0:
		return fmt.Sprintf("schedule: weekly on %s at %s", strings.Join(days, ","), clock)
	case says("week"):
		return "schedule: weekly on mon at " + clock
	case says("day", "daily", "nightly", "night", "morning", "evening") || timed && strings.Trim(rest, " ,") == "":
		return "schedule: daily at " + clock
	}
	return ""
}

// spokenEvery translates an interval: every 5 minutes, every other day, hourly.
func spokenEvery(text string) string {
	m := spokenSpan.FindStringSubmatch(text)
	if m == nil {
		return ""
	}

	n := 1
	switch m[1] {
	case "", "a", "an", "one":
	case "other", "second":
		n = 2
	default:
		n, _ = strconv.Atoi(m[1]) // digits
	}
	switch unit := m[2]; {
	case n == 0:
		return ""
	case unit[0] == 's':
		return fmt.Sprintf("every: %ds", n)
	case unit[0] == 'm':
		return fmt.Sprintf("every: %dm", n)
	case unit[0] == 'h':
		return fmt.Sprintf("every: %dh", n)
	case unit[0] == 'd' && n == 1:
		return "schedule: daily at 08:00"
	case unit[0] == 'd':
		return fmt.Sprintf("every: %dh", 24*n)
	case n == 1:
		return "schedule: weekly on mon at 08:00"
	}
	return fmt.Sprintf("every: %dh", 7*24*n)
}

// spokenTime finds a time of day in a text, by default 08:00, and returns the rest of the text.
func spokenTime(text string) (clock, rest string, found bool) {
	for _, t := range spokenTimes {
		if strings.Contains(text, t.word) && !strings.ContainsAny(text, "0123456789") {
			return t.clock, text, true
		}
	}

	var m []string
	for _, one := range spokenClock.FindAllStringSubmatch(text, -1) {
		if one[2] != "" || one[3] != "" || strings.Contains(one[0], "at ") { // otherwise the number is not a time
			m = one
			break
		}
	}
	if m == nil {
		return "08:00", text, false
	}
	hour, _ := strconv.Atoi(m[1]) // digits
	minute, _ := strconv.Atoi(m[2])
	switch afternoon := strings.HasPrefix(m[3], "p"); {
	case afternoon && hour < 12:
		hour += 12
	case strings.HasPrefix(m[3], "a") && hour == 12:
		hour = 0
	}
	if hour > 23 || minute > 59 {
		return "08:00", text, false
	}
	return fmt.Sprintf("%02d:%02d", hour, minute), strings.Replace(text, m[0], " ", 1), true
}
