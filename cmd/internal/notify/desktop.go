package notify

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/gen2brain/beeep"

	"rouse/agentdb/ledger"
)

// Desktop shows notices on the desktop of the user who runs the daemon.
func Desktop() Channel { return desktop{getenv: os.Getenv} }

type desktop struct{ getenv func(string) string }

// Send implements Channel.
func (d desktop) Send(ctx context.Context, n ledger.Notice) error {
	if err := d.Check(ctx); err != nil {
		return err
	}
	body := n.Body
	if who := signature(n); who != "" {
		body = strings.TrimSpace(body + "\n" + who)
	}
	return beeep.Notify(n.Title, body, "")
}

// signature names the job and the outcome below the text.
func signature(n ledger.Notice) string {
	switch {
	case n.Job == "":
		return ""
	case n.Outcome == "":
		return n.Job
	}
	return n.Job + ": " + strings.ReplaceAll(string(n.Outcome), "_", " ")
}

// Check implements Channel.
func (d desktop) Check(context.Context) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	if d.getenv("DBUS_SESSION_BUS_ADDRESS") == "" {
		runtimeDir := d.getenv("XDG_RUNTIME_DIR")
		if _, err := os.Stat(runtimeDir + "/bus"); runtimeDir == "" || err != nil {
			return fmt.Errorf("the desktop %w: this process belongs to no desktop session (DBUS_SESSION_BUS_ADDRESS is not set)", ErrAway)
		}
	}
	return nil
}
