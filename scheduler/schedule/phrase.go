package schedule

import (
	"fmt"
	"strconv"
	"strings"
)

// phrases lists examples of schedules in words, for error messages.
const phrases = "hourly at :15, daily at 08:00, weekly on mon,thu at 08:00, monthly on 31 at 08:00, yearly on 12-24 at 08:00"

// isPhrase reports whether text appears to be a schedule in words.
func isPhrase(text string) bool {
	word, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(text)), " ")
	switch word {
	case "hourly", "daily", "weekly", "monthly", "yearly":
		return true
	}
	return false
}

// parsePhrase converts a phrase to a cron expression. If clamped is true, a day beyond the end of a
// month means its last day.
func parsePhrase(text string) (expression string, clamped bool, err error) {
	fail := func(why string) (string, bool, error) {
		return "", false, &Error{"schedule", text, why + "; in words a schedule is one of: " + phrases}
	}

	words := strings.Fields(strings.ToLower(text))
	period, rest := words[0], words[1:]
	on := ""
	if len(rest) > 1 && rest[0] == "on" {
		on, rest = rest[1], rest[2:]
	}
	if needs := period == "weekly" || period == "monthly" || period == "yearly"; needs != (on != "") {
		if needs {
			return fail(period + " needs a day")
		}
		return fail(period + " takes no day")
	}
	if strings.ContainsAny(on, "*?/") {
		return fail(fmt.Sprintf("%q is no list of days", on))
	}
	if len(rest) != 2 || rest[0] != "at" {
		return fail("the time is missing")
	}

	if period == "hourly" {
		minute, err := strconv.Atoi(strings.TrimPrefix(rest[1], ":"))
		if err != nil || len(rest[1]) != 3 || rest[1][0] != ':' || minute < 0 || minute > 59 {
			return fail(fmt.Sprintf("%q is no minute of an hour", rest[1]))
		}
		return fmt.Sprintf("%d * * * *", minute), false, nil
	}

	minutes, err := parseClock(rest[1])
	if err != nil || minutes == 24*60 {
		return fail(fmt.Sprintf("%q is no time of a day", rest[1]))
	}

	dom, month, dow := "*", "*", "*"
	switch period {
	case "weekly":
		dow = on
	case "monthly":
		dom = on
	case "yearly":
		var ok bool
		if month, dom, ok = strings.Cut(on, "-"); !ok {
			return fail(fmt.Sprintf("%q is no month and day", on))
		}
	}
	return fmt.Sprintf("%d %d %s %s %s", minutes%60, minutes/60, dom, month, dow), period == "monthly" || period == "yearly", nil
}
