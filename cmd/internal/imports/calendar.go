package imports

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"rouse/internal/text"
)

// calendar is a converted OnCalendar expression: a cron expression, a time zone, and conditions for
// the parts cron cannot express.
type calendar struct {
	cron, at, zone string
	when           []string // conditions that must all be true
}

// calendarWords maps the named expressions of systemd.time(7) to their full form.
var calendarWords = map[string]string{
	"minutely": "*-*-* *:*:00", "hourly": "*-*-* *:00:00", "daily": "*-*-* 00:00:00", "midnight": "*-*-* 00:00:00", "weekly": "Mon *-*-* 00:00:00",
	"monthly": "*-*-01 00:00:00", "yearly": "*-01-01 00:00:00", "annually": "*-01-01 00:00:00",
	"quarterly": "*-01,04,07,10-01 00:00:00", "semiannually": "*-01,07-01 00:00:00", "biannually": "*-01,07-01 00:00:00", "bi-annually": "*-01,07-01 00:00:00", "semi-annually": "*-01,07-01 00:00:00",
}

var (
	weekdays   = []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}
	zoneWord   = regexp.MustCompile(`^(UTC|GMT|[A-Z][A-Za-z_+-]+(/[A-Za-z0-9_+-]+)+)$`)
	yearNumber = regexp.MustCompile(`^[0-9]{4}$`)
)

// parseCalendar parses an expression such as "Mon..Fri *-*-* 08:00 Europe/Berlin".
func parseCalendar(text string) (c calendar, err error) {
	words := strings.Fields(text)
	if n := len(words); n > 0 && zoneWord.MatchString(words[n-1]) {
		c.zone, words = words[n-1], words[:n-1]
	}
	if len(words) == 1 {
		if known, ok := calendarWords[strings.ToLower(words[0])]; ok {
			words = strings.Fields(known)
		}
	}

	days, date, clock := "*", "*-*-*", "00:00:00"
	if len(words) > 0 && isWeekdays(words[0]) {
		days, words = words[0], words[1:]
		for len(words) > 0 && isWeekdays(words[0]) { // "Mon, Tue"
			days, words = strings.TrimSuffix(days, ",")+","+words[0], words[1:]
		}
	}
	if len(words) > 0 && strings.Contains(words[0], "-") {
		date, words = words[0], words[1:]
	}
	if len(words) > 0 && strings.Contains(words[0], ":") {
		clock, words = words[0], words[1:]
	}
	if len(words) > 0 || text == "" || strings.TrimSpace(text) == "" {
		return c, fmt.Errorf("%q is no calendar expression that is known", shown(text))
	}

	if err := c.compose(days, date, clock); err != nil {
		return c, fmt.Errorf("%q: %w", shown(text), err)
	}
	return c, nil
}

func isWeekdays(word string) bool {
	_, err := weekdayList(word)
	return err == nil
}

// weekdayList parses a list such as "Mon..Fri,Sun". It returns cron's numbers, with Sunday as 0.
func weekdayList(word string) (out []int, err error) {
	one := func(s string) int {
		s = strings.ToLower(s)
		return slices.IndexFunc(weekdays, func(day string) bool { return len(s) >= 3 && (s == day[:3] || s == day) })
	}
	for part := range strings.SplitSeq(strings.Trim(word, ","), ",") {
		low, high, ranged := strings.Cut(part, "..")
		if !ranged {
			low, high, ranged = strings.Cut(part, "-")
		}
		if !ranged {
			high = low
		}
		from, to := one(low), one(high)
		if from < 0 || to < 0 {
			return nil, fmt.Errorf("%q is no weekday", shown(part))
		}
		for day := from; ; day = (day + 1) % 7 { // Sat..Mon wraps around
			out = append(out, (day+1)%7)
			if day == to {
				break
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// compose converts the parts of an expression.
func (c *calendar) compose(days, date, clock string) error {
	year, month, day, err := splitDate(date)
	if err != nil {
		return err
	}
	hms := strings.Split(clock, ":")
	if len(hms) == 2 {
		hms = append(hms, "0")
	}
	if len(hms) != 3 {
		return fmt.Errorf("the time %q is not understood", shown(clock))
	}

	fields := make([]string, 5)
	for i, part := range []struct {
		text     string
		min, max int
	}{{hms[2], 0, 59}, {hms[1], 0, 59}, {hms[0], 0, 23}, {day, 1, 31}, {month, 1, 12}} {
		if fields[i], err = calendarField(part.text, part.min, part.max); err != nil {
			return err
		}
	}
	second, minute, hour, dom, mon := fields[0], fields[1], fields[2], fields[3], fields[4]

	if yearNumber.MatchString(year) && days == "*" && !strings.ContainsAny(strings.Join(fields, " "), "*,-/") {
		return c.once(year, fields)
	}

	dow := "*"
	if days != "*" {
		list, err := weekdayList(days)
		if err != nil {
			return err
		}
		if dow = joinNumbers(list); dom != "*" {
			// systemd requires both day fields to match; in a cron line one match is enough.
			c.when, dow = append(c.when, c.local()+".Weekday().String() in "+weekdayNames(list)), "*"
		}
	}
	if year != "*" {
		years, err := calendarField(year, 1970, 2200)
		if err != nil || strings.Contains(years, "/") {
			return fmt.Errorf("the year %q is not understood", shown(year))
		}
		var tests []string
		for part := range strings.SplitSeq(years, ",") {
			low, high, ranged := strings.Cut(part, "-")
			if !ranged {
				high = low
			}
			tests = append(tests, c.local()+".Year() in "+low+".."+high)
		}
		c.when = append(c.when, strings.Join(tests, " or "))
	}

	c.cron = strings.Join([]string{minute, hour, dom, mon, dow}, " ")
	if second != "0" {
		c.cron = second + " " + c.cron
	}
	return nil
}

// local returns the expression for the scheduled time in the calendar's time zone, for use in
// conditions.
func (c *calendar) local() string {
	if c.zone == "" {
		return "Scheduled.Local()"
	}
	return fmt.Sprintf("Scheduled.In(timezone(%q))", c.zone)
}

// once converts an expression that matches a single moment.
func (c *calendar) once(year string, fields []string) error {
	n := make([]int, 5)
	for i, f := range fields {
		n[i], _ = strconv.Atoi(f)
	}
	y, _ := strconv.Atoi(year)
	if c.zone == "" {
		return fmt.Errorf("it is one moment, %s-%02d-%02d %02d:%02d:%02d, in the zone of its machine: write at: with that zone", year, n[4], n[3], n[2], n[1], n[0])
	}
	zone, err := time.LoadLocation(c.zone)
	if err != nil {
		return fmt.Errorf("the zone %q is not known", c.zone)
	}
	c.at, c.zone = time.Date(y, time.Month(n[4]), n[3], n[2], n[1], n[0], 0, zone).Format(time.RFC3339), ""
	return nil
}

func splitDate(date string) (year, month, day string, err error) {
	if strings.Contains(date, "~") {
		return "", "", "", fmt.Errorf("days that are counted from the end of a month (~) cannot be said")
	}
	parts := strings.Split(date, "-")
	switch len(parts) {
	case 2:
		return "*", parts[0], parts[1], nil
	case 3:
		return parts[0], parts[1], parts[2], nil
	}
	return "", "", "", fmt.Errorf("the date %q is not understood", shown(date))
}

// calendarField converts one component to a cron field: 1..5 becomes 1-5, 0/15 is unchanged.
func calendarField(text string, low, high int) (string, error) {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		body, step, stepped := strings.Cut(part, "/")
		from, to, ranged := strings.Cut(body, "..")
		item := "*"
		switch {
		case body == "*" && !ranged:
		case ranged:
			a, errA := number(from, low, high)
			b, errB := number(to, low, high)
			if errA != nil || errB != nil || b < a {
				return "", fmt.Errorf("%q is not understood", shown(part))
			}
			item = fmt.Sprintf("%d-%d", a, b)
		default:
			a, err := number(body, low, high)
			if err != nil {
				return "", err
			}
			item = strconv.Itoa(a)
		}

		if stepped {
			n, err := strconv.Atoi(step)
			if err != nil || n < 1 {
				return "", fmt.Errorf("the step %q is no whole number", shown(step))
			}
			switch first, _, _ := strings.Cut(item, "-"); {
			case n > high-low && item == "*":
				item = strconv.Itoa(low)
			case n > high-low:
				item = first
			default:
				item += "/" + strconv.Itoa(n)
			}
		}
		out = append(out, item)
	}
	if slices.Contains(out, "*") {
		return "*", nil
	}
	return strings.Join(out, ","), nil
}

// number parses an integer within a range. Fractions of a second are not supported.
func number(text string, low, high int) (int, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.Atoi(whole)
	if err != nil || n < low || n > high || strings.Trim(fraction, "0") != "" || strings.HasPrefix(text, "+") {
		return 0, fmt.Errorf("%q is no whole number from %d to %d", shown(text), low, high)
	}
	return n, nil
}

func joinNumbers(list []int) string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = strconv.Itoa(n)
	}
	return strings.Join(out, ",")
}

func weekdayNames(list []int) string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = "'" + time.Weekday(n).String() + "'"
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// spanPart matches a number with its unit in a duration as defined by systemd.time(7): 1h 30min,
// 90, 2.5d.
var spanPart = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµμ]*)\s*`)

// spanUnits maps units to seconds. As in systemd, a month has 30.44 days and a year 365.25.
var spanUnits = map[string]float64{
	"": 1, "usec": 1e-6, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "msec": 1e-3, "ms": 1e-3,
	"seconds": 1, "second": 1, "sec": 1, "s": 1, "minutes": 60, "minute": 60, "min": 60, "m": 60,
	"hours": 3600, "hour": 3600, "hr": 3600, "h": 3600, "days": 86400, "day": 86400, "d": 86400,
	"weeks": 604800, "week": 604800, "w": 604800, "months": 2630016, "month": 2630016, "M": 2630016, "years": 31557600, "year": 31557600, "y": 31557600,
}

// parseSpan parses a systemd duration.
func parseSpan(written string) (time.Duration, error) {
	wrong := fmt.Errorf("%q is no length of time", shown(written))
	rest, seconds := strings.TrimSpace(written), 0.0
	if rest == "" {
		return 0, wrong
	}
	for rest != "" {
		m := spanPart.FindStringSubmatch(rest)
		if m == nil {
			return 0, wrong
		}
		unit, known := spanUnits[m[2]]
		n, err := strconv.ParseFloat(m[1], 64)
		if !known || err != nil {
			return 0, wrong
		}
		seconds, rest = seconds+n*unit, rest[len(m[0]):]
	}
	if seconds*float64(time.Second) > math.MaxInt64/2 {
		return 0, fmt.Errorf("%q is too long", shown(written))
	}
	return time.Duration(math.Round(seconds * float64(time.Second))), nil
}

// setEvery sets the interval of a job, in whole seconds.
func (j *Job) setEvery(d time.Duration) {
	whole := max(d.Round(time.Second), time.Second)
	if whole != d {
		j.remark("every %s is every %s here", d, whole)
	}
	j.set("every", text.FormatSpan(whole))
}

// wall returns the bounds of a run: the given wall time, and the idle time of the defaults.
func wall(d time.Duration) raw {
	return raw("{wall: " + text.FormatSpan(max(d.Round(time.Second), time.Second)) + ", idle: 2h}")
}
