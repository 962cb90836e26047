package ledger

import (
	"fmt"
	"strings"
	"time"

	"rouse/agentdb/sqlite"
	"rouse/internal/text"
)

// PathPlaceholder stands for the path in the title of a Breaker's notices.
const PathPlaceholder = "\x00path"

// Breaker pauses a job that claims the same path again and again: it probably writes the file
// that triggers it.
type Breaker struct {
	MaxClaims int // claims of one path
	Within    time.Duration
	Notices   []Notice // sent to the owner of the job when it is paused
}

// tripBreaker pauses the job when a claim is one too many.
func (l *Ledger) tripBreaker(tx *sqlite.Tx, now time.Time, c Claim, run int64, b Breaker) (broken bool, err error) {
	n, err := value[int](tx, `select count(*) from claims c join runs r on r.id = c.run where c.job = $1 and c.path = $2 and c.own = 0 and r.queued_at > $3`,
		c.Job, c.Path, ms(now.Add(-b.Within)))
	if err != nil || n < b.MaxClaims {
		return false, err
	}

	l.lockPauses(tx)
	pauses, err := pausesAt(tx, now)
	// The pause that is in force does what the breaker is for.
	if _, ok := Paused(pauses, c.Job, "", now); ok || err != nil {
		return false, err
	}

	if _, err := setPause(tx, now, Pause{Scope: PauseJob, Name: c.Job, By: BySystem,
		Reason: fmt.Sprintf("%s was taken %d times within %s, the last time by run %d: something writes it again and again, perhaps the job itself", c.Path, n, b.Within, run)}); err != nil {
		return false, err
	}

	for _, notice := range b.Notices {
		notice.Title = strings.ReplaceAll(notice.Title, PathPlaceholder, text.OneLine(c.Path))
		addNotices(tx, now, notice)
	}

	return true, nil
}
