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

// heartbeatState is how the pings are doing, for the status; nil where there are none, and none are wanted.
func (d *Daemon) heartbeatState() *api.Heartbeat {
	beats, cfg := d.heartbeat.Load(), d.Current().Config
	if beats == nil {
		return nil
	}
	if cfg.HeartbeatURL == "" {
		if lacks := secretObstacles(cfg, "heartbeat_url"); len(lacks) > 0 {
			return &api.Heartbeat{Problem: "no ping is sent: " + lacks[0].Text}
		}
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
	case is.To == "" && is.Problem != "":
		c.Detail = "nobody is pinged"
	case is.Problem != "":
		c.Detail = is.To + " was not pinged yet"
	}
	if is.Problem != "" {
		c.Detail += "; " + is.Problem
		c.Remedy = "see the message; it is tried again each minute, and whoever watches the address is about to tell you"
	}
	return c
}
