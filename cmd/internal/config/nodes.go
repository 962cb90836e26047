package config

import (
	"fmt"
	"os"
	"regexp"

	"rouse/internal/fspath"
)

// nodeName matches valid node names. They appear in lists, session names and metric labels.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// CheckNodeName returns an error if name is not a valid node name.
func CheckNodeName(name string) error {
	if !nodeName.MatchString(name) {
		return fmt.Errorf("%q is no name of a node: up to 63 letters, digits, dots, dashes and underscores, of which the first is a letter or a digit", name)
	}
	return nil
}

// Shared reports whether several processes can share the ledger.
func (e Engine) Shared() bool { return e.Postgres != "" }

// NodeName returns the node name of this process. It returns an error if no name is configured and
// the host name is not a valid node name.
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

// HostOf returns the node that runs a job, or "" for any node.
func (c *Config) HostOf(j *Job) string {
	if j.Host != "" {
		return j.Host
	}
	if a := c.Agent(j.Agent); a != nil {
		return c.HostOfAgent(a)
	}
	return ""
}

// HostOfAgent returns the node for runs of an agent without a job, or "" for any node.
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

// LocalWorkdir reports whether the agent's workdir is on one machine and outside the home.
func LocalWorkdir(c *Config, a *Agent) bool {
	return !a.WorkdirShared && a.Workdir != "" && !fspath.Within(string(a.Workdir), string(c.Home))
}
