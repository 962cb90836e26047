package daemon

import (
	"context"
	"path/filepath"
	"strings"

	"rouse/agent/model/playbook"
	"rouse/agent/plan/vars"
	"rouse/internal/ledger"
)

// expandDestination expands one part of the destination template for the file of a run.
func (d *Daemon) expandDestination(ctx context.Context, template string, c ledger.ClaimStatus) (string, error) {
	if !strings.Contains(template, "{{") {
		return template, nil
	}
	run, err := d.ledger.Run(ctx, c.Run)
	if err != nil {
		return "", err
	}
	path := filepath.FromSlash(c.Path)
	data, err := vars.DestinationData(d.Current().Plan.Runner.Jobs[c.Job], run, ledger.File{Path: path, Name: filepath.Base(path), Size: c.Size, Hash: c.Hash, ModTime: c.ModTime})
	if err != nil {
		return "", err
	}
	return playbook.Expand("move", template, data)
}
