package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"time"

	"rouse/internal/domain"
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

// isAsked reports whether the same question waits for an answer already.
func isAsked(tx *store.Tx, agent string, q Question) (bool, error) {
	return store.Value[bool](tx, `select exists (select 1 from inbox where agent = $1 and hash = $2 and hash <> '' and state = 'open')`, agent, q.Action.Hash)
}

// identify gives the question of a scheduled run the hash of its text: the runs of a schedule are alike, and so one item of the inbox
// stands for the same question of all of them. Runs of other triggers have an input of their own, which the answer may depend on.
func (q *Question) identify(r Run) error {
	if q.Kind != KindInput || r.Trigger != domain.TriggerSchedule || r.Job == "" {
		return nil
	}
	text, err := json.Marshal([]any{"question", r.Job, q.Title, q.Message, q.Options, q.Multiple, q.InputSchema})
	if err != nil {
		return err
	}
	q.Action.Hash = fmt.Sprintf("%x", sha256.Sum256(text))
	return nil
}

// Deny answers an approval with no; the run gets the reason.
func (l *Ledger) Deny(ctx context.Context, id int64, reason string) (Run, error) {
	return l.AnswerAs(ctx, id, Reply{Text: ApprovalDeny, Reason: reason})
}

// answerJoined applies the answer to an item to the others that ask the same. A denial and Reply.All are for all of them. Any other
// answer releases one run: the scheduled ones end as skipped, because their effect would be had again, and those of other triggers
// wait for an answer of their own unless a standing approval covers them.
func (l *Ledger) answerJoined(tx *store.Tx, of Item, reply Reply, now time.Time) error {
	denied := of.Kind == KindApproval && reply.Text == ApprovalDeny
	stands := of.Kind == KindApproval && (reply.Text == ApprovalAlways || reply.Text == ApprovalOnce && of.Action.Tool == "")
	if stands {
		if err := addStandingApproval(tx, of, now); err != nil {
			return err
		}
	}

	same, err := store.Values[int64](tx, `select id from inbox where agent = $1 and hash = $2 and hash <> '' and state = 'open' and id <> $3 order by id`, of.Agent, of.Action.Hash, of.ID)
	if err != nil {
		return err
	}

	for _, id := range same {
		i, r, err := l.openItem(tx, id)
		// It is not this answer that closes it: its run has ended, or Expire will end it.
		if errors.Is(err, ErrClosed) || i.expired(now) {
			continue
		}
		if err != nil {
			return err
		}

		switch {
		case denied || reply.All:
			err = l.answerOne(tx, i, r, reply, now)
		case r.Trigger == domain.TriggerSchedule:
			why := fmt.Sprintf("overlap: run %d, which asked the same, got the answer; --all releases every waiting run", of.Run)
			err = l.endUnstarted(tx, r, Result{Outcome: domain.OutcomeSkipped, Error: why}, now)
		case stands:
			err = l.answerOne(tx, i, r, reply, now)
		}
		if err != nil {
			return err
		}
	}

	return nil
}

func addStandingApproval(tx *store.Tx, i Item, now time.Time) error {
	tx.Run(`insert into standing (agent, hash, tool, action, item, created_at) values ($1, $2, $3, $4, $5, $6) on conflict (agent, hash) do nothing`,
		i.Agent, i.Action.Hash, i.Action.Tool, i.Action.Description, i.ID, store.Millis(now))
	return record.AddEvent(tx, Event{At: now, Kind: "grant.given"}, map[string]any{"agent": i.Agent, "tool": i.Action.Tool, "action": i.Action.Description, "item": i.ID})
}

const standingColumns = `id, agent, hash, tool, action, item, created_at`

func standingFields(s *StandingApproval) []any {
	return []any{&s.ID, &s.Agent, &s.Action.Hash, &s.Action.Tool, &s.Action.Description, &s.Item, store.Time(&s.CreatedAt)}
}

// StandingApprovals lists the standing approvals, the oldest first.
func (l *Ledger) StandingApprovals(ctx context.Context) ([]StandingApproval, error) {
	return store.List(store.Reads(ctx, l.DB), standingFields, `select `+standingColumns+` from standing order by id`)
}

// HasStandingApproval reports whether an agent has a standing approval for an action.
func (l *Ledger) HasStandingApproval(ctx context.Context, agent, hash string) (bool, error) {
	return store.Value[bool](store.Reads(ctx, l.DB), `select exists (select 1 from standing where agent = $1 and hash = $2)`, agent, hash)
}

// RevokeApproval revokes a standing approval; ErrNotFound when there is none with that number.
func (l *Ledger) RevokeApproval(ctx context.Context, id int64) (StandingApproval, error) {
	return store.InTx(ctx, l.DB, func(tx *store.Tx) (StandingApproval, error) {
		s, err := store.One(tx, standingFields, `delete from standing where id = $1 returning `+standingColumns, id)
		if s, err = store.OrNotFound(s, err, "grant %d", id); err != nil {
			return s, err
		}
		return s, record.AddEvent(tx, Event{At: l.Now(), Kind: "grant.revoked"}, map[string]any{"agent": s.Agent, "tool": s.Action.Tool, "action": s.Action.Description, "grant": id})
	})
}
