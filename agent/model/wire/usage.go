package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"sync/atomic"

	"rouse/agent/model"
)

// TokenCount is a number of tokens reported by a server. Missing and invalid values count as 0. The
// number may be a JSON string.
type TokenCount int64

// UnmarshalJSON implements json.Unmarshaler.
func (c *TokenCount) UnmarshalJSON(raw []byte) error {
	// A float also accepts 7.0 and 1e3. Values that are not numbers count as 0.
	var n float64
	if whole, err := strconv.ParseUint(string(raw), 10, 64); err == nil { // the usual case
		n = float64(whole)
	} else if json.Unmarshal(bytes.Trim(raw, `"`), &n) != nil || math.IsNaN(n) {
		n = 0
	}
	// The limit prevents overflow of sums and prices.
	*c = TokenCount(min(max(n, 0), 1<<40))
	return nil
}

// NewUsage returns the usage of an answer. Cached and written tokens are part of the input.
func NewUsage(input, output, cached, written TokenCount) *model.Usage {
	u := model.Usage{Input: int64(input), Output: int64(output), Cached: int64(cached), Written: int64(written)}.Clamped()
	return &u
}

// lostRequests counts the requests of a turn that reached the server but got no response. It also
// records the retries.
type lostRequests struct {
	n       atomic.Int32
	retried model.Retried
	failure error // error of the last attempt, while waiting for the next one
}

func (l *lostRequests) ended(cause error) error {
	if l.failure == nil {
		return cause
	}
	return &endedError{l.failure, cause}
}

// endedError has the text of the failure that the turn waited to retry. It also wraps the cause of
// the end.
type endedError struct{ failure, cause error }

func (e *endedError) Error() string   { return e.failure.Error() }
func (e *endedError) Unwrap() []error { return []error{e.failure, e.cause} }

// lostKey is the context key of a turn's lostRequests.
type lostKey struct{}

// lostOf returns the lostRequests of the context's turn, or new ones outside of a turn.
func lostOf(ctx context.Context) *lostRequests {
	if lost, ok := ctx.Value(lostKey{}).(*lostRequests); ok {
		return lost
	}
	return &lostRequests{}
}

// count counts a request that was sent completely and got no response or a gateway timeout.
func (l *lostRequests) count(sent bool, resp *http.Response) {
	if resp != nil {
		sent = maybeBilled(resp.StatusCode)
	}
	if sent {
		l.n.Add(1)
	}
}

// maybeBilled reports whether the model may have run despite an error status.
func maybeBilled(status int) bool {
	return status == http.StatusGatewayTimeout || status == http.StatusRequestTimeout
}

// unreported returns the possible costs of a turn in addition to its usage. whole reports whether
// its answer is complete.
func (c *Client) unreported(a *Accumulator, lost *lostRequests, whole bool, failure error) model.Unreported {
	u := model.Unreported{Requests: int(lost.n.Load())}
	counted := whole && a.reported() != (model.Usage{})
	if !a.answering || counted {
		return u
	}

	arrived := a.textBytes
	for _, call := range a.Calls {
		arrived += len(call.Name) + call.Args.Len()
	}
	for _, p := range a.Parts {
		arrived += len(p.Opaque)
	}

	var e *model.Error
	if arrived == 0 && errors.As(failure, &e) && e.Free() {
		return u // an error instead of an answer
	}

	u.Requests, u.Bytes, u.Begun = u.Requests+1, arrived, a.reported()
	return u
}
