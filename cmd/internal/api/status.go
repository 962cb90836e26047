package api

import (
	"fmt"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/wake"
)

// Status describes the process that serves a home and its current work.
type Status struct {
	PID       int    `json:"pid"`
	Version   string `json:"version"`
	Home      string `json:"home"`
	Config    string `json:"config"`
	StartedAt Time   `json:"started_at"`
	Zone      string `json:"zone"` // configured time zone, or the machine's
	Ready     bool   `json:"ready"`
	// Foreground is set if the process is not a daemon but a command that executes its own run.
	Foreground bool `json:"foreground"`
	Queued     int  `json:"queued"`
	Running    int  `json:"running"`
	Waiting    int  `json:"waiting"`
	// Dashboard is the address of the pages. If it is empty although pages are configured,
	// DashboardProblem is the reason.
	Dashboard        string `json:"dashboard"`
	DashboardProblem string `json:"dashboard_problem"`
	// Problem is the reason why the ledger cannot be written, so that no runs start. Empty if it
	// can.
	Problem string `json:"problem"`
	// ConfigAt is the time the current configuration was read. If the file on disk has problems, it
	// is not used. Changes of the keys in ConfigRestart take effect after a restart.
	ConfigAt       Time      `json:"config_at"`
	ConfigProblems []Problem `json:"config_problems"`
	ConfigRestart  []string  `json:"config_restart"`
	// WatchProblems lists problems with watched directories and their output directories, each with
	// its job.
	WatchProblems []string `json:"watch_problems"`
	// Engine describes the ledger's storage and the nodes that share it.
	Engine Engine `json:"engine"`
	// Heartbeat is the state of the pings to heartbeat_url.
	Heartbeat Heartbeat `json:"heartbeat"`
	// Replica is the state of continuous replication.
	Replica Replica `json:"replica"`
	// Calendars lists the calendars that jobs use.
	Calendars []Calendar `json:"calendars"`
	// ModelPauses lists models that are not used because their provider's quota is exhausted.
	ModelPauses []ModelPause `json:"model_pauses"`
}

// Heartbeat is the state of the pings to a monitor.
type Heartbeat struct {
	To       string `json:"to"`        // host; empty if pings are off or the first one is pending
	LastPing Time   `json:"last_ping"` // last successful ping since the start; null before it
	Problem  string `json:"problem"`   // error of the last ping; empty if it succeeded
}

// Replica is the state of continuous replication.
type Replica struct {
	To            string   `json:"to"`             // target; empty if replication is off
	LastSuccess   Time     `json:"last_success"`   // last successful round since the start; null before it
	BehindSeconds float64  `json:"behind_seconds"` // age of the oldest write not yet copied
	Databases     int      `json:"databases"`      // databases with writes not yet copied
	Bytes         int64    `json:"bytes"`          // approximate size of their logs
	Problem       string   `json:"problem"`        // error of the last round; empty if it succeeded
	Unusable      []string `json:"unusable"`       // agents with a quarantined database, which is not copied
}

// ModelPause is a period during which a model is not used.
type ModelPause struct {
	Model  string `json:"model"`
	Since  Time   `json:"since"` // time of the first rejected request
	Until  Time   `json:"until"`
	Reason string `json:"reason"` // reason given by the provider
}

// Text describes the pause in one sentence, with its end in the given time zone.
func (p ModelPause) Text(zone *time.Location) string {
	return fmt.Sprintf("the model %s is not asked until %s, for its provider's quota is spent (a run that you start or retry asks it at once): %s", p.Model, LocalTime(p.Until.Time, zone), p.Reason)
}

// Check is a result of `rouse doctor`.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy"`
	// NotTried describes the part that was not checked and why. Empty if all was checked.
	NotTried string `json:"not_tried"`
}

// DoctorRequest holds the options of `rouse doctor`.
type DoctorRequest struct {
	Offline bool `json:"offline,omitempty"` // do not use the network or start MCP servers
}

// NotifySent is the result of a NotifyRequest. Channel is the channel that accepted the text.
type NotifySent struct {
	Channel string `json:"channel"`
}

// NotifyRequest sends a text to a channel at once. An empty channel means the default channel.
type NotifyRequest struct {
	Channel string `json:"channel"`
	Text    string `json:"text"`
}

// State is the initial state of a simulation: the progress of the jobs' schedules, pauses, planned
// wakes and open runs.
type State struct {
	Now    Time          `json:"now"`
	Jobs   []JobState    `json:"jobs"`
	Pauses []pause.Pause `json:"pauses"`
	Wakes  []wake.Wake   `json:"slots"`
	Runs   []OpenRun     `json:"runs"`
}

// OpenRun is a run that has not finished.
type OpenRun struct {
	ID            string         `json:"id"`
	Job           string         `json:"job"`
	Agent         string         `json:"agent"`
	Trigger       domain.Trigger `json:"trigger"`
	State         domain.State   `json:"state"`
	WaitingFor    domain.Wait    `json:"waiting_for"`
	NotBefore     Time           `json:"not_before"`
	QueuedAt      Time           `json:"queued_at"`
	Attempt       int            `json:"attempt"`
	Interruptions int            `json:"interruptions"`
}

// JobState is the progress of a job's schedule.
type JobState struct {
	Name      string `json:"name"`
	Hash      string `json:"hash"`
	Anchor    Time   `json:"anchor"`
	Watermark Time   `json:"watermark"`
}

// Engine describes the ledger's storage and the nodes that share it.
type Engine struct {
	Kind    string `json:"kind"`    // file or postgres
	Address string `json:"address"` // address of the database without the password; empty for a file
	Node    string `json:"node"`    // name of the responding node, or of the node the command works with; empty for a file
	Leads   bool   `json:"leads"`   // this node is the leader
	Leader  string `json:"leader"`  // name of the leader; empty if there is no leader or the ledger is a file
	SkewMS  int64  `json:"skew_ms"` // database clock minus local clock, in milliseconds
	// Nodes lists the active nodes, and the last inactive node of each other name.
	Nodes []Node `json:"nodes"`
	// Queues lists River's queues that have jobs.
	Queues []EngineQueue `json:"queues"`
	// Agents maps agents to the node that holds their database.
	Agents map[string]string `json:"agents"`
	// Stay lists agents that cannot move to another node: they have files on their node, or their
	// database is not replicated yet.
	Stay []string `json:"stay"`
	// Problems lists differences between the nodes that prevent them from working together.
	Problems []string `json:"problems"`
}

// EngineQueue is the number of jobs of a River queue in one state.
type EngineQueue struct {
	Name  string `json:"name"` // any, or the queue of a node
	State string `json:"state"`
	Jobs  int    `json:"jobs"`
}

// Node is a process that shares a ledger with others.
type Node struct {
	Name      string `json:"name"`
	Host      string `json:"host"`
	PID       int    `json:"pid"`
	Version   string `json:"version"`
	Address   string `json:"address"` // address of its pages
	StartedAt Time   `json:"started_at"`
	Alive     bool   `json:"alive"` // holds its lease, so it may write to the ledger
	GoneAt    Time   `json:"gone_at"`
	Why       string `json:"why"` // why the node is gone
	Leads     bool   `json:"leads"`
	Triggers  bool   `json:"triggers"` // watches triggers and starts runs
	Work      bool   `json:"work"`     // executes runs
	Lanes     int    `json:"lanes"`    // maximum number of concurrent runs
	Runs      int    `json:"runs"`     // number of current runs
	Self      bool   `json:"self"`     // the responding node
	// ConfigDiffers is set if the node's configuration differs from that of the responding node.
	ConfigDiffers bool `json:"config_differs"`
}

// Text describes the node in one sentence, with times in the given time zone.
func (n Node) Text(zone *time.Location) string {
	said := fmt.Sprintf("%s on %s, process %d, rouse %s", n.Name, n.Host, n.PID, n.Version)
	if !n.Alive {
		return fmt.Sprintf("%s: gone since %s: %s", said, LocalTime(n.GoneAt.Time, zone), n.Why)
	}
	said += ", since " + LocalTime(n.StartedAt.Time, zone)
	if marks := n.Marks(); marks != "" {
		said += " (" + marks + ")"
	}
	return said
}

// Marks returns the special properties of the node in words.
func (n Node) Marks() string {
	var marks []string
	for _, m := range []struct {
		is   bool
		word string
	}{{n.Leads, "leads"}, {n.Self, "this one"}, {n.Alive && !n.Triggers, "no triggers"}, {n.Alive && !n.Work, "no work"}, {n.ConfigDiffers, "another configuration"}} {
		if m.is {
			marks = append(marks, m.word)
		}
	}
	return strings.Join(marks, ", ")
}

// Problem is an error or a warning about a configuration.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Path    string `json:"path"`
	Name    string `json:"name,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Warning bool   `json:"warning"`
}

// ConfigProblemHeader is the response header with the reason why the configuration on disk is not
// in use, percent-encoded.
const ConfigProblemHeader = "Rouse-Config-Problem"

// Reload is the result of reloading the configuration: either the problems, in which case nothing
// has changed, or the changes.
type Reload struct {
	OK       bool      `json:"ok"`
	Problems []Problem `json:"problems"`
	Added    []string  `json:"added"`
	Changed  []string  `json:"changed"`
	Removed  []string  `json:"removed"`
	Others   []string  `json:"others"`
	Restart  []string  `json:"restart"`
	// Latest is the last reload that changed something, possibly an automatic one a moment ago.
	// Absent before the first change.
	Latest *Reloaded `json:"latest,omitempty"`
}

// Reloaded is a reload of the configuration that changed something.
type Reloaded struct {
	At      Time   `json:"at"`
	Summary string `json:"summary"`
}
