package ledger_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// A day is as long as its zone makes it, and ends where its date does.
func TestDayOf(t *testing.T) {
	for _, c := range []struct{ zone, at, name, ends string }{
		{"UTC", "2026-11-21T00:00:00Z", "2026-11-21", "2026-11-22T00:00:00Z"},
		{"UTC", "2026-11-21T23:59:59.999999999Z", "2026-11-21", "2026-11-22T00:00:00Z"},
		{"Europe/Berlin", "2026-11-20T23:00:00Z", "2026-11-21", "2026-11-21T23:00:00Z"},
		{"Europe/Berlin", "2026-11-20T22:59:59Z", "2026-11-20", "2026-11-20T23:00:00Z"},
		{"Europe/Berlin", "2026-03-28T23:30:00Z", "2026-03-29", "2026-03-29T22:00:00Z"},     // 23 hours
		{"Europe/Berlin", "2026-10-24T22:30:00Z", "2026-10-25", "2026-10-25T23:00:00Z"},     // 25 hours
		{"America/Sao_Paulo", "2018-11-03T12:00:00Z", "2018-11-03", "2018-11-04T03:00:00Z"}, // the next begins at one
		{"America/Sao_Paulo", "2018-02-18T02:30:00Z", "2018-02-17", "2018-02-18T03:00:00Z"}, // its last hour came twice
		{"Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-29", "2011-12-30T10:00:00Z"},      // the next is the 31st
		{"Asia/Kathmandu", "2026-11-21T12:00:00Z", "2026-11-21", "2026-11-21T18:15:00Z"},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}

		at, err := time.Parse(time.RFC3339Nano, c.at)
		if err != nil {
			t.Fatal(err)
		}
		if d := ledger.DayOf(at, zone); d.Name != c.name || d.Ends.Format(time.RFC3339) != c.ends {
			t.Errorf("%s in %s is of %s until %s, want %s until %s", c.at, c.zone, d.Name, d.Ends.Format(time.RFC3339), c.name, c.ends)
		}
	}
}

func TestDayOfAny(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "America/Havana", "Asia/Beirut", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Cairo"}
	rapid.Check(t, func(t *rapid.T) {
		zone, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}

		at := time.Unix(rapid.Int64Range(946684800, 2208988800).Draw(t, "at"), 0)
		d := ledger.DayOf(at, zone)
		if !d.Ends.After(at) || d.Ends.Sub(at) > 26*time.Hour {
			t.Fatalf("%s ends at %s", at, d.Ends)
		}
		if last := d.Ends.Add(-1); ledger.DayOf(last, zone).Name != d.Name || ledger.DayOf(d.Ends, zone).Name == d.Name {
			t.Fatalf("%s is not the end of %s", d.Ends, d.Name)
		}
	})
}

// A month that is older than its sums begins with what its days hold, and what is reserved in them: as after the first start with a ledger
// that knew days alone.
func TestMonthsOfOlderLedgers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, ctx := openIn(t, dir), t.Context()
	accepted, err := l.Enqueue(ctx, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerManual})
	if err != nil {
		t.Fatal(err)
	}
	_, a, err := l.StartAttempt(ctx, accepted[0].Run)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.StartStep(ctx, a, ledger.Step{Number: 1, StartedAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	take := func(day string, cost int64, limit ledger.Limit) (int64, *ledger.BudgetExceeded) {
		t.Helper()
		id, full, err := l.Reserve(ctx, a, ledger.Reservation{Step: 1, Day: day, Agent: "a", Job: "j", Usage: ledger.Usage{TokensIn: cost, CostMicroUSD: cost}, DaemonLimit: limit})
		if err != nil {
			t.Fatal(err)
		}
		return id, full
	}
	settle := func(id, cost int64) {
		t.Helper()
		if _, err := l.Settle(ctx, id, ledger.Usage{TokensIn: cost, CostMicroUSD: cost}, ""); err != nil {
			t.Fatal(err)
		}
	}
	id, _ := take("2026-11-20", 40, ledger.Limit{})
	settle(id, 40)
	open, _ := take("2026-11-21", 30, ledger.Limit{}) // is on when the newer version starts

	raw, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "ledger.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.ExecContext(ctx, `delete from month_spending`); err != nil {
		t.Fatal(err)
	}
	if list, err := l.SpendingIn(ctx, "2026-11"); err != nil || len(list) != 3 || list[0].CostMicroUSD != 40 || list[0].ReservedMicroUSD != 30 {
		t.Errorf("before its first call: %+v %v", list, err)
	}
	settle(open, 25)
	if _, full := take("2026-11-22", 36, ledger.Limit{MonthMicroUSD: 100}); full == nil || full.CostMicroUSD != 65 || full.ReservedMicroUSD != 0 {
		t.Errorf("36 beside 65 of 100: %+v", full)
	}
	if _, full := take("2026-11-22", 35, ledger.Limit{MonthMicroUSD: 100}); full != nil {
		t.Errorf("35 beside 65 of 100: %+v", full)
	}
}

// A month ends when its last day does, whatever the clocks of the zone do, and names what its days are of.
func TestMonthOf(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		zone, err := time.LoadLocation(rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia", "Asia/Beirut", "Pacific/Kiritimati", "America/Nuuk"}).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(rapid.Int64Range(1_200_000_000, 2_000_000_000).Draw(t, "at"), 0)
		m, d := ledger.MonthOf(at, zone), ledger.DayOf(at, zone)
		if m.Name != d.Name[:7] || m.Ends.Before(d.Ends) || m.Ends.Sub(at) > 32*24*time.Hour {
			t.Fatalf("%s: %+v, %+v", at.In(zone), m, d)
		}
		if last, next := ledger.DayOf(m.Ends.Add(-1), zone), ledger.MonthOf(m.Ends, zone); last.Name[:7] != m.Name || next.Name == m.Name || last.Ends != m.Ends {
			t.Fatalf("%s: the month %+v ends within %+v and %+v", at.In(zone), m, last, next)
		}
	})
}
