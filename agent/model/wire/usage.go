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

// TokenCount is a number of tokens as a server reports it: missing, a string or nonsense count as
// 0.
type TokenCount int64

// UnmarshalJSON implements json.Unmarshaler.
func (c *TokenCount) UnmarshalJSON(raw []byte) error {
	// A float takes 7.0 and 1e3 too; what is no number counts as 0, and is no error.
	var n float64
	if whole, err := strconv.ParseUint(string(raw), 10, 64); err == nil { // as nearly all are
		n = float64(whole)
	} else if json.Unmarshal(bytes.Trim(raw, `"`), &n) != nil || math.IsNaN(n) {
		n = 0
	}
	// Bounded so that a sum of counts, and its price, cannot overflow.
	*c = TokenCount(min(max(n, 0), 1<<40))
	return nil
}

// NewUsage returns the usage of an answer. Cached and written tokens are part of the input.
func NewUsage(input, output, cached, written TokenCount) *model.Usage {
	u := model.Usage{Input: int64(input), Output: int64(output), Cached: int64(cached), Written: int64(written)}.Clamped()
	return &u
}

// lostRequests counts the requests of a turn that reached the server and got no answer, and notes
// the retries.
type lostRequests struct {
	n       atomic.Int32
	retried model.Retried
	failure error // of the last try, while the next one is waited for
}

func (l *lostRequests) ended(cause error) error {
	if l.failure == nil {
		return cause
	}
	return &endedError{l.failure, cause}
}

// endedError reads as the failure that a turn waited to retry, and wraps the cause of its end.
type endedError struct{ failure, cause error }

func (e *endedError) Error() string   { return e.failure.Error() }
func (e *endedError) Unwrap() []error { return []error{e.failure, e.cause} }

// lostKey is where the context of a turn has its lostRequests.
type lostKey struct{}

// lostOf returns the lost requests of the turn of a context, or new ones outside of a turn.
func lostOf(ctx context.Context) *lostRequests {
	if lost, ok := ctx.Value(lostKey{}).(*lostRequests); ok {
		return lost
	}
	return &lostRequests{}
}

// count counts a request that was sent in full and got no response, or a gateway's timeout.
func (l *lostRequests) count(sent bool, resp *http.Response) {
	if resp != nil {
		sent = maybeBilled(resp.StatusCode)
	}
	if sent {
		l.n.Add(1)
	}
}

// maybeBilled reports whether the model may have been at work despite an error status.
func maybeBilled(status int) bool {
	return status == http.StatusGatewayTimeout || status == http.StatusRequestTimeout
}

// unreported returns what a turn may have cost beyond its usage. whole: its answer is complete.
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
		return u // an error in place of an answer
	}

	u.Requests, u.Bytes, u.Begun = u.Requests+1, arrived, a.reported()
	return u
}
