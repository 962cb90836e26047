package daemon

import (
	"fmt"
	"os"
	"runtime"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/service"
)

// checkService says whether the daemon comes back by itself: after a failure, and when its user logs in.
func (d *Daemon) checkService() api.Check {
	c := api.Check{Name: "service", OK: true}
	installed, err := service.Recorded(d.home.Dir)
	switch {
	case err != nil:
		c.OK, c.Detail, c.Remedy = false, err.Error(), "see the message"
	case installed.Name == "":
		c.Detail = "not installed: a daemon runs when you start one, and not again after a failure; see rouse service install"
	case d.Supervised():
		c.Detail = fmt.Sprintf("%s is installed, and this is its daemon since %s", installed.Name, api.LocalTime(d.startedAt, d.Current().Config.Zone()))
	case d.reloads != nil && runtime.GOOS == "linux":
		c.OK, c.Detail = false, fmt.Sprintf("%s is installed, and this daemon was started by somebody else: the service cannot start while it runs", installed.Name)
		c.Remedy = "end this daemon, and use: rouse service start"
	default:
		c.Detail = installed.Name + " is installed; how it is: rouse service status"
	}

	if _, err := os.Stat(installed.Program); installed.Name != "" && err != nil {
		c.OK, c.Detail = false, c.Detail+fmt.Sprintf("; its program %s is gone", installed.Program)
		c.Remedy = "install it again with the program that is there now: rouse service install --force"
	}
	return c
}
