package file

import (
	"context"
	"fmt"
	"path/filepath"

	"rouse/agent/tool"
	"rouse/agentdb/ledger"
)

// Undone is a change of a file by a run, and why it cannot be taken back, "" when it can or was.
type Undone struct {
	ledger.FileOp
	Why string
}

// UndoRun takes back all changes of files by a run, the newest first. Unless force is set it does
// so for all of them or for none: a file that was changed since stands in the way. With dry it
// only says what would become of each. What was undone before is left out.
func UndoRun(ctx context.Context, log Log, run int64, force, dry bool) (out []Undone, done bool, err error) {
	ops, err := log.FileOps(ctx, ledger.FileOpFilter{Run: run, Limit: -1})
	if err != nil {
		return nil, false, err
	}

	free, as := true, map[string]string{} // what each file will hold by then, as a hash
	for _, op := range ops {
		if !op.UndoneAt.IsZero() {
			continue
		}

		u := Undone{op, ""}
		switch hash, later := as[op.Path]; {
		case op.Lost != "":
			u.Why = op.Lost
		case later && hash != op.AfterHash && hash != op.BeforeHash:
			u.Why = "the file was changed between two changes of the run"
		case !later:
			u.Why = obstacleNow(op, func(path string) bool { hash, ok := as[path]; return ok && hash == "" })
		}

		if u.Why != "" {
			free = false
		}

		as[op.Path] = op.BeforeHash
		for folder := filepath.Dir(op.Path); op.Made != "" && len(folder) >= len(op.Made); folder = filepath.Dir(folder) {
			as[folder] = ""
		}

		out = append(out, u)
	}
	if dry || !free && !force {
		return out, false, nil
	}

	done = true
	for i, u := range out {
		if u.Lost != "" { // nothing could bring that back
			done = false
			continue
		}

		if err := Undo(ctx, log, u.FileOp, force); err != nil {
			return out, false, fmt.Errorf("%d of the %d changes of files by run %d were taken back, then: %w", i, len(out), run, err)
		}
		out[i].Why = ""
	}

	return out, done, nil
}

// obstacleNow says why a change cannot be taken back. One that did not come about is not in the way.
func obstacleNow(op ledger.FileOp, gone func(path string) bool) string {
	roots, err := tool.NewRoots(op.Root, nil)
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
