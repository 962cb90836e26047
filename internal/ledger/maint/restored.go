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

// RestoreSpec describes the restore of a home directory.
type RestoreSpec struct {
	From      string    // path of the backup
	TakenAt   time.Time // time of the backup
	NewestRun int64     // last run id of the replaced home; 0 if unknown
	Home, At  string    // absolute paths of the home in the backup and now
	Pause     bool      // whether to pause everything until the owner resumes
}

// Restored describes the changes to a restored ledger, and the runs that its owner may have to
// check.
type Restored struct {
	Notices int `json:"notices_dropped"` // pending notices that were dropped, because they may have been delivered
	Queued  int `json:"queued"`          // runs that were queued, running or waiting
}

// Restored prepares a ledger that was restored with its home, before any run starts. It begins a
// new epoch, so that run ids are not assigned twice. It drops pending notices, because they may
// have been delivered. If s.Pause is set, it pauses everything.
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

// moveHome changes recorded paths in the old home to the new home. Otherwise an undo could change
// files of the home that was copied.
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
