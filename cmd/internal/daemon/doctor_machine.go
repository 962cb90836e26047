package daemon

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"rouse/agent"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/internal/space"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

// What a file system must have left, or doctor says so: databases, their logs and backups grow by more than that
// within days.
const (
	leastSpace  = 256 << 20 // bytes
	leastInodes = 1000
)

// checkDisk says how much is left where rouse and the agents write.
func (s *Setup) checkDisk(home string) api.Check {
	c := api.Check{Name: "disk", OK: true}
	folders := []string{home}
	for _, a := range s.Config.Agents {
		folders = append(folders, string(a.Workdir))
	}

	var fine, bad, unknown []string
	seen := map[string]bool{}
	for _, folder := range folders {
		if _, err := os.Stat(folder); err != nil {
			continue // a workdir is made when its agent first runs
		}

		left, err := space.Of(folder)
		if err != nil {
			unknown = append(unknown, fmt.Sprintf("%s (%v)", folder, err))
			continue
		}
		if seen[left.ID] {
			continue
		}

		seen[left.ID] = true
		switch said := leftOf(left); {
		case left.Bytes < leastSpace || left.CountsInodes && left.Inodes < leastInodes:
			bad = append(bad, folder+": "+said)
		default:
			fine = append(fine, folder+": "+said)
		}
	}

	c.Detail = strings.Join(append(bad, fine...), "; ")
	c.NotTried = strings.Join(unknown, "; ")
	if len(bad) > 0 {
		c.OK, c.Remedy = false, fmt.Sprintf("free some space; rouse needs %s and %d files at least, and rouse ledger and rouse db AGENT say what it takes up", text.Size(leastSpace), leastInodes)
	}
	return c
}

// checkWhereAgentsWork says which agents do not work in their workdir, false when all do.
func (s *Setup) checkWhereAgentsWork() (c api.Check, some bool) {
	var said []string
	for _, a := range s.Config.Agents {
		switch {
		case a.Mode == agent.ModeIsolated && a.HostFolder != "":
			said = append(said, fmt.Sprintf("%s is isolated: it reads %s and writes in %s alone", a.Name, a.HostFolder, a.Workdir))
		case a.Mode == agent.ModeIsolated:
			said = append(said, fmt.Sprintf("%s is isolated: it writes in %s alone", a.Name, a.Workdir))
		case a.Mode == agent.ModeNone:
			said = append(said, fmt.Sprintf("%s has no file tools and starts no programs", a.Name))
		}
	}
	return api.Check{Name: "agents", OK: true, Detail: strings.Join(said, "; ")}, len(said) > 0
}

func leftOf(l space.Left) string {
	if !l.CountsInodes {
		return text.Size(l.Bytes) + " left"
	}
	return fmt.Sprintf("%s and %d files left", text.Size(l.Bytes), l.Inodes)
}

// maxSkew is how far two clocks may be apart: signatures and tokens of most services allow for that.
const maxSkew = 2 * time.Minute

// checkClock compares the clock with those of the servers that were asked, and with what is on record, and says
// in which zone schedules are read.
func (d *Daemon) checkClock(ctx context.Context, now time.Time, s *Setup, asked []askedServer) (api.Check, error) {
	zone := s.Config.Zone()
	source := "the time zone of this machine, followed when it changes"
	if s.Config.Timezone != "" {
		source = "fixed by timezone: in the configuration"
	} else if _, changes := schedule.MachineZone(); !changes {
		source = "the time zone of this machine when the daemon started"
		if os.Getenv("TZ") != "" {
			source = "fixed by TZ in the environment"
		}
	}

	local := now.In(zone)
	c := api.Check{Name: "clock", OK: true, Detail: fmt.Sprintf("%s (%s, %s; %s)", local.Format(time.DateTime), schedule.ZoneName(zone), local.Format("MST, UTC-07:00"), source)}
	fail := func(what string) {
		c.OK, c.Detail, c.Remedy = false, c.Detail+"; "+what, "set the clock of this machine, best by a time service (NTP); schedules follow it"
	}

	latest, err := d.ledger.Runs(ctx, ledger.RunFilter{Limit: 1})
	if err != nil {
		return c, err
	}
	if len(latest) > 0 && latest[0].QueuedAt.After(now.Add(maxSkew)) {
		fail(fmt.Sprintf("run %d was queued at %s, which is still to come: the clock was ahead then, or is behind now", latest[0].ID, latest[0].QueuedAt.In(zone).Format(time.DateTime)))
	}

	compared := false
	for _, a := range asked {
		if a.listing.Date.IsZero() {
			continue
		}
		compared = true
		if skew := a.at.Sub(a.listing.Date).Round(time.Second); skew.Abs() > maxSkew {
			word := "ahead of"
			if skew < 0 {
				word = "behind"
			}
			fail(fmt.Sprintf("it is %s %s that of %s", skew.Abs(), word, a.listing.Server))
			break
		}
	}
	if !compared {
		c.NotTried = "whether it is right: no server told its own"
	}

	return c, nil
}
