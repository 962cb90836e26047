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

// Reply is an answer to an inbox item.
type Reply struct {
	Text   string
	Reason string // reason of a denial
	All    bool   // answers all runs with the same question, not only the item's run
	// Untrusted means that the text may repeat untrusted content.
	Untrusted bool
}

// Answer answers the run of one item with a text.
func (l *Ledger) Answer(ctx context.Context, id int64, answer string) (Run, error) {
	return l.AnswerAs(ctx, id, Reply{Text: answer})
}

// AnswerAs closes an item and resumes its run, or ends the run if the reply requires it. It also
// applies the reply to other items with the same question, see answerJoined. If the item has an
// input schema, the reply must be JSON. Repeating the same answer has no effect.
//
// It returns ErrClosed if the item is already closed or has expired. It returns ErrInvalidAnswer if
// the item does not offer the answer, and an *AnswerError if fields do not match the schema.
func (l *Ledger) AnswerAs(ctx context.Context, id int64, reply Reply) (Run, error) {
	now := l.Now()
	var run Run
	err := store.Write(ctx, l.DB, func(tx *store.Tx) error {
		i, r, err := inbox.Lock(tx, l.DB, id)
		// A client that repeats its answer could not know that the first one arrived.
		if errors.Is(err, inbox.ErrClosed) && i.HasAnswer(reply.Text) {
			run, err = record.LockRun(tx, l.DB, i.Run)
			return err
		}
		if err != nil {
			return err
		}

		run = r
		// ExpireItem did not close it, because no daemon was running.
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

// Deny denies an approval. The run gets the reason.
func (l *Ledger) Deny(ctx context.Context, id int64, reason string) (Run, error) {
	return l.AnswerAs(ctx, id, Reply{Text: inbox.ApprovalDeny, Reason: reason})
}

// answerOne closes one item and resumes or ends its run.
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

// answerJoined applies a reply to the other open items with the same question. A denial or
// Reply.All applies to all of them. Any other answer releases only the run of the answered item.
// Scheduled runs then end as skipped, because their effect would happen twice. Runs of other
// triggers keep waiting for their own answer, unless a standing approval covers them.
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
		// This reply does not close it: its run has ended, or ExpireItem will end it.
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

// ExpireItem ends the run of an item that was not answered in time.
func (l *Ledger) ExpireItem(ctx context.Context, id int64, res Result) error {
	now := l.Now()
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		// The item was answered or withdrawn in the meantime.
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
