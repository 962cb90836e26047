package ledger

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"rouse/agentdb/sqlite"
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

	// Of a workspace, whose versions are chained by their parents (see AddWorkspaceArtifact).
	Workspace         int64 // 0: of the run alone
	Type, Title, Role string
	Status            string // as the skill says; StatusSuperseded and StatusDiscarded by themselves
	Approval          string // as the owner has decided; "": nobody has
	ApprovalRef       string // as the skill says
	SupersededBy      int64  // the version after; 0: none
	Discarded         bool   // with what else the run had left half changed
}

// AddArtifact stores what an attempt hands over, as the next version of its name. A call that is
// made again after a crash gets what it shared before. The bytes are kept as long as the run;
// version numbers go on for as long as any version of the name is kept.
func (l *Ledger) AddArtifact(ctx context.Context, at Attempt, a Artifact, content []byte) (Artifact, error) {
	sum := sha256.Sum256(content)
	a.Run, a.At, a.Size, a.Hash = at.Run, l.now(), int64(len(content)), hex.EncodeToString(sum[:])
	add := func(tx *sqlite.Tx, _ Attempt, job, stored string) error {
		// A call that a crash made happen again has shared this already.
		known, err := artifact(tx.QueryRow(`select `+artifactColumns+` from artifacts where run = $1 and key = $2`, a.Run, a.Key))
		if err == nil {
			a = known
			return nil
		}

		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}

		a.Job = job
		chain := "job/" + job
		if job == "" {
			chain = "agent/" + a.Agent
		}

		// Reset, because the operation may run more than once.
		a.Version, a.Parent = 1, 0
		err = tx.QueryRow(`select version + 1, id from artifacts where chain = $1 and name = $2 order by version desc limit 1`, chain, a.Name).Scan(&a.Version, &a.Parent)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}

		if err := tx.QueryRow(`insert into artifacts (run, job, agent, chain, key, at, name, description, version, parent, size, hash, content)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) returning id`,
			a.Run, a.Job, a.Agent, chain, a.Key, ms(a.At), storable(a.Name), tx.Redact(storable(a.Description)), a.Version, a.Parent, a.Size, a.Hash, stored).Scan(&a.ID); err != nil {
			return err
		}

		return addEvent(tx, Event{Run: a.Run, Job: job, At: a.At, Kind: "artifact.shared"}, map[string]any{"artifact": fmt.Sprint(a.ID), "name": a.Name, "version": a.Version, "size": a.Size})
	}

	err := l.writeEntries(ctx, at, []Entry{{value: base64.StdEncoding.AppendEncode(nil, content), write: add}})
	a.At = instant(ms(a.At))
	return a, err
}

const artifactColumns = `id, run, job, agent, key, at, name, description, version, parent, size, hash, workspace, type, title, role, status, approval, approval_ref, superseded_by, discarded`

func artifact(row scanner) (Artifact, error) {
	var a Artifact
	var at, discarded int64
	err := row.Scan(&a.ID, &a.Run, &a.Job, &a.Agent, &a.Key, &at, &a.Name, &a.Description, &a.Version, &a.Parent, &a.Size, &a.Hash,
		&a.Workspace, &a.Type, &a.Title, &a.Role, &a.Status, &a.Approval, &a.ApprovalRef, &a.SupersededBy, &discarded)
	a.At, a.Discarded = instant(at), discarded != 0
	switch {
	case a.Discarded:
		a.Status = StatusDiscarded
	case a.SupersededBy != 0:
		a.Status = StatusSuperseded
	}
	return a, err
}

// Artifacts lists what runs handed over, the oldest first.
func (l *Ledger) Artifacts(ctx context.Context, runs ...int64) ([]Artifact, error) {
	if len(runs) == 0 {
		return nil, nil
	}

	// The last is asked for several times, so that there are few texts to prepare: one for each power of two.
	args, places := make([]any, 1<<bits.Len(uint(len(runs)-1))), []string{}
	for i := range args {
		args[i] = runs[min(i, len(runs)-1)]
		places = append(places, "$"+strconv.Itoa(i+1))
	}

	rows, err := l.statements.query(ctx, `select `+artifactColumns+` from artifacts where run in (`+strings.Join(places, ", ")+`) order by id`, args...)
	return collect(rows, err, artifact)
}

// ArtifactBytes are the bytes of an artifact of a run.
func (l *Ledger) ArtifactBytes(ctx context.Context, run, id int64) (Artifact, []byte, error) {
	a, err := artifact(l.statements.row(ctx, `select `+artifactColumns+` from artifacts where run = $1 and id = $2`, run, id))
	if errors.Is(err, sql.ErrNoRows) {
		return a, nil, fmt.Errorf("the artifact %d of run %d: %w", id, run, ErrNotFound)
	}
	if err != nil {
		return a, nil, err
	}

	var stored string
	if err := l.statements.row(ctx, `select content from artifacts where id = $1`, id).Scan(&stored); err != nil {
		return a, nil, err
	}

	text, err := l.unpack(ctx, stored)
	if err != nil {
		return a, nil, err
	}

	content, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return a, nil, fmt.Errorf("the artifact %d of run %d is damaged: %w; restore the home from a backup", id, run, err)
	}

	return a, content, nil
}
