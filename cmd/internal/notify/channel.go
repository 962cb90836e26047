package notify

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"rouse/agentdb/ledger"
	"rouse/internal/text"
)

// Channel is a way to reach the owner.
type Channel interface {
	Send(ctx context.Context, n ledger.Notice) error
	// Check says why nothing can be sent now, nil if it can.
	Check(ctx context.Context) error
}

// kinds has a constructor for each kind of channel that a configuration can name (`notifications: kind:`).
// A new kind is a row here, a file beside this one, and a value of the key's enum in config.
var kinds = map[string]func() Channel{
	"desktop": Desktop,
}

// Open makes a channel of a kind.
func Open(kind string) (Channel, error) {
	open, ok := kinds[kind]
	if !ok {
		return nil, fmt.Errorf("there is no notification channel of kind %q; there is %s", kind, text.List(slices.Sorted(maps.Keys(kinds)), len(kinds)))
	}

	return open(), nil
}
