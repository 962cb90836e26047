package schedule_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"rouse/scheduler/schedule"
)

// TestRobfig checks the examples of robfig/cron, except for the deviations in testdata/robfig.txt.
// It also checks robfig/cron's own answers in that list.
func TestRobfig(t *testing.T) {
	text, err := os.ReadFile("testdata/robfig.txt")
	if err != nil {
		t.Fatal(err)
	}

	rows := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}

		rows++
		cell := strings.Split(line, "|")
		for i := range cell {
			cell[i] = strings.TrimSpace(cell[i])
			if t, err := time.Parse(time.RFC3339, cell[i]); err == nil {
				cell[i] = t.UTC().Format(time.RFC3339)
			}
		}
		if len(cell) != 5 && len(cell) != 7 {
			t.Fatalf("%q has %d columns", line, len(cell))
		}

		q := published{question: cell[0], at: at(cell[1]), zone: cell[2], expression: cell[3]}
		if got := q.robfig(t); got != cell[4] {
			t.Errorf("%srobfig says %s", line, got)
		}

		want := cell[4]
		if len(cell) == 7 {
			if want = cell[5]; want == cell[4] || cell[6] == "" {
				t.Errorf("%q is no deviation, or has no reason", line)
			}
		}
		if got := q.ours(); got != want {
			t.Errorf("%swe say %s, want %s", line, got, want)
		}
	}

	if rows != 96 {
		t.Errorf("%d rows, want all 96", rows)
	}
}

type published struct {
	question, zone, expression string
	at                         time.Time
}

func (q published) ours() string {
	s, err := schedule.Parse(schedule.Options{Cron: q.expression, Timezone: q.zone})
	if err != nil {
		return "refused"
	}
	return q.answer(s.Next)
}

func (q published) robfig(t *testing.T) string {
	t.Helper()
	parser := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
	s, err := parser.Parse(q.expression)
	if err != nil {
		return "refused"
	}

	zone, err := time.LoadLocation(q.zone)
	if err != nil {
		t.Fatal(err)
	}
	return q.answer(func(after time.Time) time.Time { return s.Next(after.In(zone)) })
}

// answer returns yes, no, or an instant in UTC.
func (q published) answer(next func(time.Time) time.Time) string {
	switch q.question {
	case "parse":
		return "accepted"
	case "at":
		if next(q.at.Add(-time.Second)).Equal(q.at) {
			return "yes"
		}
		return "no"
	}

	n := next(q.at)
	if n.IsZero() {
		return "never"
	}

	return n.UTC().Format(time.RFC3339)
}
