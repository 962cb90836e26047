// Package nosleep prevents the machine from sleeping.
//
// It uses an inhibitor lock of logind on Linux, a caffeinate process on macOS, and the execution
// state of a thread on Windows. Each ends with this process. A request can fail: logind refuses it
// to a service of a user without a session, unless polkit allows it.
package nosleep

import (
	"context"
	"time"
)

// patience is the timeout for an answer of the operating system.
const patience = 2 * time.Second

// Inhibit keeps the machine awake until release is called. The operating system shows why in its
// list of inhibitors. If Inhibit returns an error, the machine may sleep.
func Inhibit(ctx context.Context, why string) (release func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return hold(ctx, why)
}

// Check returns an error if the machine cannot be kept awake.
func Check(ctx context.Context) error {
	release, err := Inhibit(ctx, "rouse sees whether it can keep this machine awake")
	if err != nil {
		return err
	}
	return release()
}
