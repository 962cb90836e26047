package config

import (
	"fmt"
	"os"
	"regexp"

	"rouse/internal/fspath"
)

// nodeName matches the names of nodes, which stand in lists, in the names of sessions and behind labels of numbers.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// CheckNodeName refuses a name that a node cannot have.
func CheckNodeName(name string) error {
	if !nodeName.MatchString(name) {
		return fmt.Errorf("%q is no name of a node: up to 63 letters, digits, dots, dashes and underscores, of which the first is a letter or a digit", name)
	}
	return nil
}

// Shared reports whether the ledger is where several processes can work on it.
func (e Engine) Shared() bool { return e.Postgres != "" }

// NodeName is the name of this process among the nodes.
func (c *Config) NodeName() (string, error) {
	if c.Node != "" {
		return c.Node, nil
	}

	name, err := os.Hostname()
	if err == nil {
		err = CheckNodeName(name)
	}
	if err != nil {
		return "", fmt.Errorf("the name of this machine cannot be that of a node: %w; give it one: node in the configuration, or --node", err)
	}
	return name, nil
}

// HostOf is the node that does the runs of a job, "" for any.
func (c *Config) HostOf(j *Job) string {
	if j.Host != "" {
		return j.Host
	}
	if a := c.Agent(j.Agent); a != nil {
		return c.HostOfAgent(a)
	}
	return ""
}

// HostOfAgent returns the node for the runs of an agent without a job, "" for any.
func (c *Config) HostOfAgent(a *Agent) string {
	if a.Host != "" || !LocalWorkdir(c, a) {
		return a.Host
	}

	host := ""
	for i := range c.Jobs {
		if j := &c.Jobs[i]; j.Agent == string(a.Name) && j.Host != "" {
			host = j.Host
		}
	}
	return host
}

// LocalWorkdir reports whether an agent works in a folder of one machine that is not part of the home.
func LocalWorkdir(c *Config, a *Agent) bool {
	return !a.WorkdirShared && a.Workdir != "" && !fspath.Within(string(a.Workdir), string(c.Home))
}
