package blob

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"rouse/internal/ledger/store"
)

const (
	// claimName is the name of the object that records the owner of a storage location.
	claimName = "rouse-values.json"
	// claimMark is the prefix of the hash in a row of blobs with run 0. That row holds the id of
	// the claimed location.
	claimMark   = "claim:"
	claimFormat = 1
	maxClaim    = 64 << 10 // bytes
)

// valuesClaim records the ledger that owns the large values at a storage location.
type valuesClaim struct {
	Format   int       `json:"format"`
	ID       string    `json:"id"`       // also stored in the claim row of the ledger
	Database string    `json:"database"` // server and table; a copied database has another value
	Ledger   string    `json:"ledger"`
	Since    time.Time `json:"since"`
}

// RefusedError is returned for a storage location that cannot be used. Its message is for the
// owner.
type RefusedError struct{ Message string }

func (e *RefusedError) Error() string { return e.Message }

func refuseValues(format string, args ...any) error {
	return &RefusedError{fmt.Sprintf(format, args...)}
}

// Claim claims the storage location of large values for this ledger, unless it already has it. It
// then checks that objects can be read, listed, written and removed there.
//
// If the location belongs to a database that this ledger's database is a copy of, Claim fails
// unless adopt is set. It also fails if the ledger has large values but was opened without a
// location.
func (l *Blobs) Claim(ctx context.Context, adopt bool) error {
	if l.DB.Postgres == nil {
		return nil
	}
	v, ok := l.values.(*bucketBlobs)
	if !ok {
		id, err := l.claimID(ctx)
		if err == nil && id != "" {
			err = errNoValues
		}
		return err
	}

	// Nodes that start together claim one after the other.
	conn, err := l.DB.Postgres.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the lock is released before
	if _, err := conn.ExecContext(ctx, `select pg_advisory_lock($1, $2)`, l.DB.Class, store.LockValues); err != nil {
		return err
	}
	defer func() {
		// otherwise the lock ends with the session
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), `select pg_advisory_unlock($1, $2)`, l.DB.Class, store.LockValues)
	}()

	if err := l.claimPlace(ctx, v, adopt); err != nil {
		return err
	}
	return l.Check(ctx)
}

// claimPlace claims a location without an owner. With adopt, it also takes over a location from the
// database that this one is a copy of.
func (l *Blobs) claimPlace(ctx context.Context, v *bucketBlobs, adopt bool) error {
	err := l.checkClaim(ctx, v)
	var no *unclaimedError
	if !errors.As(err, &no) || no.copied && !adopt {
		return err
	}

	c := no.claim
	if !no.copied && !no.begun {
		there, err := v.store.List(ctx, "", "")
		if err != nil {
			return err
		}
		if len(there) > 0 {
			return refuseValues("there is something in it that is no large value of a ledger (%.100s); name an empty folder, or another prefix", there[0].Name)
		}
		c = valuesClaim{Format: claimFormat, ID: rand.Text(), Since: time.Now().UTC()}
	}
	if c.Ledger, c.Database = l.DB.ID(), no.database; !no.begun {
		content, err := json.MarshalIndent(c, "", " ")
		if err != nil {
			return err
		}
		if err := v.store.Put(ctx, claimName, bytes.NewReader(content), int64(len(content))); err != nil {
			return err
		}
	}
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		_, err := tx.Exec(`insert into blobs (hash, run) values ($1, 0) on conflict do nothing`, claimMark+c.ID)
		return err
	})
}

// unclaimedError is returned for a location that this ledger does not own, but may claim.
type unclaimedError struct {
	claim    valuesClaim
	database string // id of this ledger's database
	copied   bool   // the location belongs to a database that this one is a copy of
	begun    bool   // the location names this ledger, but the claim row is missing
}

func (e *unclaimedError) Error() string {
	if e.copied {
		return fmt.Sprintf("the large values there are also those of another database (%.100s), of which this one is a copy, and each of them would remove what the other needs. If that one is gone for good, take them over: rouse serve --adopt. Else name an empty place for this one after rouse engine migrate", e.claim.Database)
	}
	return "the place is not the ledger's yet; rouse serve makes it that"
}

// checkClaim checks that a location belongs to this ledger. It returns an *unclaimedError if the
// ledger may claim it.
func (l *Blobs) checkClaim(ctx context.Context, v *bucketBlobs) error {
	id, err := l.claimID(ctx)
	if err != nil {
		return err
	}
	database, err := l.databaseID(ctx)
	if err != nil {
		return err
	}

	c, err := v.readClaim(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist) && id == "":
		return &unclaimedError{database: database}
	case errors.Is(err, fs.ErrNotExist):
		return refuseValues("the large values of this ledger are not there: it has no %s. They are at the place that engine.blobs named before; a folder has to be the same on every node", claimName)
	case err != nil:
		return err
	case id == "" && c.Database == database:
		return &unclaimedError{claim: c, database: database, begun: true}
	case c.ID != id:
		return refuseValues("the large values there belong to another ledger since %s; name an empty place, or the previous engine.blobs", c.Since.UTC().Format(time.RFC3339))
	case c.Database != database:
		return &unclaimedError{claim: c, database: database, copied: true}
	}
	return nil
}

func (v *bucketBlobs) readClaim(ctx context.Context) (c valuesClaim, err error) {
	r, err := v.store.Get(ctx, claimName, 0, 0)
	if err != nil {
		return c, err
	}
	defer r.Close()
	content, err := io.ReadAll(io.LimitReader(r, maxClaim))
	if err != nil {
		return c, err
	}
	if json.Unmarshal(content, &c) != nil || c.ID == "" || c.Format != claimFormat {
		return c, refuseValues("its %s is none that this rouse understands; name an empty place", claimName)
	}
	return c, nil
}

// claimID returns the id of the location that the ledger has claimed, or "" if it has not claimed
// one.
func (l *Blobs) claimID(ctx context.Context) (string, error) {
	row, err := store.OrZero(store.Value[string](store.Reads(ctx, l.DB), `select hash from blobs where run = 0 and hash like $1`, claimMark+"%"))
	return strings.TrimPrefix(row, claimMark), err
}

// databaseID returns an identifier that a copy of this database does not share. It consists of the
// server and the table.
func (l *Blobs) databaseID(ctx context.Context) (string, error) {
	server, err := store.Value[string](store.Reads(ctx, l.DB), `select system_identifier::text from pg_control_system()`)
	if err != nil {
		if ctx.Err() != nil {
			return "", err
		}
		server = "?" // some servers hide it from users; the table is unique within a server
	}
	return fmt.Sprintf("%s/%d", server, uint32(l.DB.Class)), nil
}

// Check checks that the storage location belongs to this ledger. It also checks that objects can be
// written, read, listed and removed there.
func (l *Blobs) Check(ctx context.Context) error {
	v, ok := l.values.(*bucketBlobs)
	if !ok {
		return nil
	}
	if err := l.checkClaim(ctx, v); err != nil {
		return err
	}

	name := "probe/" + rand.Text()
	err := v.probe(ctx, name)
	v.note(err)
	return err
}

func (v *bucketBlobs) probe(ctx context.Context, name string) error {
	if err := v.store.Put(ctx, name, strings.NewReader(name), int64(len(name))); err != nil {
		return fmt.Errorf("nothing can be written there: %w", err)
	}
	r, err := v.store.Get(ctx, name, 0, 0)
	if err != nil {
		return fmt.Errorf("what was written there cannot be read: %w", err)
	}
	got, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err == nil && string(got) != name {
		err = errors.New("it is something else")
	}
	if err != nil {
		return fmt.Errorf("what was written there cannot be read: %w", err)
	}

	if all, err := v.store.List(ctx, name, ""); err != nil || len(all) != 1 {
		return errors.Join(errors.New("what was written there is not listed"), err)
	}
	if err := v.store.Delete(ctx, name); err != nil {
		return fmt.Errorf("nothing can be removed there: %w", err)
	}
	return nil
}
