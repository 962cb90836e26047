package api

import (
	"fmt"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
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

// State is what a simulation begins with: how far the jobs have been dealt with, what is
// planned, paused, and not finished yet.
type State struct {
	Now    Time           `json:"now"`
	Jobs   []JobState     `json:"jobs"`
	Pauses []ledger.Pause `json:"pauses"`
	Wakes  []ledger.Wake  `json:"slots"`
	Runs   []OpenRun      `json:"runs"`
}

// OpenRun is a run that is not finished.
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

// JobState is how far a job's schedule has been dealt with.
type JobState struct {
	Name      string `json:"name"`
	Hash      string `json:"hash"`
	Anchor    Time   `json:"anchor"`
	Watermark Time   `json:"watermark"`
}

// Engine says where the ledger is and who works on it.
type Engine struct {
	Kind    string `json:"kind"`    // file or postgres
	Address string `json:"address"` // of the database, without a password; "" for a file
	Node    string `json:"node"`    // the name of the process that answers, or of the node beside which it works; "" for a file
	Leads   bool   `json:"leads"`   // it does what one node does for all
	Leader  string `json:"leader"`  // the node that does; "": none is there, or the ledger is a file
	SkewMS  int64  `json:"skew_ms"` // how much later the clock of the database is than this machine's
	// Nodes are those that are at work, and the last of each name that is not any more.
	Nodes []Node `json:"nodes"`
	// Queues are those of River that have jobs.
	Queues []EngineQueue `json:"queues"`
	// Agents are the nodes that have the databases of agents, by agent.
	Agents map[string]string `json:"agents"`
	// Stay are those of them that no other node can get: they have files there, or their database was not shipped yet.
	Stay []string `json:"stay"`
	// Problems are what keeps several nodes from being one.
	Problems []string `json:"problems"`
}

// EngineQueue is a queue of River, with how many jobs it has in a state.
type EngineQueue struct {
	Name  string `json:"name"` // any, or that of a node
	State string `json:"state"`
	Jobs  int    `json:"jobs"`
}

// Node is a process that shares a ledger with others.
type Node struct {
	Name      string `json:"name"`
	Host      string `json:"host"`
	PID       int    `json:"pid"`
	Version   string `json:"version"`
	Address   string `json:"address"` // at which its pages listen
	StartedAt Time   `json:"started_at"`
	Alive     bool   `json:"alive"` // it may write
	GoneAt    Time   `json:"gone_at"`
	Why       string `json:"why"` // it is gone
	Leads     bool   `json:"leads"`
	Triggers  bool   `json:"triggers"` // it looks for reasons to start runs
	Work      bool   `json:"work"`     // it does runs
	Lanes     int    `json:"lanes"`    // how many at once
	Runs      int    `json:"runs"`     // how many are on
	Self      bool   `json:"self"`     // it is the one that answers
	// ConfigDiffers is set where its configuration is another than that of the node that answers.
	ConfigDiffers bool `json:"config_differs"`
}

// Text describes the node, with times in a zone.
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

// Marks are what is special about a node, in words.
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

// Problem is one thing that is wrong with a configuration.
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

// ConfigProblemHeader is the response header with the reason why the configuration on disk is not in use, percent-encoded.
const ConfigProblemHeader = "Rouse-Config-Problem"

// Reload is what became of reading the configuration again: either problems, and nothing
// has changed, or the jobs and other things that are not what they were.
type Reload struct {
	OK       bool      `json:"ok"`
	Problems []Problem `json:"problems"`
	Added    []string  `json:"added"`
	Changed  []string  `json:"changed"`
	Removed  []string  `json:"removed"`
	Others   []string  `json:"others"`
	Restart  []string  `json:"restart"`
	// Latest is what the last reading changed that changed anything, which the daemon may have done by itself a moment
	// ago; absent before the first.
	Latest *Reloaded `json:"latest,omitempty"`
}

// Reloaded is a reading of the configuration that changed something.
type Reloaded struct {
	At      Time   `json:"at"`
	Summary string `json:"summary"`
}
