package workspace

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/blob"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"rouse/internal/text"
)

// Limits of a workspace artifact.
const (
	maxArtifact      = 8 << 20 // bytes
	maxArtifactTitle = 300     // characters
	maxArtifactName  = 120     // bytes
)

// AddArtifact adds an artifact to a workspace. It uses Workspace, Type, Title, Status, Role,
// Description and Parent of a. If a.Parent is set, the artifact becomes the next version of the
// parent and supersedes it.
//
// It returns an *Error if the parent is already superseded. A repeated call returns the artifact
// that it added before.
func (l *Workspaces) AddArtifact(ctx context.Context, by Author, a artifact.Artifact, content []byte) (artifact.Artifact, error) {
	if err := checkArtifact(a, content); err != nil {
		return a, err
	}
	if a.Status == "" {
		a.Status = artifact.StatusDraft
	}

	sum := sha256.Sum256(content)
	a.Run, a.Key, a.At, a.Size, a.Hash = by.Attempt.Run, by.Key, l.DB.Now(), int64(len(content)), hex.EncodeToString(sum[:])
	a.Name = artifactName(a.Title, a.Type)
	wanted := a
	add := func(tx *store.Tx, _ record.Attempt, job, stored string) error {
		known, again, err := store.OrFalse(store.One(tx, artifact.Fields, `select `+artifact.Columns+` from artifacts where run = $1 and key = $2`, by.Attempt.Run, by.Key))
		if err != nil || again {
			a = known
			return err
		}

		a = wanted
		a.Job = job
		_, err = write(tx, l.DB, by, a.Workspace, a.At, false, func(w *Workspace) (string, map[string]any, error) {
			a.Agent = w.Agent
			if a.Role == "" {
				a.Role = w.Role
			}
			err := insertVersion(tx, &a, stored)
			return eventArtifact, map[string]any{"artifact": fmt.Sprint(a.ID), "title": a.Title, "version": a.Version, "status": a.Status}, err
		})
		if err != nil {
			return err
		}

		// The workspace keeps the blob when the run is deleted. Blobs count the workspace as a run
		// with a negative ID.
		if hash, large := strings.CutPrefix(stored, blob.Mark); large {
			blob.Keep(tx, hash, -a.Workspace)
		}
		return nil
	}

	err := record.WriteEntries(ctx, l.Blobs, by.Attempt, []record.Entry{record.NewEntry(base64.StdEncoding.AppendEncode(nil, content), add)})
	a.At = store.Instant(store.Millis(a.At))
	return a, err
}

// checkArtifact returns an *Error if the artifact is not valid.
func checkArtifact(a artifact.Artifact, content []byte) error {
	switch {
	case strings.TrimSpace(a.Title) == "":
		return wrong("title", "the artifact has no title")
	case len([]rune(a.Title)) > maxArtifactTitle:
		return wrong("title", "the title has more than %d characters", maxArtifactTitle)
	case len(content) > maxArtifact:
		return wrong("content", "the artifact has %s; at most %s are kept", text.Size(int64(len(content))), text.Size(maxArtifact))
	}

	for _, f := range []struct{ field, value string }{{"type", a.Type}, {"status", a.Status}, {"role", a.Role}} {
		if err := checkWord(f.field, f.value); err != nil {
			return err
		}
	}
	return nil
}

// artifactName returns a file name for a title. The name contains no folder and does not begin with
// a dot.
func artifactName(title, kind string) string {
	name := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-", r) {
			return r
		}
		return '-'
	}, strings.TrimSpace(title))

	for len(name) > maxArtifactName {
		runes := []rune(name)
		name = string(runes[:len(runes)-1])
	}

	name = strings.TrimLeft(name, ".-")
	if name == "" {
		name = "artifact"
	}
	if kind == "markdown" && !strings.HasSuffix(name, ".md") {
		name += ".md"
	}
	return name
}

// insertVersion inserts the first version of a chain, or the version after a.Parent.
func insertVersion(tx *store.Tx, a *artifact.Artifact, stored string) error {
	chain := fmt.Sprintf("workspace/%d/%d/%s", a.Workspace, a.Run, a.Key)
	if a.Parent != 0 {
		var by, discarded int64
		err := tx.QueryRow(`select chain, superseded_by, discarded from artifacts where id = $1 and workspace = $2`, a.Parent, a.Workspace).Scan(&chain, &by, &discarded)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return wrong("parent", "workspace %d has no artifact %d", a.Workspace, a.Parent)
		case err != nil:
			return err
		case by != 0:
			return wrong("parent", "artifact %d has been superseded by artifact %d; take that as the parent", a.Parent, by)
		case discarded != 0:
			return wrong("parent", "artifact %d was discarded with the run that made it", a.Parent)
		}

	}

	// Discarded versions count, too, so that version numbers are not reused.
	var err error
	if a.Version, err = store.Value[int](tx, `select coalesce(max(version), 0) + 1 from artifacts where chain = $1`, chain); err != nil {
		return err
	}

	if a.ID, err = store.Value[int64](tx, `insert into artifacts (run, job, agent, chain, key, at, name, description, version, parent, size, hash, content, workspace, type, title, status, role)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) returning id`,
		a.Run, a.Job, a.Agent, chain, a.Key, store.Millis(a.At), store.Storable(a.Name), tx.Redact(store.Storable(a.Description)), a.Version, a.Parent, a.Size, a.Hash, stored,
		a.Workspace, a.Type, tx.Redact(store.Storable(a.Title)), a.Status, a.Role); err != nil {
		return err
	}
	tx.Run(`update artifacts set superseded_by = $1 where id = $2`, a.ID, a.Parent) // no effect for the first version
	return nil
}

// ArtifactChange is a change of an artifact. Nil fields do not change.
type ArtifactChange struct {
	Status      *string
	ApprovalRef *string // the skill's own reference; it is not an approval
}

// ChangeArtifact changes an artifact, at most once for each call of its author. The content of an
// artifact does not change; add a new version instead.
func (l *Workspaces) ChangeArtifact(ctx context.Context, by Author, workspace, id int64, c ArtifactChange) (artifact.Artifact, error) {
	for field, value := range map[string]*string{"status": c.Status, "approval reference": c.ApprovalRef} {
		if value == nil {
			continue
		}
		if err := checkWord(field, *value); err != nil {
			return artifact.Artifact{}, err
		}
	}

	return l.updateArtifact(ctx, by, workspace, id, c, nil)
}

// DecideArtifact records the owner's decision about an artifact: artifact.Approved or
// artifact.Rejected.
func (l *Workspaces) DecideArtifact(ctx context.Context, workspace, id int64, approval string) (artifact.Artifact, error) {
	if approval != artifact.Approved && approval != artifact.Rejected {
		return artifact.Artifact{}, wrong("approval", "an artifact is approved or rejected, not %q", approval)
	}
	return l.updateArtifact(ctx, Author{}, workspace, id, ArtifactChange{}, &approval)
}

func (l *Workspaces) updateArtifact(ctx context.Context, by Author, workspace, id int64, c ArtifactChange, approval *string) (artifact.Artifact, error) {
	kind := eventArtifact
	if approval != nil {
		kind = eventApproval
	}

	return store.InTx(ctx, l.DB, func(tx *store.Tx) (artifact.Artifact, error) {
		_, err := write(tx, l.DB, by, workspace, l.DB.Now(), false, func(*Workspace) (string, map[string]any, error) {
			tx.Run(`update artifacts set status = coalesce($1, status), approval_ref = coalesce($2, approval_ref), approval = coalesce($3, approval)
				where id = $4 and workspace = $5 and discarded = 0`, c.Status, c.ApprovalRef, approval, id, workspace)
			return kind, map[string]any{"artifact": fmt.Sprint(id), "status": c.Status, "approval": approval}, nil
		})
		if err != nil {
			return artifact.Artifact{}, err
		}

		// Read the artifact even if the call had changed it before.
		a, err := store.One(tx, artifact.Fields, `select `+artifact.Columns+` from artifacts where id = $1 and workspace = $2`, id, workspace)
		if err == nil && a.Discarded {
			err = wrong("", "artifact %d was discarded with the run that made it", id)
		}
		return store.OrNotFound(a, err, "artifact %d of workspace %d", id, workspace)
	})
}

// Artifacts returns the artifacts of a workspace, oldest first. Unless all is set, it returns only
// current versions.
func (l *Workspaces) Artifacts(ctx context.Context, workspace int64, all bool) ([]artifact.Artifact, error) {
	query := `select ` + artifact.Columns + ` from artifacts where workspace = cast($1 as bigint) and workspace <> 0`
	if !all {
		query += ` and superseded_by = 0 and discarded = 0`
	}
	return store.List(store.Reads(ctx, l.DB), artifact.Fields, query+` order by id`, workspace)
}

// ArtifactChain returns the versions of an artifact, oldest first. The current version is the last
// one that is neither superseded nor discarded.
func (l *Workspaces) ArtifactChain(ctx context.Context, workspace, id int64) ([]artifact.Artifact, error) {
	out, err := store.List(store.Reads(ctx, l.DB), artifact.Fields, `select `+artifact.Columns+` from artifacts where workspace = cast($1 as bigint) and workspace <> 0
		and chain = (select chain from artifacts where id = $2) order by version`, workspace, id)
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("the artifact %d of workspace %d: %w", id, workspace, store.ErrNotFound)
	}
	return out, err
}
