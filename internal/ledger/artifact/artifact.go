// Package artifact has the files that runs handed to their owner.
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

// Artifact is a file that a run handed to its owner (OSA-19). Artifacts of one name are
// versions of each other when their runs are of one job or, without a job, of one agent
// (UNI-12): a chain, whose last version is the one that counts (OSL-25).
type Artifact struct {
	ID          int64
	Run         int64
	Job, Agent  string
	Key         string // of the call, which shares once
	At          time.Time
	Name        string // of the file, without a folder
	Description string
	Version     int    // from 1
	Parent      int64  // the version before; 0: there was none
	Size        int64  // bytes
	Hash        string // SHA-256, hexadecimal

	// Of a workspace, whose versions are chained by their parents (see workspace.Workspaces.AddArtifact).
	Workspace         int64 // 0: of the run alone
	Type, Title, Role string
	Status            string // as the skill says; StatusSuperseded and StatusDiscarded by themselves
	Approval          string // as the owner has decided; "": nobody has
	ApprovalRef       string // as the skill says
	SupersededBy      int64  // the version after; 0: none
	Discarded         bool   // with what else the run had left half changed
}

// Artifacts has the files that runs handed to their owner.
type Artifacts struct {
	DB    *store.DB
	Blobs *blob.Blobs
}

// Add stores what an attempt hands over, as the next version of its name. A call that is
// made again after a crash gets what it shared before. The bytes are kept as long as the run;
// version numbers go on for as long as any version of the name is kept.
func (l *Artifacts) Add(ctx context.Context, at record.Attempt, a Artifact, content []byte) (Artifact, error) {
	sum := sha256.Sum256(content)
	a.Run, a.At, a.Size, a.Hash = at.Run, l.DB.Now(), int64(len(content)), hex.EncodeToString(sum[:])
	add := func(tx *store.Tx, _ record.Attempt, job, stored string) error {
		// A call that a crash made happen again has shared this already.
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

const Columns = `id, run, job, agent, key, at, name, description, version, parent, size, hash, workspace, type, title, role,
	case when discarded = 1 then '` + StatusDiscarded + `' when superseded_by <> 0 then '` + StatusSuperseded + `' else status end,
	approval, approval_ref, superseded_by, discarded`

func Fields(a *Artifact) []any {
	return []any{
		&a.ID, &a.Run, &a.Job, &a.Agent, &a.Key, store.Time(&a.At), &a.Name, &a.Description, &a.Version, &a.Parent, &a.Size, &a.Hash,
		&a.Workspace, &a.Type, &a.Title, &a.Role, &a.Status, &a.Approval, &a.ApprovalRef, &a.SupersededBy, &a.Discarded,
	}
}

// List lists what runs handed over, the oldest first.
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

// Bytes are the bytes of an artifact of a run.
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

// What the owner has decided on an artifact of a workspace. A skill may give it any status; this is
// the host's alone (C-6).
const (
	Approved = "approved"
	Rejected = "rejected"
)

// The statuses that an artifact of a workspace has by itself; a skill gives it any other.
const (
	StatusDraft      = "draft"
	StatusSuperseded = "superseded"
	StatusDiscarded  = "discarded"
)
