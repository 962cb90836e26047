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
	// claimName is the object that says whose the large values at a place are.
	claimName = "rouse-values.json"
	// claimMark begins the row of run 0, among those of values, that says at which place they are.
	claimMark   = "claim:"
	claimFormat = 1
	maxClaim    = 64 << 10 // bytes
)

// valuesClaim says whose the large values at a place are.
type valuesClaim struct {
	Format   int       `json:"format"`
	ID       string    `json:"id"`       // as the ledger has it in its claim row
	Database string    `json:"database"` // the server and the table: no copy of a database has the same
	Ledger   string    `json:"ledger"`
	Since    time.Time `json:"since"`
}

// RefusedError is a place that large values cannot be kept at, in words for its owner.
type RefusedError struct{ Message string }

func (e *RefusedError) Error() string { return e.Message }

func refuseValues(format string, args ...any) error {
	return &RefusedError{fmt.Sprintf(format, args...)}
}

// Claim makes the place of large values this ledger's, unless it is already, and tries that it can be read, listed, written and
// emptied. Where the ledger is a copy of the database that has the place, adopt takes it over. A ledger that has large values somewhere and was opened
// without a place is refused as well.
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
	defer func() { _ = conn.Close() }() // the lock is given up before
	if _, err := conn.ExecContext(ctx, `select pg_advisory_lock($1, $2)`, l.DB.Class, store.LockValues); err != nil {
		return err
	}
	defer func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), `select pg_advisory_unlock($1, $2)`, l.DB.Class, store.LockValues) // the session ends with it
	}()

	if err := l.claimPlace(ctx, v, adopt); err != nil {
		return err
	}
	return l.Check(ctx)
}

// claimPlace makes a place that is nobody's this ledger's, and takes over what is that of the database it was copied from.
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

// unclaimedError is a place that is not this ledger's, and may become it.
type unclaimedError struct {
	claim    valuesClaim
	database string // of this ledger
	copied   bool   // it is that of a database of which this one is a copy
	begun    bool   // it is this ledger's, which was not told any more
}

func (e *unclaimedError) Error() string {
	if e.copied {
		return fmt.Sprintf("the large values there are also those of another database (%.100s), of which this one is a copy, and each of them would remove what the other needs. If that one is gone for good, take them over: rouse serve --adopt. Else name an empty place for this one after rouse engine migrate", e.claim.Database)
	}
	return "the place is not the ledger's yet; rouse serve makes it that"
}

// checkClaim says whether a place is this ledger's. The error is an *unclaimedError where it may become that.
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

// claimID is the id of the place that the ledger has claimed; "" where it has claimed none.
func (l *Blobs) claimID(ctx context.Context) (string, error) {
	row, err := store.OrZero(store.Value[string](store.Reads(ctx, l.DB), `select hash from blobs where run = 0 and hash like $1`, claimMark+"%"))
	return strings.TrimPrefix(row, claimMark), err
}

// databaseID is what no copy of this database has: its server and its table.
func (l *Blobs) databaseID(ctx context.Context) (string, error) {
	server, err := store.Value[string](store.Reads(ctx, l.DB), `select system_identifier::text from pg_control_system()`)
	if err != nil {
		if ctx.Err() != nil {
			return "", err
		}
		server = "?" // some keep this from users: the table says enough within a server
	}
	return fmt.Sprintf("%s/%d", server, uint32(l.DB.Class)), nil
}

// Check tries whether the place of large values is this ledger's, and can be written, read, listed and emptied.
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
