// Package awake keeps the machine from going to sleep while something is on (OSL-37).
//
// # Design
//
// Each system has a way by which programs ask it not to sleep, and each ends by itself with the process that asked: a file of
// logind on Linux, a child of caffeinate on macOS, the state of a thread on Windows. Whether it is granted is known when it is asked
// for, and not before: logind refuses it to a service of a user who has no session, unless polkit allows it.
package awake

import (
	"context"
	"time"
)

// patience is how long a system has to answer.
const patience = 2 * time.Second

// Hold keeps the machine awake until release is called. why stands where the system lists who keeps it awake. The error says why the
// machine may sleep all the same.
func Hold(ctx context.Context, why string) (release func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return hold(ctx, why)
}

// Check says why the machine cannot be kept awake, nil where it can.
func Check(ctx context.Context) error {
	release, err := Hold(ctx, "rouse sees whether it can keep this machine awake")
	if err != nil {
		return err
	}
	return release()
}
