package config

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"rouse/internal/fspath"
	"rouse/internal/text"
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
func (c *Config) Shared() bool { return c.Engine.Postgres != "" }

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
	if a := c.agentOf(j); a != nil {
		return c.HostOfAgent(a)
	}
	return ""
}

// HostOfAgent returns the node for the runs of an agent without a job, "" for any.
func (c *Config) HostOfAgent(a *Agent) string {
	if a.Host != "" || !c.localWorkdir(a) {
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

// localWorkdir reports whether an agent works in a folder of one machine that is not part of the home.
func (c *Config) localWorkdir(a *Agent) bool {
	return !a.WorkdirShared && a.Workdir != "" && !fspath.Within(string(a.Workdir), string(c.Home))
}

// checkNodes checks the settings of nodes. Without a shared ledger it refuses only wrong names.
func (c *checker) checkNodes() {
	c.name("node", c.cfg.Node)
	c.checkPostgres(c.cfg.Engine.Postgres)
	c.checkBlobs(c.cfg.Engine)

	for path, a := range each("agents", c.cfg.Agents) {
		c.checkAgentHost(path, a)
	}
	for path, j := range each("jobs", c.cfg.Jobs) {
		c.name(path+".host", j.Host)
		if a := c.agent(j); a != nil && a.Host != "" && j.Host != "" && a.Host != j.Host {
			c.bad(path+".host", "is %s, and that of its agent %s is %s: the agent's database and files are there", j.Host, a.Name, a.Host)
		}
		if j.Watch != nil && c.cfg.Shared() && j.At.Line > 0 && c.cfg.HostOf(j) == "" {
			c.bad(path+".watch", "needs host beside it, the name of the node that sees the folder %s: with engine.postgres several may run, and that one alone watches it", display(string(j.Watch.Path)))
		}
	}
}

func (c *checker) name(path, name string) {
	if name == "" || !c.hasNoProblem(path) {
		return
	}
	if err := CheckNodeName(name); err != nil {
		c.bad(path, "%v", err)
	}
}

// checkAgentHost refuses a workdir of which nobody says on which machine it is.
func (c *checker) checkAgentHost(path string, a *Agent) {
	c.name(path+".host", a.Host)
	if a.Host != "" && a.WorkdirShared {
		c.warn(path+".workdir_shared", "has no effect beside host: all runs of the agent are done on %s", a.Host)
	}
	if !c.cfg.Shared() || a.Host != "" || !On(a.Enabled) || !c.cfg.localWorkdir(a) {
		return
	}

	var hosts []string
	for _, i := range c.jobsOf[string(a.Name)] {
		if host := cmp.Or(c.cfg.Jobs[i].Host, "none"); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	if len(hosts) == 1 && hosts[0] != "none" {
		return // where all its jobs are, its workdir is
	}

	p := c.bad(path+".workdir", "is %s, a folder of one machine: with engine.postgres its runs may be done on several", display(string(a.Workdir)))
	p.Hint = "name the node with host: NODE at the agent, or say workdir_shared: true if it is the same folder on every node, or leave workdir out"
	if len(hosts) > 1 {
		p.Hint += "; its jobs name " + text.List(hosts, 5)
	}
}

func (c *checker) checkPostgres(address string) {
	if address == "" {
		c.notEmpty("engine.postgres", address, "is empty; write it like postgres://rouse@db.example.net/rouse, best as secret:NAME, or leave engine out")
		return
	}

	u, err := url.Parse(address)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || strings.Trim(u.Path, "/") == "" && u.Query().Get("dbname") == "" {
		c.bad("engine.postgres", "must be the address of a database, like postgres://rouse@db.example.net/rouse")
	}
}

// checkBlobs refuses a place for large values that is none.
func (c *checker) checkBlobs(e Engine) {
	switch {
	case !c.hasNoProblem("engine.blobs"):
		return
	case e.Blobs == "" && (e.AccessKey != "" || e.SecretKey != ""):
		c.bad("engine.access_key", "is of the bucket that engine.blobs names, and there is none")
		return
	case e.Blobs == "":
		return
	case e.Postgres == "":
		if c.hasNoProblem("engine.postgres") {
			c.bad("engine.blobs", "needs engine.postgres beside it: where the ledger is a file, its large values are files of the home")
		}
		return
	}

	c.target("engine", "blobs", e.Blobs, e.AccessKey, e.SecretKey, "this node's alone; name a folder that is the same on every node")
}
