package check

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"rouse/cmd/internal/config"
	"rouse/internal/text"
)

// nodeChecks checks the settings of nodes that share a ledger.
type nodeChecks struct {
	report
	connections
	*lookup
}

// checkNodes checks the settings of nodes. Without a shared ledger it refuses only invalid names.
func (c *nodeChecks) checkNodes() {
	c.name("node", c.cfg.Node)
	c.checkPostgres(c.cfg.Engine.Postgres)
	c.checkBlobs(c.cfg.Engine)

	for path, a := range config.Each("agents", c.cfg.Agents) {
		c.checkAgentHost(path, a)
	}
	for path, j := range config.Each("jobs", c.cfg.Jobs) {
		c.name(path+".host", j.Host)
		if a := c.agent(j); a != nil && a.Host != "" && j.Host != "" && a.Host != j.Host {
			c.bad(path+".host", "is %s, and that of its agent %s is %s: the agent's database and files are there", j.Host, a.Name, a.Host)
		}
		if j.Watch != nil && c.cfg.Engine.Shared() && j.At.Line > 0 && c.cfg.HostOf(j) == "" {
			c.bad(path+".watch", "needs host beside it, the name of the node that sees the folder %s: with engine.postgres several may run, and that one alone watches it", config.Display(string(j.Watch.Path)))
		}
	}
}

func (c *nodeChecks) name(path, name string) {
	if name == "" || !c.hasNoProblem(path) {
		return
	}
	if err := config.CheckNodeName(name); err != nil {
		c.bad(path, "%v", err)
	}
}

// checkAgentHost refuses a local workdir if no setting names its machine.
func (c *nodeChecks) checkAgentHost(path string, a *config.Agent) {
	c.name(path+".host", a.Host)
	if a.Host != "" && a.WorkdirShared {
		c.warn(path+".workdir_shared", "has no effect beside host: all runs of the agent are done on %s", a.Host)
	}
	if !c.cfg.Engine.Shared() || a.Host != "" || !config.On(a.Enabled) || !config.LocalWorkdir(c.cfg, a) {
		return
	}

	var hosts []string
	for _, i := range c.jobsOf[string(a.Name)] {
		if host := cmp.Or(c.cfg.Jobs[i].Host, "none"); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	if len(hosts) == 1 && hosts[0] != "none" {
		return // the workdir is on the node of the jobs
	}

	p := c.bad(path+".workdir", "is %s, a folder of one machine: with engine.postgres its runs may be done on several", config.Display(string(a.Workdir)))
	p.Hint = "name the node with host: NODE at the agent, or say workdir_shared: true if it is the same folder on every node, or leave workdir out"
	if len(hosts) > 1 {
		p.Hint += "; its jobs name " + text.List(hosts, 5)
	}
}

func (c *nodeChecks) checkPostgres(address string) {
	if address == "" {
		c.notEmpty("engine.postgres", address, "is empty; write it like postgres://rouse@db.example.net/rouse, best as secret:NAME, or leave engine out")
		return
	}

	u, err := url.Parse(address)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || strings.Trim(u.Path, "/") == "" && u.Query().Get("dbname") == "" {
		c.bad("engine.postgres", "must be the address of a database, like postgres://rouse@db.example.net/rouse")
	}
}

// checkBlobs refuses an invalid location for large values.
func (c *nodeChecks) checkBlobs(e config.Engine) {
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
