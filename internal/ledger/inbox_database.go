package ledger

import (
	"context"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"strings"
	"time"
)

// KindDatabase is an item about an agent's database that holds runs which this ledger does not know.
// It is no run's: all of the agent's wait for it, and it does not expire.
const KindDatabase = "database"

// DatabaseAdopt is the answer to an item of KindDatabase: the database goes on with this ledger.
const DatabaseAdopt = "adopt"

const databaseAsked = `select exists (select 1 from inbox where kind = 'database' and agent = $1 and state = 'open')`

// AskAboutDatabase asks the owner of an agent about its database, once while the question is open.
func (l *Ledger) AskAboutDatabase(ctx context.Context, agent, title, message string) error {
	now := l.Now()
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		if asked, err := store.Value[bool](tx, databaseAsked, agent); err != nil || asked {
			return err
		}

		id, err := addItem(tx, Run{Agent: agent}, Question{Kind: KindDatabase, Title: title, Message: message, Options: []string{DatabaseAdopt}}, now, time.Time{})
		if err != nil {
			return err
		}
		return record.AddEvent(tx, Event{At: now, Kind: "database.asked"}, map[string]any{"item": id, "agent": agent, "text": message})
	})
}

// LabelAdopted labels an agent's database that is about to be adopted, while its owner is asked about it:
// what the other ledger knew of the labels of its rows, this one does not.
func (l *Ledger) LabelAdopted(ctx context.Context, agent string) error {
	var added []Label
	err := store.Write(ctx, l.DB, func(tx *store.Tx) error {
		asked, err := store.Value[bool](tx, databaseAsked, agent)
		if asked {
			added = addLabels(tx, Run{}, strings.Join(dataLabels, ""), []Place{TablePlace(agent, "")}, l.Now())
		}
		return err
	})
	if err == nil {
		l.keepLabels(added)
	}
	return err
}

// CloseDatabaseItems closes what was asked about an agent's database: with the answer, or withdrawn
// with "", because there is nothing to be asked any more.
func (l *Ledger) CloseDatabaseItems(ctx context.Context, agent, answer string) error {
	state := ItemAnswered
	if answer == "" {
		state = ItemWithdrawn
	}

	return store.Exec(ctx, l.DB, `update inbox set state = $1, answer = $2, closed_at = $3 where kind = 'database' and agent = $4 and state = 'open'`, state, answer, store.Millis(l.Now()), agent)
}
