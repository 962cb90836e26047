package model

import (
	"context"
	"time"
)

// Listing is what a server says of its models when it is asked for them. No model is run for it, and it
// costs nothing.
type Listing struct {
	Server string    // its address, without credentials
	Date   time.Time // its clock; zero when it did not say

	Known  bool     // the server says which models it has, and so took the key, if it needs one
	Has    bool     // the model is among them
	Models []string // the others, for a model that is not
	Window int      // the most tokens that the model can read; 0 when it does not say
	NoTool bool     // the model cannot call tools, as its server says
}

// Lister is a Provider that can ask its server for its models. An error is an *Error; the Server of the Listing
// is set all the same.
type Lister interface {
	Provider
	List(ctx context.Context) (Listing, error)
}
