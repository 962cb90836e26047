package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/doctor"
	"rouse/internal/text"
)

// lateAfter is the delay of the copies that causes a warning.
const lateAfter = time.Minute

// Checks checks the services that only a daemon has.
func (r *Reporter) Checks() (out []api.Check) {
	if r.Serves {
		out = append(out, r.checkDashboard())
		if beats := r.heartbeatState(); beats != nil {
			out = append(out, checkHeartbeat(beats, r.Setup().Config.Zone()))
		}
		if is := r.replicaState(); is != nil {
			out = append(out, checkReplica(is, r.Setup().Config.Zone()))
		}
	}
	if r.Traces != nil {
		out = append(out, r.checkTraces())
	}
	return out
}

// checkDashboard reports whether the dashboard is available.
func (r *Reporter) checkDashboard() api.Check {
	if why := r.Door.Problem(); why != "" {
		return doctor.Failed("dashboard", why, "give the address that is said above in the configuration, and start the daemon again")
	}
	return doctor.Passed("dashboard", cmp.Or(r.Door.URL("/"), "off"))
}

// checkHeartbeat reports whether the pings arrive.
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

// checkReplica reports whether the continuous copies are up to date.
func checkReplica(is *api.Replica, zone *time.Location) api.Check {
	behind := time.Duration(is.BehindSeconds * float64(time.Second))
	c := api.Check{Name: "replica", OK: is.Problem == "" && behind < lateAfter && len(is.Unusable) == 0, Detail: "the home is being copied to " + is.To + " for the first time since rouse was started"}
	if !is.LastSuccess.IsZero() {
		c.Detail = fmt.Sprintf("copied to %s last at %s", is.To, api.LocalTime(is.LastSuccess.Time, zone))
	}
	if is.Databases > 0 {
		c.Detail += fmt.Sprintf(", %s behind (%s with something that is not copied, logs of %s)", behind.Round(time.Second), text.Plural(is.Databases, "database"), text.Size(is.Bytes))
	} else {
		c.Detail += ", nothing is behind"
	}
	if len(is.Unusable) > 0 {
		c.Detail += "; not copied, because it is quarantined: the database of " + strings.Join(is.Unusable, ", ")
		c.Remedy = "see what is said of the databases"
	}
	if is.Problem != "" {
		c.Detail += "; " + is.Problem
		c.Remedy = "see the message; it is tried again by itself, at least each minute, and runs go on meanwhile"
	}
	return c
}

// checkTraces reports whether traces arrive.
func (r *Reporter) checkTraces() api.Check {
	if why := r.Traces.Problem(); why != "" {
		return doctor.Failed("traces", "not sent: "+why, "see that a receiver of OTLP over HTTP listens at telemetry.otlp.endpoint and takes its headers; runs go on without it")
	}
	return doctor.Passed("traces", "sent to "+r.Traces.To())
}
