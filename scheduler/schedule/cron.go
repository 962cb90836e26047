package schedule

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// fields are the fields of a cron expression as bit masks.
type fields struct {
	second, minute   uint64
	hour, dom        uint32
	month            uint16
	dow              uint8
	domStar, dowStar bool // begins with *; if neither does, one match is enough
	daily            bool // every date matches
	clamped          bool // a day beyond the end of a month means its last day
}

// everyHour reports whether every hour is allowed. Such a schedule runs in real time.
func (f *fields) everyHour() bool { return f.hour == 1<<24-1 }

type fieldRule struct {
	name     string
	min, max int
	names    []string
}

var fieldRules = []fieldRule{
	{"second", 0, 59, nil}, {"minute", 0, 59, nil}, {"hour", 0, 23, nil}, {"day-of-month", 1, 31, nil},
	{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{"day-of-week", 0, 7, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

var descriptors = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// parseCron parses a cron expression, descriptor or phrase. It checks each field itself, because
// robfig/cron accepts values like */100 and can panic.
func parseCron(text string) (f fields, err error) {
	expression, clamped := strings.TrimSpace(text), false
	if isPhrase(expression) {
		if expression, clamped, err = parsePhrase(expression); err != nil {
			return f, err
		}
	}
	if strings.HasPrefix(expression, "@") {
		known, ok := descriptors[strings.ToLower(expression)]
		if !ok {
			return f, &Error{"schedule", text, "is not one of @hourly, @daily, @weekly, @monthly, @yearly; in words: " + phrases + "; for lengths of time use every:"}
		}
		expression = known
	}

	parts := strings.Fields(expression)
	if len(parts) != 5 && len(parts) != 6 {
		return f, &Error{"schedule", text, fmt.Sprintf("has %d fields; five (minute hour day-of-month month day-of-week) or six (second first) are needed", len(parts))}
	}

	if len(parts) == 5 {
		parts = slices.Insert(parts, 0, "0")
	}

	f = fields{clamped: clamped, domStar: parts[3][0] == '*' || parts[3][0] == '?', dowStar: parts[5][0] == '*' || parts[5][0] == '?'}
	for i, rule := range fieldRules {
		if parts[i], err = rule.normalize(parts[i]); err != nil {
			return f, err
		}
	}

	// Recover from panics in robfig/cron that the checks above do not prevent.
	defer func() {
		if p := recover(); p != nil {
			f, err = fields{}, &Error{"schedule", text, fmt.Sprint("cannot be parsed: ", p)}
		}
	}()

	parser := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	parsed, err := parser.Parse(strings.Join(parts, " "))
	if err != nil {
		return f, &Error{"schedule", text, err.Error()}
	}

	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return f, &Error{"schedule", text, "is not a cron expression"}
	}

	// The masks remove the highest bit, with which robfig/cron marks a star.
	const minutes, hours, doms, months, dows = 1<<60 - 1, 1<<24 - 1, 1<<32 - 2, 1<<13 - 2, 1<<7 - 1
	f.second, f.minute, f.hour = spec.Second&minutes, spec.Minute&minutes, uint32(spec.Hour&hours)
	f.dom, f.month, f.dow = uint32(spec.Dom&doms), uint16(spec.Month&months), uint8(spec.Dow&dows)
	either := !f.domStar && !f.dowStar
	f.daily = f.month == months && (f.dom == doms && f.dow == dows || either && (f.dom == doms || f.dow == dows))

	return f, nil
}

// normalize checks a field and returns it as a list of numbers. It returns * and */n unchanged.
func (r fieldRule) normalize(text string) (string, error) {
	fail := func(why string) (string, error) {
		if strings.ContainsAny(text, "LW#") {
			why += " (L, W and # are not supported)"
		}
		return "", &Error{r.name, text, why}
	}

	var numbers []string
	for item := range strings.SplitSeq(text, ",") {
		body, stepText, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			var err error
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 || step > r.max-r.min || stepText[0] == '+' {
				return fail(fmt.Sprintf("the step %q must be a number from 1 to %d", stepText, r.max-r.min))
			}
		}

		if body == "*" || body == "?" {
			if text == item { // robfig/cron handles a star itself
				return strings.Replace(item, "?", "*", 1), nil
			}
			body = fmt.Sprintf("%d-%d", r.min, r.starMax())
		}

		low, high, ranged := strings.Cut(body, "-")
		if ranged && low == "" { // a negative number, not a range
			low, high, ranged = body, "", false
		}

		from, err := r.number(low)
		if err != nil {
			return fail(err.Error())
		}

		to := from
		switch {
		case ranged:
			if to, err = r.number(high); err != nil {
				return fail(err.Error())
			}
		case stepped:
			to = r.starMax()
		}
		if to < from {
			return fail(fmt.Sprintf("the range %s runs backwards; write it as two ranges", body))
		}

		for n := from; n <= to; n += step {
			if r.name == "day-of-week" && n == 7 {
				numbers = append(numbers, "0") // 7 also means Sunday
				continue
			}
			numbers = append(numbers, strconv.Itoa(n))
		}
	}

	return strings.Join(numbers, ","), nil
}

func (r fieldRule) starMax() int {
	if r.name == "day-of-week" {
		return 6
	}
	return r.max
}

func (r fieldRule) number(text string) (int, error) {
	if i := slices.Index(r.names, strings.ToLower(text)); i >= 0 {
		return i + r.min, nil
	}

	n, err := strconv.Atoi(text)
	if err != nil || n < r.min || n > r.max || strings.HasPrefix(text, "+") {
		if len(r.names) > 0 {
			return 0, fmt.Errorf("%q is neither a number from %d to %d nor one of %s", text, r.min, r.max, strings.Join(r.names, " "))
		}
		return 0, fmt.Errorf("%q is not a number from %d to %d", text, r.min, r.max)
	}

	return n, nil
}

// matchesDate reports whether a local date matches. If both day fields are restricted, one match is
// enough.
func (f *fields) matchesDate(d date) bool {
	if f.daily {
		return true
	}

	year, month, day := time.Unix(d.at(0, 0, 0), 0).UTC().Date()
	if f.month>>month&1 == 0 {
		return false
	}

	dom := f.dom>>day&1 == 1
	if f.clamped && !dom && f.dom>>day != 0 {
		// Compare with the last day of the month.
		dom = time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day() == day
	}
	dow := f.dow>>d.weekday()&1 == 1
	if f.domStar || f.dowStar {
		return dom && dow
	}

	return dom || dow
}

// nextInDay returns the first matching time of day at or after t. Times are in seconds since the
// start of the day.
func (f *fields) nextInDay(t int64) (int64, bool) {
	t = max(t, 0) // negative if the date is after the start of the search
	hour, minute, second := t/3600, t/60%60, t%60
	if t < daySeconds && f.hour>>hour&1 == 1 {
		if rest := f.second >> second; rest != 0 && f.minute>>minute&1 == 1 {
			return t + lowest(rest), true
		}
		if rest := f.minute >> (minute + 1); rest != 0 {
			return hour*3600 + (minute+1+lowest(rest))*60 + lowest(f.second), true
		}
	}

	if rest := uint64(f.hour) >> (hour + 1); rest != 0 {
		return (hour+1+lowest(rest))*3600 + lowest(f.minute)*60 + lowest(f.second), true
	}

	return 0, false
}

func lowest(set uint64) int64 { return int64(bits.TrailingZeros64(set)) }
