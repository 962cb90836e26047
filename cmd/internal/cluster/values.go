package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/places"
	"rouse/cmd/internal/replicate/target"
	"rouse/internal/fspath"
	"rouse/internal/ledger"
	"rouse/internal/ledger/blob"
	"rouse/internal/owner"
	"rouse/internal/storage/objects"
)

// checkValuesFor is the timeout for checking the store of large values.
const checkValuesFor = 20 * time.Second

// OpenValues opens the configured store for large values without contacting it. It returns nil if
// they are in the database.
func OpenValues(e config.Engine) (objects.Store, error) {
	if e.Blobs == "" {
		return nil, nil
	}
	t, err := target.Parse(e.Blobs)
	if err != nil {
		return nil, fmt.Errorf("engine.blobs %w", err)
	}
	return t.Open(target.Keys{Access: e.AccessKey, Secret: e.SecretKey})
}

// ClaimValues checks that the configured store is the one of the ledger and accepts large values.
func ClaimValues(ctx context.Context, l *ledger.Ledger, e config.Engine, adopt bool) error {
	ctx, cancel := context.WithTimeout(ctx, checkValuesFor)
	defer cancel()
	return explainValues(e, l.Blobs.Claim(ctx, adopt))
}

// explainValues adds the address of the store to an error.
func explainValues(e config.Engine, err error) error {
	if err == nil || e.Blobs == "" {
		return err
	}
	at := e.Blobs
	if t, parsed := target.Parse(e.Blobs); parsed == nil {
		at = t.String()
	}
	switch {
	case errors.As(err, new(*blob.RefusedError)):
		return fmt.Errorf("engine.blobs, %s: %w", at, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("engine.blobs, %s: it did not answer for %s; see that its server runs, and that nothing between keeps this machine out", at, checkValuesFor)
	}
	return fmt.Errorf("engine.blobs, %s: no large values can be kept there: %w", at, err)
}

// ClaimValues checks the store of large values for a daemon. Without the store, values cannot be
// saved.
func (s *Self) ClaimValues(ctx context.Context, adopt bool) error {
	if !s.Shared() {
		return nil
	}
	e := s.Setup().Config.Engine
	if e.Blobs != "" {
		if err := s.checkValuesFolder(e); err != nil {
			return err
		}
	}
	return ClaimValues(ctx, s.Ledger, e, adopt)
}

// checkValuesFolder refuses a folder in which others could remove values.
func (s *Self) checkValuesFolder(e config.Engine) error {
	t, err := target.Parse(e.Blobs)
	if err != nil || t.Folder == "" {
		return err
	}
	if who := places.WriterAround(s.Setup().Config, fspath.Real(t.Folder)); who != "" {
		return fmt.Errorf("engine.blobs: no large values are kept in %s, because %s, and could remove them; name a folder that is yours alone", t.Folder, who)
	}
	if why := owner.WritableByOthers(t.Folder); why != "" {
		return fmt.Errorf("engine.blobs: no large values are kept in %s, because it %s, and who may write there may remove them; %s", t.Folder, why, owner.Chmod(t.Folder))
	}
	return nil
}

// CheckValues checks whether large values can be written and read.
func (s *Self) CheckValues(ctx context.Context) api.Check {
	e := s.Setup().Config.Engine
	c := api.Check{Name: "blobs", OK: true, Detail: "large values are in PostgreSQL"}
	if e.Blobs == "" {
		return c
	}

	since, why := s.Ledger.Blobs.Problem()
	ctx, cancel := context.WithTimeout(ctx, checkValuesFor)
	defer cancel()
	if err := explainValues(e, s.Ledger.Blobs.Check(ctx)); err != nil {
		c.OK, c.Detail, c.Remedy = false, err.Error()+"; large values stay in PostgreSQL until it works, and those that are there cannot be read", "see the message"
		return c
	}
	c.Detail = "large values are written, read, listed and removed at " + e.Blobs
	if why != nil {
		c.Detail += fmt.Sprintf("; it failed from %s until now, and what was written meanwhile stays in PostgreSQL", api.LocalTime(since, s.Setup().Config.Zone()))
	}
	return c
}

// valuesProblem returns a message if large values are not in their store, or "".
func (s *Self) valuesProblem() string {
	since, why := s.Ledger.Blobs.Problem()
	if why == nil {
		return ""
	}
	return fmt.Sprintf("large values stay in PostgreSQL since %s, because engine.blobs takes none: %v", api.LocalTime(since, s.Setup().Config.Zone()), why)
}
