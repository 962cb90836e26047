package inbox

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
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
func (q *Question) identify(r record.Run) error {
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

// UseApproval records the call of a run that an approval is used for. The same call may be made again after a crash; no other one may
// use the approval.
func UseApproval(tx *store.Tx, run, item int64, call string) error {
	used, err := tx.Exec(`update inbox set used = $1 where id = $2 and run = $3 and (used = '' or used = $1)`, call, item, run)
	return record.RequireRow(used, err, "the approval %d was used before", item)
}

func AddStandingApproval(tx *store.Tx, i Item, now time.Time) error {
	tx.Run(`insert into standing (agent, hash, tool, action, item, created_at) values ($1, $2, $3, $4, $5, $6) on conflict (agent, hash) do nothing`,
		i.Agent, i.Action.Hash, i.Action.Tool, i.Action.Description, i.ID, store.Millis(now))
	return record.AddEvent(tx, record.Event{At: now, Kind: "grant.given"}, map[string]any{"agent": i.Agent, "tool": i.Action.Tool, "action": i.Action.Description, "item": i.ID})
}

const standingColumns = `id, agent, hash, tool, action, item, created_at`

func standingFields(s *StandingApproval) []any {
	return []any{&s.ID, &s.Agent, &s.Action.Hash, &s.Action.Tool, &s.Action.Description, &s.Item, store.Time(&s.CreatedAt)}
}

// StandingApprovals lists the standing approvals, the oldest first.
func (l *Inbox) StandingApprovals(ctx context.Context) ([]StandingApproval, error) {
	return store.List(store.Reads(ctx, l.DB), standingFields, `select `+standingColumns+` from standing order by id`)
}

// HasStandingApproval reports whether an agent has a standing approval for an action.
func (l *Inbox) HasStandingApproval(ctx context.Context, agent, hash string) (bool, error) {
	return store.Value[bool](store.Reads(ctx, l.DB), `select exists (select 1 from standing where agent = $1 and hash = $2)`, agent, hash)
}

// RevokeApproval revokes a standing approval; ErrNotFound when there is none with that number.
func (l *Inbox) RevokeApproval(ctx context.Context, id int64) (StandingApproval, error) {
	return store.InTx(ctx, l.DB, func(tx *store.Tx) (StandingApproval, error) {
		s, err := store.One(tx, standingFields, `delete from standing where id = $1 returning `+standingColumns, id)
		if s, err = store.OrNotFound(s, err, "grant %d", id); err != nil {
			return s, err
		}
		return s, record.AddEvent(tx, record.Event{At: l.DB.Now(), Kind: "grant.revoked"}, map[string]any{"agent": s.Agent, "tool": s.Action.Tool, "action": s.Action.Description, "grant": id})
	})
}
