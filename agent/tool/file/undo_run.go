package file

import (
	"context"
	"fmt"
	"path/filepath"

	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/nofollow"
)

// Undone is a change of a file by a run, and why it cannot be undone, or "".
type Undone struct {
	ledger.FileOp
	Why string
}

// UndoRun reverts all changes of files by a run, the newest first. Without force it reverts all or
// none: a file that was changed since prevents it. With dry it only reports the obstacles. Changes
// that were undone before are left out.
func UndoRun(ctx context.Context, log Log, locks *tool.Locks, b nofollow.Boundary, run int64, force, dry bool) (out []Undone, done bool, err error) {
	ops, err := log.FileOps(ctx, ledger.FileOpFilter{Run: run, Limit: -1})
	if err != nil {
		return nil, false, err
	}

	// Planned first: the disk shows the newest state. later has the hash that each path will have once
	// the newer changes are undone.
	free, later := true, map[string]string{}
	for _, op := range ops {
		if !op.UndoneAt.IsZero() {
			continue
		}

		u := Undone{op, ""}
		switch hash, known := later[op.Path]; {
		case op.NoUndoReason != "":
			u.Why = op.NoUndoReason
		case known && hash != op.AfterHash && hash != op.BeforeHash:
			u.Why = "the file was changed between two changes of the run"
		case !known:
			u.Why = obstacleNow(b, op, func(path string) bool { hash, ok := later[path]; return ok && hash == "" })
		}

		if u.Why != "" {
			free = false
		}

		later[op.Path] = op.BeforeHash
		for folder := filepath.Dir(op.Path); op.CreatedFolder != "" && len(folder) >= len(op.CreatedFolder); folder = filepath.Dir(folder) {
			later[folder] = "" // its undo removes the folders that were made for it
		}

		out = append(out, u)
	}
	if dry || !free && !force {
		return out, false, nil
	}

	done = true
	for i, u := range out {
		if u.NoUndoReason != "" { // its old content was not stored
			done = false
			continue
		}

		if err := Undo(ctx, log, locks, b, u.FileOp, force); err != nil {
			return out, false, fmt.Errorf("%d of the %d changes of files by run %d were undone, then: %w", i, len(out), run, err)
		}
		out[i].Why = ""
	}

	return out, done, nil
}

// obstacleNow returns why the newest change of a file cannot be undone. A change that was not made
// prevents nothing.
func obstacleNow(b nofollow.Boundary, op ledger.FileOp, gone func(path string) bool) string {
	roots, err := tool.NewRootsWithin(b, op.Root, nil)
	if err != nil {
		return fmt.Sprintf("the folder %s is gone", op.Root)
	}

	p, now, err := openChanged(roots, op)
	if err != nil {
		return err.Error()
	}
	defer p.Close()

	if now.hasHash(op.BeforeHash) {
		return ""
	}

	return undoObstacle(p, op, now, gone)
}
