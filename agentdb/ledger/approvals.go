package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"rouse/agentdb/sqlite"
)

// How an owner answers an approval.
const (
	ApprovalOnce   = "approve" // this call of this run
	ApprovalAlways = "always"  // and the same action in all later runs of the agent
	ApprovalDeny   = "deny"    // not in this run
)

// ApprovalExpires is how long an owner has to allow something (UNI-06).
const ApprovalExpires = 72 * time.Hour

// Action is what an approval is asked for.
type Action struct {
	Tool        string // "" of a job's definition, whose approval always stands
	Description string // as a person reads it
	Hash        string // the same for the same action of the same agent alone
}

// StandingApproval is an approval of an action for all runs of an agent, until its owner revokes it.
type StandingApproval struct {
	ID, Item  int64 // the item of the inbox in which it was given
	Agent     string
	Action    Action
	CreatedAt time.Time
}

// hasOpenRequest reports whether the same action waits for its owner's answer already.
func hasOpenRequest(tx *sqlite.Tx, agent string, q Question) (asked bool, err error) {
	if q.Kind != KindApproval {
		return false, nil
	}
	var n int
	err = tx.QueryRow(`select count(*) from inbox where agent = $1 and hash = $2 and hash <> '' and state = 'open'`, agent, q.Action.Hash).Scan(&n)
	return n > 0, err
}

// Deny answers an approval with no; the run gets the reason.
func (l *Ledger) Deny(ctx context.Context, id int64, reason string) (Run, error) {
	return l.answer(ctx, id, ApprovalDeny, reason)
}

// answerApproval answers an approval, and all others that wait for the same action.
func (l *Ledger) answerApproval(tx *sqlite.Tx, of Item, answer, reason string, now time.Time) (paused bool, err error) {
	if answer == ApprovalAlways || (answer == ApprovalOnce && of.Action.Tool == "") {
		if err := addStandingApproval(tx, of, now); err != nil {
			return false, err
		}
	}

	// One answer is for every run of the agent that waits for the same action.
	rows, err := tx.Query(`select id from inbox where agent = $1 and hash = $2 and hash <> '' and state = 'open' order by id`, of.Agent, of.Action.Hash)
	same, err := collect(rows, err, scanID)
	if err != nil {
		return false, err
	}

	for _, id := range same {
		i, r, err := l.openItem(tx, id)
		// It is not this answer that closes it: its run has ended, or Expire will end it.
		if errors.Is(err, ErrClosed) || i.expired(now) {
			continue
		}
		if err != nil {
			return paused, err
		}

		one, err := l.answerOne(tx, i, r, answer, reason, now)
		if err != nil {
			return paused, err
		}

		paused = paused || one
	}

	return paused, nil
}

func addStandingApproval(tx *sqlite.Tx, i Item, now time.Time) error {
	if _, err := tx.Exec(`insert into standing (agent, hash, tool, action, item, created_at) values ($1, $2, $3, $4, $5, $6) on conflict (agent, hash) do nothing`,
		i.Agent, i.Action.Hash, i.Action.Tool, i.Action.Description, i.ID, ms(now)); err != nil {
		return err
	}
	return addEvent(tx, Event{At: now, Kind: "grant.given"}, map[string]any{"agent": i.Agent, "tool": i.Action.Tool, "action": i.Action.Description, "item": i.ID})
}

const standingColumns = `id, agent, hash, tool, action, item, created_at`

func scanStanding(row scanner) (s StandingApproval, err error) {
	var created int64
	err = row.Scan(&s.ID, &s.Agent, &s.Action.Hash, &s.Action.Tool, &s.Action.Description, &s.Item, &created)
	s.CreatedAt = instant(created)
	return s, err
}

// StandingApprovals lists the standing approvals, the oldest first.
func (l *Ledger) StandingApprovals(ctx context.Context) ([]StandingApproval, error) {
	rows, err := l.statements.query(ctx, `select `+standingColumns+` from standing order by id`)
	return collect(rows, err, scanStanding)
}

// HasStandingApproval reports whether an agent has a standing approval for an action.
func (l *Ledger) HasStandingApproval(ctx context.Context, agent, hash string) (bool, error) {
	var n int
	err := l.statements.row(ctx, `select count(*) from standing where agent = $1 and hash = $2`, agent, hash).Scan(&n)
	return n > 0, err
}

// RevokeApproval revokes a standing approval; ErrNotFound when there is none with that number.
func (l *Ledger) RevokeApproval(ctx context.Context, id int64) (StandingApproval, error) {
	now := l.now()
	var s StandingApproval
	err := l.do(ctx, func(tx *sqlite.Tx) (err error) {
		s, err = scanStanding(tx.QueryRow(`delete from standing where id = $1 returning `+standingColumns, id))
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("grant %d is %w", id, ErrNotFound)
		}
		if err != nil {
			return err
		}
		return addEvent(tx, Event{At: now, Kind: "grant.revoked"}, map[string]any{"agent": s.Agent, "tool": s.Action.Tool, "action": s.Action.Description, "grant": id})
	})

	return s, err
}
