package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/fileop"
	"rouse/internal/ledger/ledgertest"
	"rouse/internal/ledger/maint"
	"rouse/internal/ledger/steps"
	"rouse/internal/ledger/workspace"
	"rouse/internal/storage/objects"
)

// flaky is a storage location that can be made unreachable.
type flaky struct {
	objects.Folder
	down atomic.Bool
}

var errDown = errors.New("the place is out of reach")

func (f *flaky) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if f.down.Load() {
		return errDown
	}
	return f.Folder.Put(ctx, name, r, size)
}

func (f *flaky) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if f.down.Load() {
		return nil, errDown
	}
	return f.Folder.Get(ctx, name, offset, length)
}

// values returns the files of the large values at the location.
func (f *flaky) values(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(f.Path, "values", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func newFlaky(t *testing.T) *flaky { return &flaky{Folder: objects.Folder{Path: t.TempDir()}} }

// withValues opens the ledger of a database with a storage location for large values.
func withValues(t *testing.T, url string, s objects.Store) *ledger.Ledger {
	t.Helper()
	db := ledgertest.OpenPostgres(t, url)
	db.SetMaxIdleConns(0) // tests open many connections, and the server allows a hundred
	l, err := ledger.Open(context.WithoutCancel(t.Context()), ledger.Options{DB: db, Values: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func claimed(t *testing.T, url string, s objects.Store) *ledger.Ledger {
	t.Helper()
	l := withValues(t, url, s)
	if err := l.Blobs.Claim(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	return l
}

// largeRun is a run with a large value in each column that may hold one, and one in a workspace.
type largeRun struct {
	run       int64
	attempt   ledger.Attempt
	artifacts []int64
	fileOp    int64
}

var large = []byte(`"` + strings.Repeat("large ", 20_000) + `"`)

func newLargeRun(t *testing.T, l *ledger.Ledger) (r largeRun) {
	t.Helper()
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	accepted, err := l.Enqueue(ctx, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerWebhook, Detail: ledger.TriggerDetail{Webhook: &ledger.Delivery{}}, Body: string(large)})
	check(err)
	r.run = accepted[0].Run
	_, r.attempt, err = l.StartAttempt(ctx, r.run)
	check(err)
	check(l.Steps.StartStep(ctx, r.attempt, steps.Step{Number: 1}))
	check(l.Steps.FinishStep(ctx, r.attempt, steps.Step{Number: 1, Message: large}))
	call := ledger.Call{Run: r.run, Attempt: 1, Step: 1, Key: "k1", Tool: "file_read", Args: large}
	check(l.Steps.StartCall(ctx, r.attempt, call))
	call.Envelope, call.State = large, domain.CallDone
	check(l.Steps.FinishCall(ctx, r.attempt, call))
	op, err := l.FileOps.Add(ctx, r.attempt, fileop.Op{Agent: "a", Type: fileop.Write, Root: "/w", Path: "/w/x", Size: int64(len(large)), BeforeHash: "b"}, large)
	r.fileOp = op.ID
	check(err)
	a, err := l.Artifacts.Add(ctx, r.attempt, artifact.Artifact{Agent: "a", Key: "k2", Name: "x"}, large)
	check(err)
	w, err := l.Workspaces.Create(ctx, workspace.Author{Attempt: r.attempt, Key: "k3"}, workspace.Workspace{Agent: "a", Skill: "notes", Name: "trip", SchemaVersion: "2", State: []byte(`{"n": 1}`)})
	check(err)
	b, err := l.Workspaces.AddArtifact(ctx, workspace.Author{Attempt: r.attempt, Key: "k4"}, artifact.Artifact{Workspace: w.ID, Title: "plan"}, large)
	check(err)
	r.artifacts = []int64{a.ID, b.ID}
	return r
}

// read reads all large values of the run.
func (r largeRun) read(t *testing.T, l *ledger.Ledger) error {
	t.Helper()
	ctx := t.Context()
	same := func(what string, got []byte, err error) error {
		if err == nil && !bytes.Equal(got, large) {
			t.Errorf("%s has %d bytes", what, len(got))
		}
		return err
	}
	body, err := l.Runs.DeliveryBody(ctx, r.run)
	errs := []error{same("the body", []byte(body), err)}
	steps, err := l.Steps.List(ctx, r.run)
	if err == nil {
		err = same("the step", steps[0].Message, nil)
	}
	calls, err2 := l.Steps.Calls(ctx, r.run)
	if err2 == nil {
		err2 = errors.Join(same("the arguments", calls[0].Args, nil), same("the envelope", calls[0].Envelope, nil))
	}
	before, err3 := l.FileOps.Before(ctx, r.fileOp)
	errs = append(errs, err, err2, same("what the file was", before, err3))
	for _, id := range r.artifacts {
		_, content, err := l.Artifacts.Bytes(ctx, r.run, id)
		errs = append(errs, same("the artifact", content, err))
	}
	return errors.Join(errs...)
}

// inDatabase returns the number of large values in the database itself.
func inDatabase(t *testing.T, url string) (n int) {
	t.Helper()
	err := ledgertest.OpenPostgres(t, url).QueryRowContext(t.Context(), `select (select count(*) from steps where length(message) > 65536) + (select count(*) from calls where length(args) > 65536)
		+ (select count(*) from calls where length(envelope) > 65536) + (select count(*) from artifacts where length(content) > 65536)
		+ (select count(*) from file_ops where length(before) > 65536) + (select count(*) from deliveries where length(body) > 65536)`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestValues checks that all processes of a ledger store large values at the location, that content
// is verified, and that values stay in the database if the location fails.
func TestValues(t *testing.T) {
	t.Parallel()
	url, _ := ledgertest.Postgres(t)
	place := newFlaky(t)
	l := claimed(t, url, place)
	r := newLargeRun(t, l)
	if n := inDatabase(t, url); n != 0 || len(place.values(t)) != 7 {
		t.Errorf("%d large values are in the database, %d at the place", n, len(place.values(t)))
	}
	other := claimed(t, url, place)
	if err := r.read(t, other); err != nil {
		t.Error(err)
	}
	ledgertest.Audited(t, other)
	if _, err := l.Enqueue(t.Context(), ledger.Request{Job: "small", Agent: "a", Trigger: domain.TriggerWebhook, Detail: ledger.TriggerDetail{Webhook: &ledger.Delivery{}}, Body: "small"}); err != nil || len(place.values(t)) != 7 {
		t.Errorf("a small one: %v, %d at the place", err, len(place.values(t)))
	}

	// While the location is unreachable, new values stay in the database and can be read. Reading
	// older values returns an error with the reason.
	place.down.Store(true)
	while := newLargeRunAgain(t, l)
	if err := while.read(t, l); err != nil {
		t.Errorf("what was written while the place was down: %v", err)
	}
	if n := inDatabase(t, url); n != 1 {
		t.Errorf("%d large values are in the database", n)
	}
	if err := r.read(t, l); err == nil || !strings.Contains(err.Error(), "cannot be read") || !errors.Is(err, errDown) {
		t.Errorf("reading: %v", err)
	}
	if _, why := l.Blobs.Problem(); !errors.Is(why, errDown) {
		t.Errorf("what is told of it: %v", why)
	}
	if err := l.Blobs.Check(t.Context()); !errors.Is(err, errDown) {
		t.Errorf("the check says %v", err)
	}
	place.down.Store(false)
	if err := errors.Join(l.Blobs.Check(t.Context()), r.read(t, l), while.read(t, l)); err != nil {
		t.Errorf("once it is back: %v", err)
	}
	if _, why := l.Blobs.Problem(); why != nil {
		t.Errorf("what is told of it: %v", why)
	}
	if newLargeRunAgain(t, l); len(place.values(t)) != 8 {
		t.Errorf("%d at the place", len(place.values(t)))
	}

	// Another folder at its path, as when a disk is not mounted, receives no values.
	if err := errors.Join(os.Rename(place.Path, place.Path+"-away"), os.Mkdir(place.Path, 0o700)); err != nil {
		t.Fatal(err)
	}
	away := newLargeRunAgain(t, l)
	if n := len(place.values(t)); n != 0 {
		t.Errorf("%d were written into another folder", n)
	}
	if err := errors.Join(os.Remove(place.Path), os.Rename(place.Path+"-away", place.Path), l.Blobs.Check(t.Context()), away.read(t, l)); err != nil {
		t.Error(err)
	}

	// Errors name the damaged or missing value. A value with other content is not returned.
	first := place.values(t)[0]
	if err := os.WriteFile(first, append(bytes.Clone(large[:1000]), '"'), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.read(t, l), while.read(t, l)); err == nil || !strings.Contains(err.Error(), "damaged") || !strings.Contains(err.Error(), filepath.Base(first)) {
		t.Errorf("damaged: %v", err)
	}
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.read(t, l), while.read(t, l)); err == nil || !strings.Contains(err.Error(), "is missing") || !strings.Contains(err.Error(), filepath.Base(first)) {
		t.Errorf("missing: %v", err)
	}
}

// newLargeRunAgain creates a run with one large value, the body of its request.
func newLargeRunAgain(t *testing.T, l *ledger.Ledger) bodyOnly {
	t.Helper()
	accepted, err := l.Enqueue(t.Context(), ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerWebhook, Detail: ledger.TriggerDetail{Webhook: &ledger.Delivery{}}, Body: string(large)})
	if err != nil {
		t.Fatal(err)
	}
	return bodyOnly(accepted[0].Run)
}

type bodyOnly int64

func (b bodyOnly) read(t *testing.T, l *ledger.Ledger) error {
	t.Helper()
	body, err := l.Runs.DeliveryBody(t.Context(), int64(b))
	if err == nil && body != string(large) {
		t.Errorf("the body has %d bytes", len(body))
	}
	return err
}

// TestValuesAreCollected checks that values without references are removed a day after they were
// written. New values, values of a workspace, and values at a location of another database stay.
func TestValuesAreCollected(t *testing.T) {
	t.Parallel()
	url, _ := ledgertest.Postgres(t)
	place := newFlaky(t)
	l := claimed(t, url, place)
	r := newLargeRun(t, l)
	if err := l.Finish(t.Context(), r.attempt, ledger.Result{Outcome: domain.OutcomeSuccess}); err != nil {
		t.Fatal(err)
	}
	kept := newLargeRunAgain(t, l)
	orphan := filepath.Join(place.Path, "values", "ab", "ab"+strings.Repeat("0", 62)+".1.ORPHAN")
	foreign := filepath.Join(place.Path, "values", "ab", "notes.txt")
	for _, path := range []string{orphan, foreign} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}

	// Pruning after two hours removes the run, but its values are less than a day old.
	hour := func(string) time.Duration { return time.Hour }
	if n, err := l.Maint.Prune(t.Context(), time.Now().Add(2*time.Hour), hour); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := os.Stat(orphan); err == nil {
		t.Error("an old orphan is still there")
	}
	if n := len(place.values(t)); n != 7+1+1 {
		t.Errorf("%d are there while they are new", n)
	}

	// Simulate that another database has taken over the location.
	claim := filepath.Join(place.Path, "rouse-values.json")
	own, err := os.ReadFile(claim)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(claim, bytes.Replace(own, []byte(`"database": "`), []byte(`"database": "1`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Maint.Prune(t.Context(), time.Now().Add(30*time.Hour), hour); err == nil || !strings.Contains(err.Error(), "another database") {
		t.Errorf("a place that is another's: %v", err)
	}
	if n := len(place.values(t)); n != 7+1+1 {
		t.Errorf("%d are there after it", n)
	}
	if err := os.WriteFile(claim, own, 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := l.Maint.Prune(t.Context(), time.Now().Add(30*time.Hour), hour); err != nil {
		t.Fatal(err)
	}
	if n := len(place.values(t)); n != 1+1+1 { // the workspace's value, the body of the other run, and the foreign file
		t.Errorf("%d are left: %v", n, place.values(t))
	}
	_, content, err := l.Artifacts.Bytes(t.Context(), r.run, r.artifacts[1])
	if err := errors.Join(err, kept.read(t, l)); err != nil || !bytes.Equal(content, large) {
		t.Errorf("what is needed: %v", err)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error("what is no value was removed")
	}
}

// TestValuesAreClaimed checks that a location has one ledger and a ledger has one location, and
// that others get a clear error.
func TestValuesAreClaimed(t *testing.T) {
	t.Parallel()
	url, _ := ledgertest.Postgres(t)
	other, _ := ledgertest.Postgres(t)
	place, elsewhere, gone := newFlaky(t), newFlaky(t), newFlaky(t)
	full := newFlaky(t)
	if err := errors.Join(os.WriteFile(filepath.Join(full.Path, "notes.txt"), nil, 0o600), os.Remove(gone.Path)); err != nil {
		t.Fatal(err)
	}
	closed := newFlaky(t)
	closed.down.Store(true)

	refused := func(what, url string, s objects.Store, adopt bool, want string) {
		t.Helper()
		if err := withValues(t, url, s).Blobs.Claim(t.Context(), adopt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	refused("a place with something else", url, full, false, "notes.txt")
	refused("a place that is gone", url, gone, false, "no such file")
	refused("a place that is down", url, closed, false, errDown.Error())
	for range 2 { // again, as on each start
		claimed(t, url, place)
	}
	refused("another place", url, elsewhere, false, "are not there")
	refused("another ledger", other, place, false, "belong to another ledger")
	refused("another ledger by force", other, place, true, "belong to another ledger")
	refused("without a place", url, nil, false, "put engine.blobs back")
	claimed(t, other, elsewhere)

	// A copy of the database with all its rows.
	claim := filepath.Join(place.Path, "rouse-values.json")
	own, err := os.ReadFile(claim)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(claim, bytes.Replace(own, []byte(`"database": "`), []byte(`"database": "1`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a copy", url, place, false, "rouse serve --adopt")
	if err := withValues(t, url, place).Blobs.Claim(t.Context(), true); err != nil {
		t.Errorf("taking it over: %v", err)
	}
	claimed(t, url, place)

	// A claim that was interrupted before the ledger recorded it.
	if _, err := ledgertest.OpenPostgres(t, url).ExecContext(t.Context(), `delete from blobs where run = 0`); err != nil {
		t.Fatal(err)
	}
	claimed(t, url, place)
	if err := os.WriteFile(claim, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a claim that is none", url, place, false, "none that this rouse understands")
}

// TestCopyWithValues checks that a copy moves large values to the location and back into a home,
// including those that outlive their run.
func TestCopyWithValues(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	from := openIn(t, first)
	r := newLargeRun(t, from)
	if err := from.Finish(t.Context(), r.attempt, ledger.Result{Outcome: domain.OutcomeSuccess}); err != nil {
		t.Fatal(err)
	}

	url, _ := ledgertest.Postgres(t)
	place := newFlaky(t)
	there := openCopy(t, ledger.Options{DB: ledgertest.OpenPostgres(t, url), Values: place})
	if err := there.Blobs.Claim(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if _, err := maint.Copy(t.Context(), from.Maint, there.Maint, maint.CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := inDatabase(t, url); n != 0 {
		t.Errorf("%d large values are in the database", n)
	}
	if err := r.read(t, there); err != nil {
		t.Error(err)
	}
	ledgertest.Audited(t, there)

	back := openCopy(t, ledger.Options{Path: filepath.Join(second, "ledger.db"), Blobs: filepath.Join(second, "blobs")})
	place.down.Store(true)
	if _, err := maint.Copy(t.Context(), there.Maint, back.Maint, maint.CopyOptions{}); !errors.Is(err, errDown) {
		t.Errorf("copied from a place that is down: %v", err)
	}
	place.down.Store(false)
	if _, err := maint.Copy(t.Context(), there.Maint, back.Maint, maint.CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.read(t, back); err != nil {
		t.Error(err)
	}
	if err := back.Close(); err != nil {
		t.Fatal(err)
	}

	// Values of a workspace stay when the run is removed.
	home := openIn(t, second)
	if n, err := home.Maint.Prune(t.Context(), time.Now().Add(48*time.Hour), func(string) time.Duration { return time.Hour }); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, content, err := home.Artifacts.Bytes(t.Context(), r.run, r.artifacts[1]); err != nil || !bytes.Equal(content, large) {
		t.Errorf("the artifact of the workspace: %v", err)
	}
}
