package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// auditKept are the checks of what is kept: artifacts, large values, and the file itself.
func auditKept() []AuditCheck {
	return []AuditCheck{
		{Name: "value-owner", Promise: "a large value that the record refers to is kept for the run that does", find: auditReferences},
		{Name: "value-file", Promise: "each large value has its file or object, whose content has the hash of its name", find: auditBlobs},
		{Name: "artifact", Promise: "the bytes of an artifact are there, with its size and its hash", find: auditArtifacts},
		{Name: intact, Promise: "SQLite finds nothing wrong with the file", find: auditFile},
	}
}

// references are the columns that may refer to a large value, and for whom it is kept: the negative id of a workspace,
// or a run.
var references = []struct{ table, column, owner string }{
	{"calls", "args", "run"},
	{"calls", "envelope", "run"},
	{"steps", "message", "run"},
	{"file_ops", "before", "run"},
	{"deliveries", "body", "run"},
	{"artifacts", "content", "case when workspace <> 0 then -workspace else run end"},
}

func auditReferences(ctx context.Context, a *auditor) error {
	for _, r := range references {
		query := fmt.Sprintf(`select t.run, t.%[2]s from %[1]s t where substr(t.%[2]s, 1, %[4]d) = '%[5]s'
			and not exists (select 1 from blobs b where b.hash = substr(t.%[2]s, %[4]d + 1) and b.run = %[3]s)`,
			r.table, r.column, strings.NewReplacer("workspace", "t.workspace", "run", "t.run").Replace(r.owner), len(blobMark), blobMark)
		if err := a.each(ctx, "run %d refers in "+r.table+" to the large value %s, which is not kept for it: retention may remove it", query); err != nil {
			return err
		}
	}
	return nil
}

func auditBlobs(ctx context.Context, a *auditor) error {
	if a.blobs == nil {
		return nil
	}
	return a.rows(ctx, func(row []any) error {
		hash, _ := row[0].(string)
		fault := a.blobs.fault(ctx, hash)
		if fault == "" {
			return nil
		}

		// It may have been removed with its runs since the audit began.
		if kept, err := value[int](a.reads(ctx), `select count(*) from blobs where hash = $1`, hash); err != nil || kept == 0 {
			return err
		}
		return a.report("the large value %s of %d runs or workspaces, the first of them %d, %s: restore the home from a backup", hash, row[1], row[2], fault)
	}, `select hash, count(*), min(run) from blobs where run <> 0 group by hash order by hash`)
}

// auditArtifacts reads what is in the ledger itself; files were read as large values.
func auditArtifacts(ctx context.Context, a *auditor) error {
	return a.rows(ctx, func(row []any) error {
		text, _ := row[4].(string)
		content, err := base64.StdEncoding.DecodeString(text)
		sum := sha256.Sum256(content)
		switch {
		case err != nil:
			return a.report("the bytes of the artifact %d (%s) of run %d are damaged: %v", row[0], row[1], row[5], err)
		case int64(len(content)) != row[2] || hex.EncodeToString(sum[:]) != row[3]:
			return a.report("the artifact %d (%s) of run %d holds %d bytes, which are not the %d that were shared", row[0], row[1], row[5], len(content), row[2])
		}
		return nil
	}, fmt.Sprintf(`select id, name, size, hash, content, run from artifacts where substr(content, 1, %d) <> '%s' order by id`, len(blobMark), blobMark))
}

// auditFile has SQLite read the whole file; PostgreSQL checks its own.
func auditFile(ctx context.Context, a *auditor) error {
	if a.path == "" {
		return nil
	}
	var verdict string
	if err := a.tx.QueryRowContext(ctx, `pragma quick_check(1)`).Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return a.report("the ledger %s is damaged: %s", a.path, verdict)
	}
	return nil
}
