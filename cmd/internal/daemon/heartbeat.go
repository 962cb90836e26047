package daemon

import (
	"fmt"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/heartbeat"
)

// newHeartbeat pings the address of the configuration in force, once all triggers are armed.
func (d *Daemon) newHeartbeat(well *liveness) (*heartbeat.Heartbeat, error) {
	return heartbeat.New(heartbeat.Options{
		URL:    func() string { return d.Current().Config.HeartbeatURL },
		Well:   well.ask,
		Logger: d.log,
	})
}

// heartbeatState is how the pings are doing, for the status; nil where there are none.
func (d *Daemon) heartbeatState() *api.Heartbeat {
	beats := d.heartbeat.Load()
	if beats == nil || d.Current().Config.HeartbeatURL == "" {
		return nil
	}
	is := beats.State()
	return &api.Heartbeat{To: is.To, LastPing: api.At(is.LastPing), Problem: is.Problem}
}

// checkHeartbeat says whether the pings arrive.
func checkHeartbeat(is *api.Heartbeat, zone *time.Location) api.Check {
	c := api.Check{Name: "heartbeat", OK: is.Problem == "", Detail: "the first ping is on its way"}
	switch {
	case !is.LastPing.IsZero():
		c.Detail = fmt.Sprintf("%s was pinged last at %s", is.To, api.LocalTime(is.LastPing.Time, zone))
	case is.Problem != "":
		c.Detail = is.To + " was not pinged yet"
	}
	if is.Problem != "" {
		c.Detail += "; " + is.Problem
		c.Remedy = "see the message; it is tried again each minute, and whoever watches the address is about to tell you"
	}
	return c
}
