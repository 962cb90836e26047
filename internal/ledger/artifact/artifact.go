// Package artifact stores the files that runs hand to their owner.
package artifact

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"rouse/internal/ledger/blob"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// Artifact is a file that a run handed to its owner. Artifacts with the same name form a chain of
// versions if their runs belong to the same job. For runs without a job, the agent takes the place
// of the job. The last version of a chain is the current one.
type Artifact struct {
	ID          int64
	Run         int64
	Job, Agent  string
	Key         string // idempotency key of the call that added the artifact
	At          time.Time
	Name        string // file name without a folder
	Description string
	Version     int    // starts at 1
	Parent      int64  // ID of the previous version; 0 for the first
	Size        int64  // in bytes
	Hash        string // SHA-256, in hexadecimal

	// The remaining fields are for artifacts of a workspace. Their versions are chained by Parent;
	// see workspace.Workspaces.AddArtifact.
	Workspace         int64 // 0 if the artifact belongs only to the run
	Type, Title, Role string
	// Status is chosen by the skill, except StatusSuperseded and StatusDiscarded, which the ledger
	// sets.
	Status       string
	Approval     string // decision of the owner; empty before a decision
	ApprovalRef  string // the skill's own reference for the approval
	SupersededBy int64  // ID of the next version; 0 for the last
	Discarded    bool   // discarded with the unfinished changes of its run
}

// Artifacts stores the files that runs hand to their owner.
type Artifacts struct {
	DB    *store.DB
	Blobs *blob.Blobs
}

// Add stores content as the next version of a.Name. If a call is repeated after a crash, Add
// returns the artifact that the call stored before. The content is deleted together with its run.
// Version numbers continue as long as any version of the name is stored.
func (l *Artifacts) Add(ctx context.Context, at record.Attempt, a Artifact, content []byte) (Artifact, error) {
	sum := sha256.Sum256(content)
	a.Run, a.At, a.Size, a.Hash = at.Run, l.DB.Now(), int64(len(content)), hex.EncodeToString(sum[:])
	add := func(tx *store.Tx, _ record.Attempt, job, stored string) error {
		// A call that is repeated after a crash has already stored its artifact.
		known, again, err := store.OrFalse(store.One(tx, Fields, `select `+Columns+` from artifacts where run = $1 and key = $2`, a.Run, a.Key))
		if again {
			a = known
		}
		if again || err != nil {
			return err
		}

		a.Job = job
		chain := "job/" + job
		if job == "" {
			chain = "agent/" + a.Agent
		}

		if err := store.Scan(tx, []any{&a.Version, &a.Parent}, `select coalesce(max(version), 0) + 1, coalesce(max(id), 0) from artifacts where chain = $1 and name = $2`, chain, a.Name); err != nil {
			return err
		}
		if a.ID, err = store.Value[int64](tx, `insert into artifacts (run, job, agent, chain, key, at, name, description, version, parent, size, hash, content)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) returning id`,
			a.Run, a.Job, a.Agent, chain, a.Key, store.Millis(a.At), store.Storable(a.Name), tx.Redact(store.Storable(a.Description)), a.Version, a.Parent, a.Size, a.Hash, stored); err != nil {
			return err
		}

		return record.AddEvent(tx, record.Event{Run: a.Run, Job: job, At: a.At, Kind: "artifact.shared"}, map[string]any{"artifact": fmt.Sprint(a.ID), "name": a.Name, "version": a.Version, "size": a.Size})
	}

	err := record.WriteEntries(ctx, l.Blobs, at, []record.Entry{record.NewEntry(base64.StdEncoding.AppendEncode(nil, content), add)})
	a.At = store.Instant(store.Millis(a.At))
	return a, err
}

// Columns are the columns of an artifact, in the order of Fields.
const Columns = `id, run, job, agent, key, at, name, description, version, parent, size, hash, workspace, type, title, role,
	case when discarded = 1 then '` + StatusDiscarded + `' when superseded_by <> 0 then '` + StatusSuperseded + `' else status end,
	approval, approval_ref, superseded_by, discarded`

// Fields returns the scan destinations for Columns.
func Fields(a *Artifact) []any {
	return []any{
		&a.ID, &a.Run, &a.Job, &a.Agent, &a.Key, store.Time(&a.At), &a.Name, &a.Description, &a.Version, &a.Parent, &a.Size, &a.Hash,
		&a.Workspace, &a.Type, &a.Title, &a.Role, &a.Status, &a.Approval, &a.ApprovalRef, &a.SupersededBy, &a.Discarded,
	}
}

// List returns the artifacts of runs, oldest first.
func (l *Artifacts) List(ctx context.Context, runs ...int64) (all []Artifact, err error) {
	for some := range slices.Chunk(runs, record.IdsAtOnce) {
		found, err := store.List(store.Reads(ctx, l.DB), Fields, `select `+Columns+` from artifacts where run in (`+record.IdPlaces+`) order by id`, record.IdArgs(some)...)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b Artifact) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

// Bytes returns an artifact of a run and its content.
func (l *Artifacts) Bytes(ctx context.Context, run, id int64) (Artifact, []byte, error) {
	a, err := store.One(store.Reads(ctx, l.DB), Fields, `select `+Columns+` from artifacts where run = $1 and id = $2`, run, id)
	if a, err = store.OrNotFound(a, err, "artifact %d of run %d", id, run); err != nil {
		return a, nil, err
	}
	stored, err := store.Value[string](store.Reads(ctx, l.DB), `select content from artifacts where id = $1`, id)
	if err != nil {
		return a, nil, err
	}
	content, err := l.Blobs.UnpackBytes(ctx, stored)
	if err != nil {
		err = fmt.Errorf("read artifact %d of run %d: %w", id, run, err)
	}
	return a, content, err
}

// Decisions of the owner about an artifact of a workspace. A skill can set any status, but only the
// owner can approve or reject.
const (
	Approved = "approved"
	Rejected = "rejected"
)

// Statuses that the ledger sets. StatusDraft is the default. A skill can set any other status.
const (
	StatusDraft      = "draft"
	StatusSuperseded = "superseded"
	StatusDiscarded  = "discarded"
)
