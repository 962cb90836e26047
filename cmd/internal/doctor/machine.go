package doctor

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	agentplan "rouse/agent/plan"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/service"
	"rouse/internal/diskspace"
	"rouse/internal/ledger/runs"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

// Minimum free space of a file system. Databases, logs and backups can use this much within days.
const (
	leastSpace  = 256 << 20 // in bytes
	leastInodes = 1000
)

// checkDisk reports the free space of the home and the agents' workdirs.
func checkDisk(s *plan.Setup, home string) api.Check {
	folders := []string{home}
	for _, a := range s.Config.Agents {
		folders = append(folders, string(a.Workdir))
	}

	var fine, bad, unknown []string
	seen := map[string]bool{}
	for _, folder := range folders {
		if _, err := os.Stat(folder); err != nil {
			continue // the first run of an agent creates its workdir
		}
		left, err := diskspace.Free(folder)
		switch {
		case err != nil:
			unknown = append(unknown, fmt.Sprintf("%s (%v)", folder, err))
		case seen[left.ID]:
		case left.Bytes < leastSpace || left.CountsInodes && left.Inodes < leastInodes:
			bad = append(bad, folder+": "+leftOf(left))
		default:
			fine = append(fine, folder+": "+leftOf(left))
		}
		seen[left.ID] = true
	}

	c := Passed("disk", strings.Join(append(bad, fine...), "; "))
	c.NotTried = strings.Join(unknown, "; ")
	if len(bad) > 0 {
		c.OK, c.Remedy = false, fmt.Sprintf("free some space; rouse needs %s and %d files at least, and rouse ledger and rouse db AGENT say what it takes up", text.Size(leastSpace), leastInodes)
	}
	return c
}

// checkWhereAgentsWork reports isolated agents and agents without file tools. It returns nil if
// there are no such agents.
func checkWhereAgentsWork(s *plan.Setup) []api.Check {
	var said []string
	for _, a := range s.Config.Agents {
		switch {
		case a.Mode == agentplan.ModeIsolated && a.HostFolder != "":
			said = append(said, fmt.Sprintf("%s is isolated: it reads %s and writes in %s alone", a.Name, a.HostFolder, a.Workdir))
		case a.Mode == agentplan.ModeIsolated:
			said = append(said, fmt.Sprintf("%s is isolated: it writes in %s alone", a.Name, a.Workdir))
		case a.Mode == agentplan.ModeNone:
			said = append(said, fmt.Sprintf("%s has no file tools and starts no programs", a.Name))
		}
	}
	if len(said) == 0 {
		return nil
	}
	return []api.Check{Passed("agents", strings.Join(said, "; "))}
}

func leftOf(l diskspace.Space) string {
	if !l.CountsInodes {
		return text.Size(l.Bytes) + " left"
	}
	return fmt.Sprintf("%s and %d files left", text.Size(l.Bytes), l.Inodes)
}

// maxSkew is the maximum difference between two clocks. Most services accept signatures and tokens
// with this difference.
const maxSkew = 2 * time.Minute

// checkClock compares the clock with the clocks of the model servers and with the ledger. It also
// reports the time zone of schedules.
func (d *Checker) checkClock(ctx context.Context, now time.Time, s *plan.Setup, asked []askedServer) api.Check {
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
	latest, err := d.Ledger.Runs.List(ctx, runs.Filter{Limit: 1})
	if err != nil {
		return undone("clock", err)
	}

	local := now.In(zone)
	c := Passed("clock", fmt.Sprintf("%s (%s, %s; %s)", local.Format(time.DateTime), schedule.ZoneName(zone), local.Format("MST, UTC-07:00"), source))
	fail := func(what string) {
		c.OK, c.Detail, c.Remedy = false, c.Detail+"; "+what, "set the clock of this machine, best by a time service (NTP); schedules follow it"
	}
	if len(latest) > 0 && latest[0].QueuedAt.After(now.Add(maxSkew)) {
		fail(fmt.Sprintf("run %d was queued at %s, which is still to come: the clock was ahead then, or is behind now", latest[0].ID, latest[0].QueuedAt.In(zone).Format(time.DateTime)))
	}

	c.NotTried = "whether it is right: no server told its own"
	for _, a := range asked {
		if a.listing.Date.IsZero() {
			continue
		}
		c.NotTried = ""
		if skew := a.at.Sub(a.listing.Date).Round(time.Second); skew.Abs() > maxSkew {
			word := "ahead of"
			if skew < 0 {
				word = "behind"
			}
			fail(fmt.Sprintf("it is %s %s that of %s", skew.Abs(), word, a.listing.Server))
			break
		}
	}
	return c
}

// checkService reports whether a service restarts the daemon after a failure and at login.
func (d *Checker) checkService() api.Check {
	installed, err := service.Recorded(d.Home)
	if err != nil {
		return undone("service", err)
	}

	c := Passed("service", installed.Name+" is installed; how it is: rouse service status")
	switch {
	case installed.Name == "":
		c.Detail = "not installed: a daemon runs when you start one, and not again after a failure; see rouse service install"
		return c
	case d.Supervised:
		c.Detail = fmt.Sprintf("%s is installed, and this is its daemon since %s", installed.Name, api.LocalTime(d.Explainer.StartedAt, d.zone()))
	case d.Serves && runtime.GOOS == "linux":
		c = Failed(c.Name, fmt.Sprintf("%s is installed, and this daemon was started by somebody else: the service cannot start while it runs", installed.Name), "end this daemon, and use: rouse service start")
	}
	if _, err := os.Stat(installed.Program); err != nil {
		return Failed(c.Name, fmt.Sprintf("%s; its program %s is gone", c.Detail, installed.Program), "install it again with the program that is there now: rouse service install --force")
	}
	return c
}
