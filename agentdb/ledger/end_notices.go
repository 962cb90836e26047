package ledger

import (
	"fmt"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/text"
)

// EndNotices are the notices of the end of a run. The ledger completes them in the transaction that ends the run,
// because only then the incident of a failure and its number are known.
type EndNotices struct {
	Notices  []EndNotice
	Recovery []Notice // used if Notices is empty and the run closes an incident with notices; incidents are listed above the body
	Zone     *time.Location
}

// EndNotice is a notice for one channel.
type EndNotice struct {
	Notice
	// Every selects the failures of an incident after the first that cause a notice: 1 for all, n for every n-th,
	// 0 for none.
	Every int
}

// maxIncidentError is the maximum length of the error of an incident in a notice, in characters.
const maxIncidentError = 200

// For returns the notices of an end with this effect on incidents. An acknowledged incident has none.
func (e EndNotices) For(c IncidentChange) []Notice {
	if c.Failed != nil {
		return e.ofFailure(*c.Failed)
	}

	notices := make([]Notice, len(e.Notices))
	for i, n := range e.Notices {
		notices[i] = n.Notice
	}
	if len(c.Recovered) == 0 {
		return notices
	}

	var closed []string
	told := false
	for _, i := range c.Recovered {
		told = told || i.Told > 0
		closed = append(closed, fmt.Sprintf("incident %d is over: %s (%s), %s since %s", i.ID, i.Kind, text.Truncate(text.Collapse(text.OneLine(i.Error)), maxIncidentError), text.Plural(i.Failures, domain.IncidentUnit(i.Kind, "failed run")), e.time(i.OpenedAt)))
	}
	words := strings.Join(closed, "\n")

	if len(notices) > 0 {
		for i := range notices {
			notices[i].Body += "\n" + words
		}
		return notices
	}
	if !told {
		return nil
	}
	for _, n := range e.Recovery {
		n.Body = words + n.Body
		notices = append(notices, n)
	}
	return notices
}

func (e EndNotices) ofFailure(i Incident) (out []Notice) {
	if !i.AckedAt.IsZero() {
		return nil
	}

	for _, n := range e.Notices {
		if i.Failures > 1 && (n.Every == 0 || i.Failures%n.Every != 0) {
			continue
		}
		if i.Failures > 1 {
			n.Title += fmt.Sprintf(" (%d times)", i.Failures)
			n.Body += fmt.Sprintf("\n%s failed like this since %s", text.Plural(i.Failures, "run"), e.time(i.OpenedAt))
		}
		next := fmt.Sprintf("Next message at failure %d.", i.Failures+n.Every-i.Failures%max(n.Every, 1))
		switch n.Every {
		case 0:
			next = "No further message of such failures."
		case 1:
			next = "Next message at each further failure."
		}
		n.Body += fmt.Sprintf("\n%s To hear no more until it recovers: rouse ack %d", next, i.ID)
		out = append(out, n.Notice)
	}
	return out
}

func (e EndNotices) time(at time.Time) string {
	zone := e.Zone
	if zone == nil {
		zone = time.UTC
	}
	return at.In(zone).Format("2006-01-02 15:04 MST")
}
