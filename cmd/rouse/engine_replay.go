package main

import (
	"bytes"
	"context"
	"errors"

	"rouse/agent/model/replay"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/web"
)

// Recording implements web.Engine. History can be read whatever the configuration is.
func (d *daemon) Recording(ctx context.Context, run int64) ([]byte, error) {
	rec, err := d.runner.Recording(ctx, run)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, err
	}
	if err != nil {
		return nil, &web.Error{Status: 409, Message: err.Error()}
	}
	var out bytes.Buffer
	err = replay.Write(&out, rec)
	return out.Bytes(), err
}
