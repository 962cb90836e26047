package executor

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Limit is a configured sentence with which a program reports that its model cannot be used for
// now.
type Limit struct {
	Match *regexp.Regexp
	Wait  time.Duration // 0 means until the time in the sentence
}

// Limits of waits.
const (
	longestWait = 8 * 24 * time.Hour
	nonsense    = 40 * 24 * time.Hour // a time that is further away is invalid
	lateness    = 15 * time.Minute    // a time of day less than this ago counts as today
)

const day = 24 * time.Hour

// sentences is the table of sentences with which programs report a limit of a plan or an outage
// (docs/guides/coding-agents.md). The first match applies.
var sentences = []struct {
	match    *regexp.Regexp
	most     time.Duration // longest wait for a limit of this kind
	midnight string        // zone in which the limit resets at midnight, if the sentence states no time
	account  bool          // waiting does not help, unless the sentence states a time
}{
	{regexp.MustCompile(`(?i)credit balance is too low|insufficient.quota|check your plan and billing|payment required|spending (?:limit|cap)`), longestWait, "", true},
	{regexp.MustCompile(`(?i)\b(?:session|(?:5|five).hours?) limit\b`), 5 * time.Hour, "", false},
	{regexp.MustCompile(`(?i)\bdaily (?:\w+ )?(?:limit|quota)|per day\b`), day, "America/Los_Angeles", false}, // Gemini; other providers state a time
	{regexp.MustCompile(`(?i)\b(?:weekly|7.day|opus|sonnet|haiku|fable) (?:\w+ )?limit\b`), 7 * day, "", false},
	{regexp.MustCompile(`(?i)\bextra usage\b|\busage limit|\b(?:hit|reached|exceeded) your (?:\w+ )?limit\b|\blimit reached\b`), longestWait, "", false},
	{regexp.MustCompile(`(?i)\bquota (?:exceeded|will reset)|exhausted your|has been exhausted`), longestWait, "", false},
	{regexp.MustCompile(`(?i)\b(?:rate.?limit|overloaded|too many requests|service unavailable|high demand|no capacity available|temporarily limiting|429|529|503)\b`), day, "", false},
}

// limitOf reports whether a failure means that the model cannot be used for now. until is the time
// that the sentence states, if any. zone is the time zone of the program.
func limitOf(why string, own []Limit, now time.Time, zone *time.Location) (until time.Time, limited bool) {
	why = strings.Join(strings.Fields(why), " ") // also replaces the narrow space before PM
	for _, l := range own {
		if l.Match.MatchString(why) {
			if l.Wait > 0 {
				return now.Add(l.Wait), true
			}
			return bounded(statedTime(why, now, zone), now, longestWait), true
		}
	}

	for _, s := range sentences {
		if !s.match.MatchString(why) {
			continue
		}
		until = bounded(statedTime(why, now, zone), now, s.most)
		if until.IsZero() && s.midnight != "" {
			if there, err := time.LoadLocation(s.midnight); err == nil {
				y, m, d := now.In(there).Date()
				until = time.Date(y, m, d+1, 0, 0, 0, 0, there)
			}
		}
		return until, !s.account || !until.IsZero()
	}
	return time.Time{}, false
}

// bounded returns at, limited to the longest wait. It returns the zero time if at is past or
// invalid.
func bounded(at, now time.Time, most time.Duration) time.Time {
	switch wait := at.Sub(now); {
	case at.IsZero() || wait <= 0 || wait > nonsense:
		return time.Time{}
	case wait > most:
		return now.Add(most)
	}
	return at
}

// Patterns of times in sentences.
var (
	statedEpoch   = regexp.MustCompile(`\|(\d{10})\b`)
	statedInstant = regexp.MustCompile(`\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)`)
	statedWait    = regexp.MustCompile(`(?i)\b(?:in|after) ((?:\d+(?:\.\d+)? ?(?:days?|d|hours?|hrs?|h|minutes?|mins?|ms|m|seconds?|secs?|s)[ ,]*(?:and )?)+)`)
	waitPart      = regexp.MustCompile(`(?i)(\d+(?:\.\d+)?) ?(d|h|ms|m|s)`)
	statedClock   = regexp.MustCompile(`(?i)\b(?:resets?|again|retry|until):?(?: at| on)? ` +
		`(?:(?:(today|tomorrow)|(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? (\d{1,2})(?:st|nd|rd|th)?(?:,? (20\d\d))?)(?:,? at|,)? )?` +
		`(\d{1,2})(?::(\d\d))?(?::\d\d)? ?(?:([ap])\.?m\b\.?)?(?: ?\(([\w+/-]+)\)| (UTC|GMT)\b)?`)
)

// statedTime returns the time that a sentence states, or the zero time.
func statedTime(why string, now time.Time, zone *time.Location) time.Time {
	if m := statedEpoch.FindStringSubmatch(why); m != nil {
		at, _ := strconv.ParseInt(m[1], 10, 64) // the pattern matches ten digits
		return time.Unix(at, 0)
	}
	if at, err := time.Parse(time.RFC3339, strings.Replace(statedInstant.FindString(why), " ", "T", 1)); err == nil {
		return at
	}
	if m := statedWait.FindStringSubmatch(why); m != nil {
		units := map[string]time.Duration{"d": day, "h": time.Hour, "m": time.Minute, "s": time.Second, "ms": time.Millisecond}
		var wait time.Duration
		for _, part := range waitPart.FindAllStringSubmatch(m[1], -1) {
			if n, err := strconv.ParseFloat(part[1], 64); err == nil && n < 10_000 {
				wait += time.Duration(n * float64(units[strings.ToLower(part[2])]))
			}
		}
		return now.Add(wait)
	}
	if m := statedClock.FindStringSubmatch(why); m != nil {
		return clockTime(m, now, zone)
	}
	return time.Time{}
}

// clockTime returns the time of a match of statedClock: a date or the next such time of day. The
// zone is the stated zone, or else that of the program.
func clockTime(m []string, now time.Time, zone *time.Location) time.Time {
	atoi := func(s string) int {
		n, _ := strconv.Atoi(s) // at most a few digits
		return n
	}
	hour, minute := atoi(m[5]), atoi(m[6])
	switch half := strings.ToLower(m[7]); {
	case half == "" && m[6] == "": // a number that is not a time
		return time.Time{}
	case half != "" && (hour < 1 || hour > 12), hour > 23, minute > 59:
		return time.Time{}
	case half == "a":
		hour %= 12
	case half == "p":
		hour = hour%12 + 12
	}

	if there, err := time.LoadLocation(cmp.Or(m[8], m[9])); err == nil && m[8]+m[9] != "" {
		zone = there
	}
	year, month, d := now.In(zone).Date()
	switch {
	case m[2] != "" && m[4] != "":
		named, err := time.Parse("Jan", m[2][:3])
		if err != nil {
			return time.Time{}
		}
		return time.Date(atoi(m[4]), named.Month(), atoi(m[3]), hour, minute, 0, 0, zone)
	case m[2] != "":
		named, err := time.Parse("Jan", m[2][:3])
		if err != nil {
			return time.Time{}
		}
		nearest := time.Date(year, named.Month(), atoi(m[3]), hour, minute, 0, 0, zone)
		for _, y := range []int{year - 1, year + 1} {
			if at := time.Date(y, named.Month(), atoi(m[3]), hour, minute, 0, 0, zone); at.Sub(now).Abs() < nearest.Sub(now).Abs() {
				nearest = at
			}
		}
		return nearest
	case strings.EqualFold(m[1], "tomorrow"):
		return time.Date(year, month, d+1, hour, minute, 0, 0, zone)
	}

	at := time.Date(year, month, d, hour, minute, 0, 0, zone)
	if m[1] == "" && now.Sub(at) > lateness {
		at = time.Date(year, month, d+1, hour, minute, 0, 0, zone)
	}
	return at
}

// zoneOf returns the time zone of a program with the given environment.
func zoneOf(env []string) *time.Location {
	for _, setting := range env {
		if name, ok := strings.CutPrefix(setting, "TZ="); ok {
			if zone, err := time.LoadLocation(strings.TrimPrefix(name, ":")); err == nil {
				return zone
			}
		}
	}
	return time.Local
}

// noteLimit records whether a failure reports that the model cannot be used for now, and until
// when.
func (r *Reader) noteLimit(why string) {
	until, limited := limitOf(why, r.limits, r.now(), r.zone)
	if !limited {
		return
	}
	r.Unavailable = true
	if r.RetryAt.IsZero() { // a time from an event is more precise
		r.RetryAt = until
	}
}

// noteLastWords looks for such a report of a program that failed before it printed a result. It
// reads the output if this is a single line, or else the last line of the error output.
func (r *Reader) noteLastWords(stdout, stderr string) {
	if r.json && r.Dialect != "" || r.Turns+r.Calls > 0 {
		return
	}
	said := strings.TrimSpace(stdout)
	if said == "" {
		said = strings.TrimSpace(stderr)
		said = said[strings.LastIndexByte(said, '\n')+1:]
	}
	if strings.ContainsRune(said, '\n') {
		return
	}
	if r.noteLimit(clip(said, 2000)); r.Unavailable {
		r.Written = 0 // the model did not write it
	}
}
