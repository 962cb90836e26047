package schedule_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"rouse/scheduler/schedule"
)

// FuzzParse checks that Parse never panics and that errors name a field. A parsed schedule goes
// forward within a limited time, even over clock changes, and matches crontab(5). The seeds are
// inputs that robfig/cron handles incorrectly.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"* * * * *", "0 0 29 2 *", "CRON_TZ=UTC 1-5/2 * ? * 7", "*/7 1,2-3 L * FRI#2", "TZ=Pacific/Apia 59 59 23 31 12 *",
		"TZ=0", "TZ=UTC", "CRON_TZ=UTC", "CRON_TZ= * * * * *", "0 0 31 2 *", "@every 0s", "@every -5m", "@every 500ms",
		"*/100 * * * *", "1,,2 * * * *", "0 0 * * 7", "0 0 * * 5-7", "@Daily", "0 0 L * *", "@reboot", "0 22-6 * * *",
		"0 0 */2 * 1", "0 0 1-31 * 1", "0 0 13 * *,5", "30/15 0-23 ? jan-DEC/2 sun", "-1 * * * *", "5- * * * *", "1/0 * * * *", "* * * * * * *",
	} {
		f.Add(seed, "", "", "", "")
	}

	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll", "Asia/Beirut", "America/Nuuk"} {
		f.Add("30 2 * * *", "", "", zone, "")
		f.Add("*/15 * * * *", "", "", zone, "2026-03-29..2026-03-30")
		f.Add("0,45 0-3,23 * * *", "", "", zone, "")
	}

	for _, every := range []string{"90m", "0s", "-5m", "500ms", "0.7d", "1d", "1e9d", "1s"} {
		f.Add("", every, "", "Europe/Berlin", "2026-12-24..2026-12-31")
		f.Add("", every, "", "", "0001-01-01..9999-12-31")
	}

	f.Add("", "", "2026-11-21T08:00:00+01:00", "Pacific/Apia", "2026-11-21")
	f.Fuzz(func(t *testing.T, cron, every, once, zone, exclude string) {
		o := schedule.Options{Cron: cron, Every: every, At: once, Timezone: zone, Jitter: time.Hour}
		if exclude != "" {
			o.Exclude = []string{exclude}
		}

		begin := time.Now()
		s, err := schedule.Parse(o)
		if err != nil {
			var e *schedule.Error
			if !errors.As(err, &e) || e.Field == "" || e.Reason == "" {
				t.Errorf("%+v: %v does not name a field", o, err)
			}
			return
		}

		checkForward(t, s, o)
		s.Due(at("2025-01-01 00:00"), schedule.DueOptions{Now: at("2026-01-01 00:00")}, schedule.Policy{})
		if s.Describe() == "" || s.Hash() == "" {
			t.Errorf("%+v has no words", o)
		}
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("%+v took %s", o, took)
		}

		if o.Cron != "" && o.Exclude == nil {
			checkFields(t, s, o)
		}
	})
}

// checkForward checks that all methods agree on the next instants.
func checkForward(t *testing.T, s *schedule.Schedule, o schedule.Options) {
	t.Helper()
	for from, n := at("2026-03-28 23:00"), 0; n < 5; n++ {
		next := s.Next(from)
		if next.IsZero() {
			break
		}
		if !next.After(from) || s.Actual(next).Before(next) {
			t.Fatalf("%+v: after %s comes %s, at %s", o, from, next, s.Actual(next))
		}
		if all, excluded := s.NextWithExcluded(from); all.After(next) || excluded == "" && !all.Equal(next) {
			t.Errorf("%+v: after %s comes %s, and with the excluded ones %s (%q)", o, from, next, all, excluded)
		}

		if before, after := s.LastAndNext(next); !before.Equal(next) || !after.Equal(s.Next(next)) || !s.Matches(next) {
			t.Errorf("%+v: around %s lie %s and %s", o, next, before, after)
		}

		from = next
	}
}

// checkFields parses the expression independently and compares two days with clock changes with the
// oracle.
func checkFields(t *testing.T, s *schedule.Schedule, o schedule.Options) {
	t.Helper()
	zone := s.Zone()
	expression := strings.TrimSpace(o.Cron)
	if strings.Contains(expression, "TZ=") {
		_, expression, _ = strings.Cut(expression, " ")
	}

	parts := strings.Fields(expression)
	switch len(parts) {
	case 5:
		read := readSpec(parts)
		for _, from := range []string{"2026-03-28 06:00", "2026-10-24 16:00", "2027-12-31 12:00"} {
			compareParsed(t, s, read, zone, at(from), at(from).Add(48*time.Hour))
		}
	case 6:
		read, seconds := readSpec(parts[1:]), readField(parts[0], 0, 59, "")
		for next, n := s.Next(at("2027-01-01 12:00")), 0; n < 5; next, n = s.Next(next), n+1 {
			local := next.In(zone)
			if s.ClockChangeNote(next) == "" && (!seconds.has(local.Second()) || !read.on(reading(next, zone))) {
				t.Errorf("%+v fires at %s", o, local)
			}
		}
	}
}

// readSpec parses five valid fields.
func readSpec(parts []string) spec {
	s := spec{
		minute: readField(parts[0], 0, 59, ""), hour: readField(parts[1], 0, 23, ""), dom: readField(parts[2], 1, 31, ""),
		month: readField(parts[3], 1, 12, "    jan feb mar apr may jun jul aug sep oct nov dec"), dow: readField(parts[4], 0, 6, "sun mon tue wed thu fri sat"),
	}
	if s.dow.has(7) {
		s.dow.values = append(s.dow.values, 0)
	}

	return s
}

// readField expands the items of a list. Names are numbered by position.
func readField(text string, low, high int, names string) field {
	f := field{text: strings.ReplaceAll(text, "?", "*")}
	number := func(word string) int {
		if i := strings.Index(names, strings.ToLower(word)); i >= 0 && word != "" {
			return i / 4
		}
		n, _ := strconv.Atoi(word)
		return n
	}

	for item := range strings.SplitSeq(f.text, ",") {
		body, every, stepped := strings.Cut(item, "/")
		step, from, to := 1, low, high
		if stepped {
			step = number(every)
		}

		if a, b, ranged := strings.Cut(body, "-"); ranged {
			from, to = number(a), number(b)
		} else if body != "*" {
			if from = number(body); !stepped {
				to = from
			}
		}

		for n := from; n <= to; n += step {
			if !slices.Contains(f.values, n) {
				f.values = append(f.values, n)
			}
		}
	}

	return f
}
