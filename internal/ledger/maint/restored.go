package maint

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
	"unicode/utf8"

	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// RestoreSpec says from what a home was put back.
type RestoreSpec struct {
	From      string    // the backup
	TakenAt   time.Time // the instant of which it is
	NewestRun int64     // the last that the home knew whose place it takes; 0: it is not known
	Home, At  string    // absolute: where the home was, and where it is now
	Pause     bool      // nothing runs until its owner has it go on
}

// Restored is what was not left as it was in the backup, and what its owner may want to look at.
type Restored struct {
	Notices int `json:"notices_dropped"` // that were to be delivered, and may have been
	Queued  int `json:"queued"`          // runs that were queued, on or waiting
}

// Restored is for a ledger that was put back with its home, before anything runs. The world has gone on without it: it begins an
// epoch, whose run ids no other has given; notices that were to be delivered are not sent, because they may have been; and everything is paused
// where that is wanted.
func (l *Maint) Restored(ctx context.Context, s RestoreSpec) (out Restored, err error) {
	newest, err := l.DB.NewestRun(ctx)
	if err != nil {
		return out, err
	}
	if err := l.DB.BeginEpoch(ctx, max(newest, s.NewestRun)); err != nil {
		return out, err
	}

	why := "not sent: the home was restored from a backup of " + s.TakenAt.UTC().Format(time.RFC3339) + ", and it may have been delivered since"
	err = store.Write(ctx, l.DB, func(tx *store.Tx) error {
		if err := moveHome(tx, s.Home, s.At); err != nil {
			return err
		}
		if err := store.Scan(tx, []any{&out.Notices, &out.Queued}, `select (select count(*) from outbox where state = 'pending'), (select count(*) from runs where state <> 'finished')`); err != nil {
			return err
		}
		tx.Run(`update outbox set state = 'failed', error = $1 where state = 'pending'`, why)
		return record.AddEvent(tx, record.Event{At: l.DB.Now(), Kind: "home.restored"}, map[string]any{"from": s.From, "taken_at": s.TakenAt.UTC(), "by": record.ByUser, "notices_dropped": out.Notices, "queued": out.Queued})
	})
	if err != nil || !s.Pause {
		return out, err
	}

	_, err = l.Pauses.Set(ctx, pause.Pause{Scope: pause.All, By: record.ByUser, Reason: fmt.Sprintf("restored from the backup of %s: check the waiting runs, then: rouse resume --all", s.TakenAt.UTC().Format(time.RFC3339))})
	return out, err
}

// moveHome has what is recorded of files in the home be about those of the new one: an undo is never to change the files of the home
// that was copied.
func moveHome(tx *store.Tx, from, to string) error {
	if from == "" || from == to {
		return nil
	}
	from, to = from+string(filepath.Separator), to+string(filepath.Separator)
	for _, c := range []struct{ table, column, only string }{{"file_ops", "root", ""}, {"file_ops", "path", ""}, {"file_ops", "made", ""}, {"labels", "place", " and kind = 'file'"}} {
		statement := fmt.Sprintf(`update %[1]s set %[2]s = $1 || substr(%[2]s, %[3]d) where substr(%[2]s, 1, %[4]d) = $2%[5]s`,
			c.table, c.column, utf8.RuneCountInString(from)+1, utf8.RuneCountInString(from), c.only)
		tx.Run(statement, to, from)
	}
	return nil
}
