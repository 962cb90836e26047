package inbox

import (
	"context"
	"time"

	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// KindDatabase is an item about an agent's database that holds runs which this ledger does not know.
// It is no run's: all of the agent's wait for it, and it does not expire.
const KindDatabase = "database"

// DatabaseAdopt is the answer to an item of KindDatabase: the database goes on with this ledger.
const DatabaseAdopt = "adopt"

// DatabaseAsked reports whether the owner of an agent is being asked about its database.
func DatabaseAsked(tx *store.Tx, agent string) (bool, error) {
	return store.Value[bool](tx, `select exists (select 1 from inbox where kind = 'database' and agent = $1 and state = 'open')`, agent)
}

// AskAboutDatabase asks the owner of an agent about its database, once while the question is open.
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

// CloseDatabaseItems closes what was asked about an agent's database: with the answer, or withdrawn
// with "", because there is nothing to be asked any more.
func (l *Inbox) CloseDatabaseItems(ctx context.Context, agent, answer string) error {
	state := ItemAnswered
	if answer == "" {
		state = ItemWithdrawn
	}

	return store.Exec(ctx, l.DB, `update inbox set state = $1, answer = $2, closed_at = $3 where kind = 'database' and agent = $4 and state = 'open'`, state, answer, store.Millis(l.DB.Now()), agent)
}
