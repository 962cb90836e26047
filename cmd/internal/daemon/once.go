package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

// errOtherRequest says that something else was asked for before under the same key.
var errOtherRequest = errors.New("the key stands for another request")

// newOnce names a request by the key that its sender chose.
func newOnce(key string, request []byte) *ledger.Once {
	sum := sha256.Sum256(request)
	return &ledger.Once{Key: key, Request: hex.EncodeToString(sum[:])}
}

// nameOnce gives a request of the API the key of its sender. Each job has its own keys, and so has each agent that is asked without one:
// who asks for one of them cannot keep the run of another from coming.
func nameOnce(req *ledger.Request, f api.RunRequest) error {
	if f.Key == "" {
		return nil
	}

	asked, err := json.Marshal(f) // the maps in order
	if err != nil {
		return err
	}
	scope := "agent/" + f.Agent
	if f.Job != "" {
		scope = "job/" + f.Job
	}
	req.Key, req.Detail.Once = "asked/"+scope+"/"+f.Key, newOnce(f.Key, asked)
	return nil
}

// askedBefore is the run of a request that was made before under its key. errOtherRequest: that was another one.
func (d *Daemon) askedBefore(ctx context.Context, req ledger.Request) (id int64, known bool, err error) {
	run, known, err := d.ledger.RunByKey(ctx, req.Key)
	if !known || err != nil || req.Detail.Once == nil {
		return run.ID, known, err
	}

	var before ledger.Detail
	if err := json.Unmarshal(run.Detail, &before); err != nil {
		return 0, false, fmt.Errorf("what asked for run %d is damaged: %w", run.ID, err)
	}
	if before.Once != nil && before.Once.Request != req.Detail.Once.Request {
		return 0, false, errOtherRequest
	}
	return run.ID, true, nil
}

// enqueueOnce queues a run. One that was asked for under the same key, at the same time also, is the run.
func (d *Daemon) enqueueOnce(ctx context.Context, req ledger.Request) (id int64, isNew bool, err error) {
	accepted, err := d.ledger.Enqueue(ctx, req)
	if err != nil {
		return 0, false, err
	}
	if !accepted[0].New {
		if _, _, err := d.askedBefore(ctx, req); err != nil {
			return 0, false, err
		}
	}
	return accepted[0].Run, accepted[0].New, nil
}

// otherRequest is what a client of the API is told of a key that stands for another request.
func otherRequest(err error, key string) error {
	if errors.Is(err, errOtherRequest) {
		return &api.Error{Status: http.StatusUnprocessableEntity, Message: fmt.Sprintf("something else was asked for before with the Idempotency-Key %q; a new request has a new one", key), Usage: true}
	}
	return err
}
