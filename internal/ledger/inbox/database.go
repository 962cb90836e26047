package inbox

import (
	"context"
	"time"

	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// KindDatabase is the kind of an item about an agent's database that contains runs unknown to this
// ledger. It belongs to no run and does not expire. All runs of the agent wait for its answer.
const KindDatabase = "database"

// DatabaseAdopt is the answer to an item of KindDatabase that adopts the database into this ledger.
const DatabaseAdopt = "adopt"

// DatabaseAsked reports whether an open item asks about an agent's database.
func DatabaseAsked(tx *store.Tx, agent string) (bool, error) {
	return store.Value[bool](tx, `select exists (select 1 from inbox where kind = 'database' and agent = $1 and state = 'open')`, agent)
}

// AskAboutDatabase adds an inbox item about an agent's database, unless one is already open.
func (l *Inbox) AskAboutDatabase(ctx context.Context, agent, title, message string) error {
	now := l.DB.Now()
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		if asked, err := DatabaseAsked(tx, agent); err != nil || asked {
			return err
		}

		id, err := addItem(tx, record.Run{Agent: agent}, Question{Kind: KindDatabase, Title: title, Message: message, Options: []string{DatabaseAdopt}}, now, time.Time{})
		if err != nil {
			return err
		}
		return record.AddEvent(tx, record.Event{At: now, Kind: "database.asked"}, map[string]any{"item": id, "agent": agent, "text": message})
	})
}

// CloseDatabaseItems closes the open items about an agent's database with an answer. If answer is
// empty, it withdraws them, because the question no longer applies.
func (l *Inbox) CloseDatabaseItems(ctx context.Context, agent, answer string) error {
	state := ItemAnswered
	if answer == "" {
		state = ItemWithdrawn
	}

	return store.Exec(ctx, l.DB, `update inbox set state = $1, answer = $2, closed_at = $3 where kind = 'database' and agent = $4 and state = 'open'`, state, answer, store.Millis(l.DB.Now()), agent)
}
