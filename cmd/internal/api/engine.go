package api

import (
	"fmt"
	"strings"
	"time"
)

// Engine says where the ledger is and who works on it.
type Engine struct {
	Kind    string `json:"kind"`    // file or postgres
	Address string `json:"address"` // of the database, without a password; "" for a file
	Node    string `json:"node"`    // the name of the process that answers, or of the node beside which it works; "" for a file
	Leads   bool   `json:"leads"`   // it does what one node does for all
	Leader  string `json:"leader"`  // the node that does; "": none is there, or the ledger is a file
	SkewMS  int64  `json:"skew_ms"` // how much later the clock of the database is than this machine's
	// Nodes are those that hold their lease, and the last of each name that does not any more.
	Nodes []Node `json:"nodes"`
	// Agents are the nodes that have the databases of agents, by agent.
	Agents map[string]string `json:"agents"`
	// Stay are those of them that no other node can get: they have files there, or their database was not shipped yet.
	Stay []string `json:"stay"`
	// Problems are what keeps several nodes from being one.
	Problems []string `json:"problems"`
}

// Node is a process that shares a ledger with others.
type Node struct {
	Name      string `json:"name"`
	Host      string `json:"host"`
	PID       int    `json:"pid"`
	Version   string `json:"version"`
	Address   string `json:"address"` // at which its pages listen
	StartedAt Time   `json:"started_at"`
	SeenAt    Time   `json:"seen_at"` // it said last that it is there
	Alive     bool   `json:"alive"`   // it holds its lease, and may write
	GoneAt    Time   `json:"gone_at"`
	Why       string `json:"why"` // it is gone
	Leads     bool   `json:"leads"`
	Triggers  bool   `json:"triggers"` // it looks for reasons to start runs
	Work      bool   `json:"work"`     // it does runs
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
