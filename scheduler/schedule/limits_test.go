package schedule_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/internal/contract"
	"rouse/scheduler/schedule"
)

// TestPreset checks the limits of the four modes (OSA-72).
func TestPreset(t *testing.T) {
	row := contract.Of(t, "OSA-72")
	days := func(literal string) time.Duration { return time.Duration(row.Number(literal)) * 24 * time.Hour }
	minutes := func(literal string) time.Duration { return time.Duration(row.Number(literal)) * time.Minute }
	clock := func(literal string) int {
		at, err := time.Parse("15:04", row.Quote(literal))
		if err != nil {
			t.Fatal(err)
		}
		return at.Hour()*60 + at.Minute()
	}

	night, week := schedule.Quiet{From: clock("22:00"), To: clock("07:00")}, uint8(row.Number("127"))
	for _, want := range []schedule.Limits{
		{Mode: schedule.Mode(row.Quote("ambient")), Horizon: days("7"), MinInterval: minutes("60"), DailyCap: row.Number("6"), Quiet: night, Days: week},
		{Mode: schedule.Mode(row.Quote("reactive")), Horizon: days("1"), MinInterval: minutes("5"), DailyCap: row.Number("48"), Days: week},
		{Mode: schedule.Mode(row.Quote("project")), Horizon: days("30"), MinInterval: minutes("60"), DailyCap: row.Number("4"), Quiet: night, Days: week},
		{Mode: schedule.Mode(row.Quote("manual")), Horizon: days("7"), MinInterval: minutes("15"), DailyCap: row.Number("0"), Days: week},
	} {
		if got, ok := schedule.Preset(want.Mode); !ok || got != want {
			t.Errorf("%s: %+v", want.Mode, got)
		}
	}

	if _, ok := schedule.Preset("eager"); ok {
		t.Error("there is no mode eager")
	}
}

func preset(m schedule.Mode, change func(*schedule.Limits)) schedule.Limits {
	l, _ := schedule.Preset(m)
	if change != nil {
		change(&l)
	}
	return l
}

// TestClampRejects checks the reasons for rejecting an agent's request, of which the first applies
// (OSA-73). The owner's requests are accepted. A daily cap of 0 means no limit (OSA-74).
func TestClampRejects(t *testing.T) {
	chained := func(l *schedule.Limits) { l.MaxChain = 3 }
	for name, c := range map[string]struct {
		limits schedule.Limits
		depth  int
		usage  schedule.Usage
		want   string
	}{
		"manual, before everything else": {preset(schedule.ModeManual, chained), 9, schedule.Usage{Started: 9, Paused: true}, schedule.ReasonManual},
		"cap, before the pause":          {preset(schedule.ModeProject, chained), 9, schedule.Usage{Started: 4, Paused: true}, schedule.ReasonDailyCap},
		"cap exceeded after an override": {preset(schedule.ModeAmbient, nil), 0, schedule.Usage{Started: 48}, schedule.ReasonDailyCap},
		"paused, before the chain":       {preset(schedule.ModeReactive, chained), 9, schedule.Usage{Started: 47, Paused: true}, schedule.ReasonPaused},
		"third wake in a row asks":       {preset(schedule.ModeReactive, chained), 3, schedule.Usage{}, schedule.ReasonChain},
		"second wake in a row asks":      {preset(schedule.ModeReactive, chained), 2, schedule.Usage{}, ""},
		"no end to the chain":            {preset(schedule.ModeReactive, nil), 1000, schedule.Usage{}, ""},
		"no cap":                         {preset(schedule.ModeReactive, func(l *schedule.Limits) { l.DailyCap = 0 }), 0, schedule.Usage{Started: 1000}, ""},
		"no day":                         {preset(schedule.ModeReactive, func(l *schedule.Limits) { l.Days = 0 }), 0, schedule.Usage{}, schedule.ReasonDay},
	} {
		t.Run(name, func(t *testing.T) {
			now := at("2026-11-21 08:00")
			ask := schedule.WakeRequest{At: now.Add(2 * time.Hour), Depth: c.depth}
			got := c.limits.Clamp(now, ask, c.usage)
			want := schedule.ClampResult{At: ask.At}
			if c.want != "" {
				want = schedule.ClampResult{Reasons: []string{c.want}, Rejected: true}
				if w := schedule.Warning(c.want, c.limits, got); !strings.HasPrefix(w, "Not planned: ") || !strings.HasSuffix(w, ".") {
					t.Errorf("warning %q", w)
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%+v, want %+v", got, want)
			}

			ask.ByUser = true
			if got := c.limits.Clamp(now, ask, c.usage); !reflect.DeepEqual(got, schedule.ClampResult{At: ask.At}) {
				t.Errorf("the owner gets %+v", got)
			}
		})
	}
}

// clampCase is a request with the expected result, in UTC.
type clampCase struct {
	limits    schedule.Limits
	now, ask  string
	byUser    bool
	want, why string
}

func (c clampCase) check(t *testing.T) {
	t.Helper()
	got := c.limits.Clamp(at(c.now), schedule.WakeRequest{At: at(c.ask), ByUser: c.byUser}, schedule.Usage{})
	if !got.At.Equal(at(c.want)) || strings.Join(got.Reasons, " ") != c.why || got.Rejected {
		t.Errorf("%s for %q, want %s for %q", got.At, got.Reasons, c.want, c.why)
	}
}

// TestClampMoves checks each step of Clamp and their order (OSA-73). 2026-11-21 is a Saturday.
func TestClampMoves(t *testing.T) {
	ambient, reactive, project, manual := preset(schedule.ModeAmbient, nil), preset(schedule.ModeReactive, nil), preset(schedule.ModeProject, nil), preset(schedule.ModeManual, nil)
	weekdays := preset(schedule.ModeAmbient, func(l *schedule.Limits) { l.Days = 62 })
	noon := preset(schedule.ModeReactive, func(l *schedule.Limits) { l.Quiet = schedule.Quiet{From: 12 * 60, To: 13 * 60} })
	backwards := preset(schedule.ModeReactive, func(l *schedule.Limits) { l.MinInterval, l.Horizon = 2*time.Hour, time.Hour })
	for name, c := range map[string]clampCase{
		"inside all limits":            {ambient, "2026-11-21 08:00", "2026-11-21 10:00", false, "2026-11-21 10:00", ""},
		"past is now":                  {preset(schedule.ModeReactive, func(l *schedule.Limits) { l.MinInterval = 0 }), "2026-11-21 08:00", "2020-01-01 00:00", false, "2026-11-21 08:00", ""},
		"past, the owner's":            {reactive, "2026-11-21 08:00", "2020-01-01 00:00", true, "2026-11-21 08:00", ""},
		"past, too soon":               {reactive, "2026-11-21 08:00", "2020-01-01 00:00", false, "2026-11-21 08:05", "min_interval"},
		"exactly the least":            {reactive, "2026-11-21 08:00", "2026-11-21 08:05", false, "2026-11-21 08:05", ""},
		"exactly the most":             {reactive, "2026-11-21 08:00", "2026-11-22 08:00", false, "2026-11-22 08:00", ""},
		"too far":                      {reactive, "2026-11-21 08:00", "2026-11-22 08:01", false, "2026-11-22 08:00", "max_horizon"},
		"too far, project":             {project, "2026-11-21 08:00", "2027-11-21 08:00", false, "2026-12-21 08:00", "max_horizon"},
		"too far, the owner's":         {manual, "2026-11-21 08:00", "2027-01-01 00:00", true, "2026-11-28 08:00", "max_horizon"},
		"soon, at night, the owner's":  {weekdays, "2026-11-21 23:00", "2026-11-21 23:01", true, "2026-11-21 23:01", ""},
		"no horizon":                   {preset(schedule.ModeReactive, func(l *schedule.Limits) { l.Horizon = 0 }), "2026-11-21 08:00", "2036-11-21 08:00", false, "2036-11-21 08:00", ""},
		"least above most":             {backwards, "2026-11-21 08:00", "2026-11-21 08:00", false, "2026-11-21 09:00", "min_interval max_horizon"},
		"quiet hours begin":            {ambient, "2026-11-21 08:00", "2026-11-21 22:00", false, "2026-11-22 07:00", "quiet_hours"},
		"just before quiet hours":      {ambient, "2026-11-21 08:00", "2026-11-21 21:59:59", false, "2026-11-21 21:59:59", ""},
		"quiet hours after midnight":   {ambient, "2026-11-21 08:00", "2026-11-22 06:59:59", false, "2026-11-22 07:00", "quiet_hours"},
		"quiet hours end":              {ambient, "2026-11-21 08:00", "2026-11-22 07:00", false, "2026-11-22 07:00", ""},
		"quiet hours within a day":     {noon, "2026-11-21 08:00", "2026-11-21 12:30", false, "2026-11-21 13:00", "quiet_hours"},
		"soon, into quiet hours":       {ambient, "2026-11-21 21:30", "2026-11-21 21:31", false, "2026-11-22 07:00", "min_interval quiet_hours"},
		"far, beyond it by quiet":      {ambient, "2026-11-21 23:00", "2027-01-01 00:00", false, "2026-11-29 07:00", "max_horizon quiet_hours"},
		"Saturday to Monday":           {weekdays, "2026-11-20 08:00", "2026-11-21 10:20", false, "2026-11-23 10:20", "day_not_allowed"},
		"Friday night to Monday":       {weekdays, "2026-11-20 08:00", "2026-11-20 23:00", false, "2026-11-23 07:00", "quiet_hours day_not_allowed"},
		"Sunday night to Monday":       {weekdays, "2026-11-20 08:00", "2026-11-22 23:00", false, "2026-11-23 07:00", "quiet_hours"},
		"only Saturdays, six days on":  {preset(schedule.ModeAmbient, func(l *schedule.Limits) { l.Days = 64 }), "2026-11-22 08:00", "2026-11-22 10:00", false, "2026-11-28 10:00", "day_not_allowed"},
		"all steps":                    {preset(schedule.ModeAmbient, func(l *schedule.Limits) { l.Days, l.MinInterval, l.Horizon = 2, 16*time.Hour, 15*time.Hour }), "2026-11-21 08:00", "2026-11-21 08:00", false, "2026-11-23 07:00", "min_interval max_horizon quiet_hours day_not_allowed"},
		"bits beyond the week are not": {preset(schedule.ModeReactive, func(l *schedule.Limits) { l.Days = 128 | 1 }), "2026-11-21 08:00", "2026-11-21 12:00", false, "2026-11-22 12:00", "day_not_allowed"},
	} {
		t.Run(name, c.check)
	}
}

func in(t *testing.T, zone string, mode schedule.Mode, quiet string, days ...string) schedule.Limits {
	t.Helper()
	location, errZone := time.LoadLocation(zone)
	q, errQuiet := schedule.ParseQuiet(quiet)
	mask, errDays := schedule.ParseDays(days)
	if err := errors.Join(errZone, errQuiet, errDays); err != nil {
		t.Fatal(err)
	}

	return preset(mode, func(l *schedule.Limits) {
		l.Zone, l.Quiet = location, q
		if len(days) > 0 {
			l.Days = mask
		}
	})
}

// TestClampInZones checks that quiet hours and days use local time, even on days with clock changes
// (OSA-73).
func TestClampInZones(t *testing.T) {
	const berlin = "Europe/Berlin"
	for name, c := range map[string]clampCase{
		// Berlin changes from 02:00 to 03:00 on 2026-03-29 and from 03:00 to 02:00 on 2026-10-25.
		"end after the gap":            {in(t, berlin, schedule.ModeProject, "22:00-07:00"), "2026-03-28 12:00", "2026-03-28 23:00", false, "2026-03-29 05:00", "quiet_hours"},
		"end in the gap":               {in(t, berlin, schedule.ModeProject, "22:00-02:30"), "2026-03-28 12:00", "2026-03-29 00:30", false, "2026-03-29 01:00", "quiet_hours"},
		"the gap leads into the next":  {in(t, berlin, schedule.ModeProject, "02:45-02:30"), "2026-03-28 12:00", "2026-03-29 00:30", false, "2026-03-30 00:30", "quiet_hours"},
		"whole hours in the gap":       {in(t, berlin, schedule.ModeProject, "02:00-03:00"), "2026-03-28 12:00", "2026-03-29 01:00", false, "2026-03-29 01:00", ""},
		"end comes twice":              {in(t, berlin, schedule.ModeProject, "22:00-02:30"), "2026-10-24 12:00", "2026-10-24 23:00", false, "2026-10-25 00:30", "quiet_hours"},
		"between two ends":             {in(t, berlin, schedule.ModeProject, "22:00-02:30"), "2026-10-24 12:00", "2026-10-25 00:45", false, "2026-10-25 00:45", ""},
		"quiet again after the first":  {in(t, berlin, schedule.ModeProject, "22:00-02:30"), "2026-10-24 12:00", "2026-10-25 01:10", false, "2026-10-25 01:30", "quiet_hours"},
		"begin comes twice":            {in(t, berlin, schedule.ModeProject, "02:30-07:00"), "2026-10-24 12:00", "2026-10-25 00:40", false, "2026-10-25 06:00", "quiet_hours"},
		"Lord Howe, end in its gap":    {in(t, "Australia/Lord_Howe", schedule.ModeProject, "22:00-02:15"), "2026-10-03 00:00", "2026-10-03 15:00", false, "2026-10-03 15:30", "quiet_hours"},
		"Apia, end on the skipped day": {in(t, "Pacific/Apia", schedule.ModeProject, "22:00-07:00"), "2011-12-29 20:00", "2011-12-30 09:00", false, "2011-12-30 17:00", "quiet_hours"},
		"midnight is the end":          {in(t, berlin, schedule.ModeProject, "22:00-24:00"), "2026-11-21 08:00", "2026-11-21 21:30", false, "2026-11-21 23:00", "quiet_hours"},
		"midnight does not exist":      {in(t, "Asia/Beirut", schedule.ModeProject, "22:00-24:00"), "2026-03-28 12:00", "2026-03-28 21:00", false, "2026-03-28 22:00", "quiet_hours"},
		"the local day counts":         {in(t, "Pacific/Auckland", schedule.ModeProject, "none", "mon-fri"), "2026-11-20 08:00", "2026-11-20 12:00", false, "2026-11-22 12:00", "day_not_allowed"},
		"local time over the change":   {in(t, berlin, schedule.ModeProject, "none", "sun"), "2026-03-27 08:00", "2026-03-28 09:15", false, "2026-03-29 08:15", "day_not_allowed"},
		"kept time in the gap":         {in(t, berlin, schedule.ModeProject, "none", "sun"), "2026-03-27 08:00", "2026-03-28 01:15", false, "2026-03-29 01:00", "day_not_allowed"},
		"kept time comes twice":        {in(t, berlin, schedule.ModeProject, "none", "sun"), "2026-10-23 08:00", "2026-10-24 00:15", false, "2026-10-25 00:15", "day_not_allowed"},
		"the only day was skipped":     {in(t, "Pacific/Apia", schedule.ModeProject, "none", "fri"), "2011-12-29 00:00", "2011-12-29 19:00", false, "2012-01-05 19:00", "day_not_allowed"},
		// Nuuk left Saturday, 2026-03-28, an hour early, so 23:30 is on Sunday.
		"a gap leads to another day":    {in(t, "America/Nuuk", schedule.ModeProject, "none", "sat"), "2026-03-26 00:00", "2026-03-28 01:30", false, "2026-04-05 00:30", "day_not_allowed"},
		"the owner's, whatever it says": {in(t, berlin, schedule.ModeManual, "02:45-02:30", "mon"), "2026-03-28 12:00", "2026-03-29 00:30", true, "2026-03-29 00:30", ""},
	} {
		t.Run(name, c.check)
	}
}

// TestClampProperties checks properties of accepted requests of an agent (OSA-73). The result is
// not before now and is on an allowed day. It is outside of quiet hours, unless the last step moved
// it to a day with a clock change that ends in them. Only the last two steps can move it past the
// horizon. The result is deterministic.
func TestClampProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(zones).Draw(t, "zone")
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}

		minute := rapid.IntRange(0, 24*60-1)
		l := schedule.Limits{
			Mode:    schedule.ModeProject,
			Horizon: time.Duration(rapid.IntRange(0, 60*24).Draw(t, "horizon")) * time.Hour, MinInterval: time.Duration(rapid.IntRange(0, 3000).Draw(t, "least")) * time.Minute,
			Quiet: schedule.Quiet{From: minute.Draw(t, "from"), To: minute.Draw(t, "to")},
			Days:  uint8(rapid.IntRange(0, 127).Draw(t, "days")), Zone: zone,
		}

		now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.Int64Range(0, 40*366*24*3600).Draw(t, "now")) * time.Second)
		if around := changes(zone); len(around) > 0 && rapid.Bool().Draw(t, "near a change") {
			now = rapid.SampledFrom(around).Draw(t, "change").Add(-time.Duration(rapid.IntRange(0, 200*3600).Draw(t, "before")) * time.Second)
		}

		ask := schedule.WakeRequest{At: now.Add(time.Duration(rapid.Int64Range(-100, 200*3600).Draw(t, "ask")) * time.Second), ByUser: rapid.IntRange(0, 9).Draw(t, "user") == 0}
		c := l.Clamp(now, ask, schedule.Usage{})
		if !reflect.DeepEqual(c, l.Clamp(now, ask, schedule.Usage{})) {
			t.Fatal("the same wish has two answers")
		}

		if c.Rejected {
			if l.Days != 0 || ask.ByUser {
				t.Fatalf("%+v: rejected for %q", l, c.Reasons)
			}
			return
		}

		if c.At.Before(now) {
			t.Fatalf("%s is before now, %s", c.At, now)
		}

		last := now.Add(l.Horizon)
		moved := func(reason string) bool { return slices.Contains(c.Reasons, reason) }
		if l.Horizon > 0 && c.At.After(last) && (ask.ByUser || !moved(schedule.ReasonQuiet) && !moved(schedule.ReasonDay)) {
			t.Fatalf("%s is behind the horizon, %s, for %q", c.At, last, c.Reasons)
		}

		if !ask.ByUser {
			checkAccepted(t, l, c)
		}
	})
}

func checkAccepted(t *rapid.T, l schedule.Limits, c schedule.ClampResult) {
	local := c.At.In(l.Zone)
	if l.Days>>local.Weekday()&1 == 0 {
		t.Fatalf("%s is on no allowed day (%b)", local, l.Days)
	}
	if !quiet(l.Quiet, local) {
		return
	}

	// Only a clock change just before the time can have moved it.
	_, offset := local.Zone()
	_, before := c.At.Add(-time.Second).In(l.Zone).Zone()
	if !slices.Contains(c.Reasons, schedule.ReasonDay) || offset <= before {
		t.Fatalf("%s is in the quiet hours %s", local, l.Quiet)
	}
}

// quiet iterates over the quiet hours by minute.
func quiet(q schedule.Quiet, local time.Time) bool {
	for m := q.From; m != q.To; m = (m + 1) % (24 * 60) {
		if local.Hour()*60+local.Minute() == m {
			return true
		}
	}
	return false
}

func TestWakesLeft(t *testing.T) {
	for mode, want := range map[schedule.Mode][3]int{schedule.ModeAmbient: {6, 1, 0}, schedule.ModeProject: {4, 0, 0}, schedule.ModeManual: {0, 0, 0}} {
		for i, started := range []int{0, 5, 60} {
			if got := preset(mode, nil).WakesLeft(schedule.Usage{Started: started}); got != want[i] {
				t.Errorf("%s after %d wakes: %d, want %d", mode, started, got, want[i])
			}
		}
	}
	if got := preset(schedule.ModeAmbient, func(l *schedule.Limits) { l.DailyCap = 0 }).WakesLeft(schedule.Usage{Started: 9}); got != -1 {
		t.Errorf("without a cap: %d", got)
	}
}

func TestWarning(t *testing.T) {
	l := in(t, "Europe/Berlin", schedule.ModeAmbient, "22:00-07:00", "mon-fri")
	l.MaxChain = 5
	c := schedule.ClampResult{At: at("2026-11-23 06:00")}
	then := "; the wake is now planned for Mon 2026-11-23 07:00 CET."
	for reason, want := range map[string]string{
		schedule.ReasonManual:      "Not planned: in manual mode only the owner plans when this agent wakes.",
		schedule.ReasonDailyCap:    "Not planned: this agent may wake itself 6 times in 24 hours, and has.",
		schedule.ReasonPaused:      "Not planned: this agent is paused until its owner resumes it or the pause ends.",
		schedule.ReasonChain:       "Not planned: this agent woke itself 5 times in a row; something else has to start it before it may plan a wake again.",
		schedule.ReasonMinInterval: "A wake must be at least 1h from now" + then,
		schedule.ReasonHorizon:     "A wake can be at most 7d from now" + then,
		schedule.ReasonQuiet:       "This agent does not wake itself in its quiet hours, 22:00-07:00" + then,
		schedule.ReasonDay:         "This agent wakes itself only on Monday to Friday" + then,
	} {
		if got := schedule.Warning(reason, l, c); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
}

func TestParseQuiet(t *testing.T) {
	for text, want := range map[string]string{
		"22:00-07:00": "22:00-07:00", "22:00–07:00": "22:00-07:00", " 9:30 - 17:05 ": "09:30-17:05", "22:00-24:00": "22:00-00:00",
		"none": "none", "None": "none", "08:00-08:00": "none",
	} {
		got, err := schedule.ParseQuiet(text)
		if err != nil || got.String() != want {
			t.Errorf("%q: %s %v, want %s", text, got, err, want)
		}
		if again, err := schedule.ParseQuiet(got.String()); err != nil || again.String() != want {
			t.Errorf("%q: %s is not read again: %v", text, got, err)
		}
	}
	for _, text := range []string{"", "22-7", "22:00", "22:00-", "-07:00", "25:00-07:00", "24:00-07:00", "00:00-24:00", "22:60-07:00", "22:00-07:00-08:00", "22:00:00-07:00", "night"} {
		_, err := schedule.ParseQuiet(text)
		var e *schedule.Error
		if !errors.As(err, &e) || e.Field != "quiet_hours" || e.Value != text {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// End is never before its argument and equals it outside of quiet hours.
func TestQuietEnd(t *testing.T) {
	for name, c := range map[string]struct{ quiet, at, want string }{
		"none":                    {"none", "2026-11-21 08:00", "2026-11-21 08:00"},
		"at their begin":          {"22:00-07:00", "2026-11-21 22:00", "2026-11-22 07:00"},
		"at their begin, by day":  {"12:00-13:00", "2026-11-21 12:00", "2026-11-21 13:00"},
		"at their end":            {"22:00-07:00", "2026-11-21 07:00", "2026-11-21 07:00"},
		"before midnight":         {"22:00-07:00", "2026-11-21 22:30", "2026-11-22 07:00"},
		"all but half an hour":    {"13:00-12:30", "2026-11-21 13:50", "2026-11-22 12:30"},
		"until the next midnight": {"22:00-24:00", "2026-11-21 23:59", "2026-11-22 00:00"},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := schedule.ParseQuiet(c.quiet)
			if err != nil {
				t.Fatal(err)
			}
			if got := q.End(at(c.at), time.UTC); !got.Equal(at(c.want)) {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestParseDays(t *testing.T) {
	for text, want := range map[string]uint8{
		"sun": 1, "Monday": 2, "TUE": 4, "wed,thursday": 8 | 16, "fri": 32, "saturday": 64, "": 0,
		"mon-fri": 62, "Monday – Friday": 62, "sat-sun": 65, "fri-mon": 32 | 64 | 1 | 2, "sun-sat": 127, "mon-mon": 2, "mon,mon,sat": 66,
	} {
		if got, err := schedule.ParseDays(strings.FieldsFunc(text, func(r rune) bool { return r == ',' })); err != nil || got != want {
			t.Errorf("%q: %d %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "mo", "montag", "1", "mon-", "-fri", "mon-tue-wed", "mon,tue", "weekdays"} {
		_, err := schedule.ParseDays([]string{"mon", text})
		var e *schedule.Error
		if !errors.As(err, &e) || e.Field != "days" || e.Value != text {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestLadder checks the order of the reasons (OSA-73).
func TestLadder(t *testing.T) {
	row, now := contract.Of(t, "OSA-73"), at("2026-11-21 08:00")
	ask := schedule.WakeRequest{At: now}
	manual := preset(schedule.ModeManual, func(l *schedule.Limits) { l.DailyCap = 1 })
	capped := preset(schedule.ModeProject, func(l *schedule.Limits) { l.DailyCap = 1 })
	paused := preset(schedule.ModeProject, func(l *schedule.Limits) { l.DailyCap = 2 })
	refusals := row.Between("is refused as ", ", in this")
	for i, l := range []schedule.Limits{manual, capped, paused} {
		if got := l.Clamp(now, ask, schedule.Usage{Started: 1, Paused: true}); !got.Rejected || strings.Join(got.Reasons, " ") != refusals[i] {
			t.Errorf("%d: %+v, want %s", i, got, refusals[i])
		}
	}

	moves := row.Between("then as ", " say.")
	strict := preset(schedule.ModeAmbient, func(l *schedule.Limits) { l.Days, l.MinInterval, l.Horizon = 2, 16*time.Hour, 15*time.Hour })
	for _, c := range []struct {
		limits schedule.Limits
		byUser bool
		ask    string
		want   string
		why    []string
	}{
		{strict, false, "2020-01-01 00:00", "2026-11-23 07:00", moves},
		{strict, true, "2026-11-23 00:00", "2026-11-21 23:00", moves[1:2]},
		{preset(schedule.ModeReactive, func(l *schedule.Limits) { l.MinInterval = 0 }), false, "2020-01-01 00:00", "2026-11-21 08:00", nil},
		{preset(schedule.ModeAmbient, nil), false, "2026-11-21 22:00", "2026-11-22 07:00", moves[2:3]},
		{preset(schedule.ModeAmbient, nil), false, "2026-11-22 07:00", "2026-11-22 07:00", nil},
	} {
		got := c.limits.Clamp(now, schedule.WakeRequest{At: at(c.ask), ByUser: c.byUser}, schedule.Usage{})
		if got.Rejected || !got.At.Equal(at(c.want)) || !slices.Equal(got.Reasons, c.why) {
			t.Errorf("%s: %+v, want %s for %q", c.ask, got, c.want, c.why)
		}
	}

	for day := range 7 {
		one := preset(schedule.ModeReactive, func(l *schedule.Limits) { l.Days, l.Horizon = 1<<day, 0 })
		got := one.Clamp(now, schedule.WakeRequest{At: at("2026-11-22 10:20")}, schedule.Usage{}).At
		if got.Sub(at("2026-11-22 10:20")) != time.Duration(day)*24*time.Hour || got.Sub(now) > time.Duration(row.Number("7")+1)*24*time.Hour {
			t.Errorf("only the day %d: %s", day, got)
		}
	}
	none := preset(schedule.ModeReactive, func(l *schedule.Limits) { l.Days = uint8(row.Number("0")) })
	if got := none.Clamp(now, ask, schedule.Usage{}); !got.Rejected || !slices.Equal(got.Reasons[len(got.Reasons)-1:], moves[3:]) {
		t.Errorf("no day: %+v", got)
	}
}
