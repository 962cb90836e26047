package daemon

import (
	"context"
	"path/filepath"
	"strings"

	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/plan/vars"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
)

// expandDestination expands one part of the destination template for the file of a run.
func expandDestination(ctx context.Context, l *ledger.Ledger, jobs map[string]plan.Job, template string, c claim.Status) (string, error) {
	if !strings.Contains(template, "{{") {
		return template, nil
	}
	run, err := l.Runs.Get(ctx, c.Run)
	if err != nil {
		return "", err
	}
	path := filepath.FromSlash(c.Path)
	data, err := vars.DestinationData(jobs[c.Job], run, ledger.File{Path: path, Name: filepath.Base(path), Size: c.Size, Hash: c.Hash, ModTime: c.ModTime})
	if err != nil {
		return "", err
	}
	return playbook.Expand("move", template, data)
}
