package ledger

import (
	"fmt"
	"time"

	"rouse/agentdb/sqlite"
)

// Breaker pauses a job that claims the same path again and again: it probably writes the file
// that triggers it.
type Breaker struct {
	MaxClaims int // claims of one path
	Within    time.Duration
	Notices   func(path string) []Notice // what its owner is told; may be nil
}

// tripBreaker pauses the job when a claim is one too many.
func (l *Ledger) tripBreaker(tx *sqlite.Tx, now time.Time, c Claim, run int64, b Breaker) (broken bool, err error) {
	var n int
	if err := tx.QueryRow(`select count(*) from claims c join runs r on r.id = c.run where c.job = $1 and c.path = $2 and c.own = 0 and r.queued_at > $3`,
		c.Job, c.Path, ms(now.Add(-b.Within))).Scan(&n); err != nil || n < b.MaxClaims {
		return false, err
	}

	if err := l.lockPauses(tx); err != nil {
		return false, err
	}

	pauses, err := queryPauses(tx, now)
	if err != nil {
		return false, err
	}
	// The pause that is in force does what the breaker is for.
	if _, ok := Paused(pauses, c.Job, "", now); ok {
		return false, nil
	}

	if _, err := setPause(tx, now, Pause{Scope: PauseJob, Name: c.Job, By: BySystem,
		Reason: fmt.Sprintf("%s was taken %d times within %s, the last time by run %d: something writes it again and again, perhaps the job itself", c.Path, n, b.Within, run)}); err != nil {
		return false, err
	}

	if b.Notices == nil {
		return true, nil
	}

	for _, notice := range b.Notices(c.Path) {
		if err := addNotice(tx, notice, now); err != nil {
			return false, err
		}
	}

	return true, nil
}
