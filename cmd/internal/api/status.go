package api

import (
	"fmt"
	"time"
)

// Status says who serves a home and what it is doing.
type Status struct {
	PID       int    `json:"pid"`
	Version   string `json:"version"`
	Home      string `json:"home"`
	Config    string `json:"config"`
	StartedAt Time   `json:"started_at"`
	Zone      string `json:"zone"` // configured time zone, or the machine's
	Ready     bool   `json:"ready"`
	// Foreground is set where no daemon answers, but a command that executes a run of its own.
	Foreground bool `json:"foreground"`
	Queued     int  `json:"queued"`
	Running    int  `json:"running"`
	Waiting    int  `json:"waiting"`
	// Dashboard is the address of the pages, "" where there are none; DashboardProblem is why, where they are wanted.
	Dashboard        string `json:"dashboard"`
	DashboardProblem string `json:"dashboard_problem"`
	// Problem is what keeps the ledger from being written, so that nothing runs; "": nothing.
	Problem string `json:"problem"`
	// The configuration in force was read at ConfigAt. What is on disk is not in force while
	// there are problems; and what it says of ConfigRestart is not until a restart.
	ConfigAt       Time      `json:"config_at"`
	ConfigProblems []Problem `json:"config_problems"`
	ConfigRestart  []string  `json:"config_restart"`
	// WatchProblems is what is wrong with watched folders, and with where their files go, each with its job.
	WatchProblems []string `json:"watch_problems"`
	// Engine says where the ledger is, and which nodes share it.
	Engine Engine `json:"engine"`
	// Heartbeat is how the pings of heartbeat_url are doing.
	Heartbeat Heartbeat `json:"heartbeat"`
	// Replica is how far the continuous copies of the home are.
	Replica Replica `json:"replica"`
	// Calendars are those whose times jobs exclude, or keep to.
	Calendars []Calendar `json:"calendars"`
	// ModelPauses are the models that nobody asks now, because their provider's quota is spent.
	ModelPauses []ModelPause `json:"model_pauses"`
}

// Heartbeat is how the pings are doing that tell others that the daemon does its work.
type Heartbeat struct {
	To       string `json:"to"`        // the server; "": there are no pings, or the first is on its way
	LastPing Time   `json:"last_ping"` // that it took; null: none since the daemon started
	Problem  string `json:"problem"`   // why the latest was not sent, or not taken; "": it was
}

// Replica is how far the continuous copies of the home are.
type Replica struct {
	To            string   `json:"to"`             // the place; "": there are none
	LastSuccess   Time     `json:"last_success"`   // when something, or that there was nothing, was last copied; null: not since the daemon started
	BehindSeconds float64  `json:"behind_seconds"` // since the oldest write that is not copied
	Databases     int      `json:"databases"`      // that hold something that is not copied
	Bytes         int64    `json:"bytes"`          // of their logs, about
	Problem       string   `json:"problem"`        // why nothing could be copied last; "": it could
	Unusable      []string `json:"unusable"`       // agents whose database is quarantined, and so not copied
}

// ModelPause is a time in which a model is not asked.
type ModelPause struct {
	Model  string `json:"model"`
	Since  Time   `json:"since"` // when the first request was refused
	Until  Time   `json:"until"`
	Reason string `json:"reason"` // as its provider words it
}

// Text words the pause, with its end in a zone.
func (p ModelPause) Text(zone *time.Location) string {
	return fmt.Sprintf("the model %s is not asked until %s, for its provider's quota is spent (a run that you start or retry asks it at once): %s", p.Model, LocalTime(p.Until.Time, zone), p.Reason)
}

// Check is one line of `rouse doctor`.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy"`
	// NotTried is what the check leaves open, and why; "": nothing.
	NotTried string `json:"not_tried"`
}

// DoctorRequest says what the checks of `rouse doctor` may do.
type DoctorRequest struct {
	Offline bool `json:"offline,omitempty"` // ask nothing of the network, and start no MCP server
}

// NotifySent names the channel that accepted a text.
type NotifySent struct {
	Channel string `json:"channel"`
}

// NotifyRequest sends a text to a channel at once. An empty channel means the default channel.
type NotifyRequest struct {
	Channel string `json:"channel"`
	Text    string `json:"text"`
}
