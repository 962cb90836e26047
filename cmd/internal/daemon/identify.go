package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"rouse/cmd/internal/homedir"
	"rouse/internal/atomicfile"
	"rouse/internal/ledger/inbox"
)

// identify records the ledger of the home and blocks databases with runs that the ledger does not
// know.
func (s *storage) identify(ctx context.Context, configured []string, shared bool, log *slog.Logger) error {
	uses, err := s.databases.LedgerUses(ctx)
	if err != nil {
		return err
	}

	newest, err := s.ledger.NewestRun(ctx)
	if err != nil {
		return err
	}

	known := newest
	for _, u := range uses {
		known = max(known, u.Newest(s.ledger.ID()))
	}

	// The databases contain later runs than the ledger, which would assign their ids again.
	if known > newest {
		if err := s.ledger.BeginEpoch(ctx, known); err != nil {
			return err
		}
		log.Warn("the ledger is older than the agents' databases, so it begins a new epoch", "newest_run", newest, "known_run", known, "id", s.ledger.ID())
	}

	held, err := s.databases.HoldUnknown(ctx, uses)
	if err != nil {
		return err
	}

	var agents []string
	for _, h := range held {
		at := slices.IndexFunc(configured, func(name string) bool { return strings.EqualFold(name, h.Agent) })
		if at < 0 { // not configured; the question follows when it is
			continue
		}

		h.Agent = configured[at] // the folder may have another case
		agents = append(agents, h.Agent)
		log.Warn("an agent's runs wait for its owner, because its database holds runs that the ledger does not know", "agent", h.Agent, "reason", h.Reason)
		if err := s.ledger.Inbox.AskAboutDatabase(ctx, h.Agent, "the database of "+h.Agent+" holds runs that the ledger does not know", h.Error()); err != nil {
			return err
		}
	}

	var here []string
	for _, u := range uses {
		here = append(here, u.Agent)
	}
	if err := s.withdrawAnswered(ctx, agents, here, shared); err != nil {
		return err
	}
	return s.stampLedger(log)
}

// withdrawAnswered withdraws the questions about databases that the ledger knows again. here lists
// the databases of this home; other nodes handle the rest.
func (s *storage) withdrawAnswered(ctx context.Context, held, here []string, shared bool) error {
	items, err := s.ledger.Inbox.List(ctx)
	if err != nil {
		return err
	}
	for _, i := range items {
		elsewhere := shared && !slices.ContainsFunc(here, func(name string) bool { return strings.EqualFold(name, i.Agent) })
		if i.Kind == inbox.KindDatabase && !slices.Contains(held, i.Agent) && !elsewhere {
			if err := s.ledger.Inbox.CloseDatabaseItems(ctx, i.Agent, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// stampLedger records the ledger in the home, so that a lost ledger is never replaced by an empty
// one.
func (s *storage) stampLedger(log *slog.Logger) error {
	before, id := homedir.ReadLedgerStamp(s.home.Dir), s.ledger.ID()
	if before == id {
		return nil
	}
	if _, known := s.ledger.Epoch(before); before != "" && !known {
		log.Warn("the home has another ledger than before", "before", before, "now", id)
	}

	if err := atomicfile.Write(filepath.Join(s.home.Dir, homedir.LedgerStampName), []byte(id+"\n"), 0o600); err != nil {
		return fmt.Errorf("cannot record which ledger the home has: %w", err)
	}
	return nil
}

// ReadOnly returns the reason why the ledger is read-only, or nil.
func (s *storage) ReadOnly() error { return s.ledger.ReadOnly() }
