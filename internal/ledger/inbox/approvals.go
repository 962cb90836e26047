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

// Answers of an owner to an approval.
const (
	ApprovalOnce   = "approve" // allow this call of this run
	ApprovalAlways = "always"  // also allow the same action in all later runs of the agent
	ApprovalDeny   = "deny"    // deny for this run
)

// ApprovalExpires is the time an owner has to answer an approval.
const ApprovalExpires = 72 * time.Hour

// Action is an action that needs an approval.
type Action struct {
	// Tool is empty for an action of a job's definition. Such an action always gets a standing
	// approval.
	Tool        string
	Description string // text for the owner
	Hash        string // identifies the same action of the same agent
}

// StandingApproval is an approval of an action for all runs of an agent. It lasts until the owner
// revokes it.
type StandingApproval struct {
	ID, Item  int64 // Item is the inbox item that gave the approval
	Agent     string
	Action    Action
	CreatedAt time.Time
}

// isAsked reports whether an open item already asks the same question.
func isAsked(tx *store.Tx, agent string, q Question) (bool, error) {
	return store.Value[bool](tx, `select exists (select 1 from inbox where agent = $1 and hash = $2 and hash <> '' and state = 'open')`, agent, q.Action.Hash)
}

// identify sets the hash of a scheduled run's question from its text. One inbox item can then stand
// for the same question of all runs of the schedule. Runs with other triggers have their own input,
// on which the answer may depend.
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

// UseApproval records the call that uses an approval. The same call may be repeated after a crash.
// Another call cannot use the approval.
func UseApproval(tx *store.Tx, run, item int64, call string) error {
	used, err := tx.Exec(`update inbox set used = $1 where id = $2 and run = $3 and (used = '' or used = $1)`, call, item, run)
	return record.RequireRow(used, err, "the approval %d was used before", item)
}

// AddStandingApproval adds a standing approval of the item's action for the item's agent.
func AddStandingApproval(tx *store.Tx, i Item, now time.Time) error {
	tx.Run(`insert into standing (agent, hash, tool, action, item, created_at) values ($1, $2, $3, $4, $5, $6) on conflict (agent, hash) do nothing`,
		i.Agent, i.Action.Hash, i.Action.Tool, i.Action.Description, i.ID, store.Millis(now))
	return record.AddEvent(tx, record.Event{At: now, Kind: "grant.given"}, map[string]any{"agent": i.Agent, "tool": i.Action.Tool, "action": i.Action.Description, "item": i.ID})
}

const standingColumns = `id, agent, hash, tool, action, item, created_at`

func standingFields(s *StandingApproval) []any {
	return []any{&s.ID, &s.Agent, &s.Action.Hash, &s.Action.Tool, &s.Action.Description, &s.Item, store.Time(&s.CreatedAt)}
}

// StandingApprovals returns the standing approvals, oldest first.
func (l *Inbox) StandingApprovals(ctx context.Context) ([]StandingApproval, error) {
	return store.List(store.Reads(ctx, l.DB), standingFields, `select `+standingColumns+` from standing order by id`)
}

// HasStandingApproval reports whether an agent has a standing approval for an action.
func (l *Inbox) HasStandingApproval(ctx context.Context, agent, hash string) (bool, error) {
	return store.Value[bool](store.Reads(ctx, l.DB), `select exists (select 1 from standing where agent = $1 and hash = $2)`, agent, hash)
}

// RevokeApproval revokes a standing approval. It returns ErrNotFound if the approval does not
// exist.
func (l *Inbox) RevokeApproval(ctx context.Context, id int64) (StandingApproval, error) {
	return store.InTx(ctx, l.DB, func(tx *store.Tx) (StandingApproval, error) {
		s, err := store.One(tx, standingFields, `delete from standing where id = $1 returning `+standingColumns, id)
		if s, err = store.OrNotFound(s, err, "grant %d", id); err != nil {
			return s, err
		}
		return s, record.AddEvent(tx, record.Event{At: l.DB.Now(), Kind: "grant.revoked"}, map[string]any{"agent": s.Agent, "tool": s.Action.Tool, "action": s.Action.Description, "grant": id})
	})
}
