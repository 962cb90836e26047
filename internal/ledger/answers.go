package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/label"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// Reply is an answer to an item of the inbox.
type Reply struct {
	Text   string
	Reason string // of a denial
	All    bool   // for all runs that ask the same, not only for the run of the item
	// Untrusted says that the text may repeat what strangers have written.
	Untrusted bool
}

// Answer is AnswerAs for an answer to the run of one item.
func (l *Ledger) Answer(ctx context.Context, id int64, answer string) (Run, error) {
	return l.AnswerAs(ctx, id, Reply{Text: answer})
}

// AnswerAs closes an item and resumes its run, or ends it if the reply says so. Other runs that ask the same are treated as
// answerJoined says. To an item with an input schema the answer is JSON. The same answer to a question once more changes nothing. The
// error is ErrClosed if somebody was faster or the item has expired, and ErrInvalidAnswer if it offers no such answer, an
// *AnswerError where fields are wrong.
func (l *Ledger) AnswerAs(ctx context.Context, id int64, reply Reply) (Run, error) {
	now := l.Now()
	var run Run
	err := store.Write(ctx, l.DB, func(tx *store.Tx) error {
		i, r, err := inbox.Lock(tx, l.DB, id)
		// The same once more: whoever asks again could not know that the first answer had come through.
		if errors.Is(err, inbox.ErrClosed) && i.HasAnswer(reply.Text) {
			run, err = record.LockRun(tx, l.DB, i.Run)
			return err
		}
		if err != nil {
			return err
		}

		run = r
		// Expire would have closed it, but no daemon was running then.
		if i.Expired(now) {
			return fmt.Errorf("inbox item %d could be answered until %s: %w", id, i.ExpiresAt.UTC().Format(time.RFC3339), inbox.ErrClosed)
		}
		if i.Kind != inbox.KindInput && !slices.Contains(i.Options, reply.Text) {
			return fmt.Errorf("%q answers inbox item %d with something else than %s: %w", reply.Text, id, strings.Join(i.Options, ", "), inbox.ErrInvalidAnswer)
		}
		reply := reply // the operation may run more than once
		if len(i.InputSchema) > 0 {
			if reply.Text, err = i.Fit(reply.Text); err != nil {
				return err
			}
		}

		if err := answerOne(tx, l.DB, i, r, reply, now); err != nil || i.Action.Hash == "" {
			return err
		}
		return answerJoined(tx, l.DB, i, reply, now)
	})

	return run, err
}

// Deny answers an approval with no; the run gets the reason.
func (l *Ledger) Deny(ctx context.Context, id int64, reason string) (Run, error) {
	return l.AnswerAs(ctx, id, Reply{Text: inbox.ApprovalDeny, Reason: reason})
}

// answerOne closes one item.
func answerOne(tx *store.Tx, db *store.DB, i inbox.Item, r Run, reply Reply, now time.Time) error {
	answer, reason := reply.Text, reply.Reason
	inbox.Close(tx, i, inbox.ItemAnswered, answer, reason, now)

	data := map[string]any{"item": i.ID, "answer": answer}
	if reason != "" {
		data["reason"] = reason
	}
	if err := record.AddEvent(tx, Event{Run: r.ID, Job: r.Job, At: now, Kind: "run.answered"}, data); err != nil {
		return err
	}

	if reply.Untrusted {
		if _, err := label.TaintRun(tx, r, label.TaintUpdate{Taint: label.TaintUntrusted}, now); err != nil {
			return err
		}
	}

	switch {
	case i.Kind == inbox.KindInfo:
		return nil
	case i.Kind == inbox.KindRecovery && answer == inbox.RecoveryStop, i.Kind == inbox.KindPause && answer == inbox.PauseStop:
		return endUnstarted(tx, db, r, Result{Outcome: domain.OutcomeCancelled, Error: "its owner stopped it: " + i.Message}, now)
	case i.Kind == inbox.KindApproval && answer == inbox.ApprovalDeny && i.Action.Tool == "":
		return endUnstarted(tx, db, r, Result{Outcome: domain.OutcomeCancelled, Error: strings.TrimSuffix("its owner denied it: "+reason, ": ")}, now)
	}

	tx.Run(`update runs set waiting_for = 'resume', not_before = 0 where id = $1`, r.ID)
	return nil
}

// answerJoined applies the answer to an item to the others that ask the same. A denial and Reply.All are for all of them. Any other
// answer releases one run: the scheduled ones end as skipped, because their effect would be had again, and those of other triggers
// wait for an answer of their own unless a standing approval covers them.
func answerJoined(tx *store.Tx, db *store.DB, of inbox.Item, reply Reply, now time.Time) error {
	denied := of.Kind == inbox.KindApproval && reply.Text == inbox.ApprovalDeny
	stands := of.Kind == inbox.KindApproval && (reply.Text == inbox.ApprovalAlways || reply.Text == inbox.ApprovalOnce && of.Action.Tool == "")
	if stands {
		if err := inbox.AddStandingApproval(tx, of, now); err != nil {
			return err
		}
	}

	same, err := store.Values[int64](tx, `select id from inbox where agent = $1 and hash = $2 and hash <> '' and state = 'open' and id <> $3 order by id`, of.Agent, of.Action.Hash, of.ID)
	if err != nil {
		return err
	}

	for _, id := range same {
		i, r, err := inbox.Lock(tx, db, id)
		// It is not this answer that closes it: its run has ended, or Expire will end it.
		if errors.Is(err, inbox.ErrClosed) || i.Expired(now) {
			continue
		}
		if err != nil {
			return err
		}

		switch {
		case denied || reply.All:
			err = answerOne(tx, db, i, r, reply, now)
		case r.Trigger == domain.TriggerSchedule:
			why := fmt.Sprintf("overlap: run %d, which asked the same, got the answer; --all releases every waiting run", of.Run)
			err = endUnstarted(tx, db, r, Result{Outcome: domain.OutcomeSkipped, Error: why}, now)
		case stands:
			err = answerOne(tx, db, i, r, reply, now)
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// ExpireItem ends the run of an item that nobody answered.
func (l *Ledger) ExpireItem(ctx context.Context, id int64, res Result) error {
	now := l.Now()
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		// Answered or withdrawn meanwhile, which is as good.
		i, r, err := inbox.Lock(tx, l.DB, id)
		if errors.Is(err, inbox.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		inbox.Close(tx, i, inbox.ItemExpired, "", "", now)
		return endUnstarted(tx, l.DB, r, res, now)
	})
}
