package check

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"rouse/agent/checkout"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/cmd/internal/config"
	"rouse/internal/fspath"
	"rouse/internal/owner"
)

// checkouts checks the checkouts of jobs.
type checkouts struct {
	report
	*templates
}

// checkCheckouts checks each checkout by itself and against its agent.
func (c *checkouts) checkCheckouts() {
	for _, o := range config.Checkouts(c.cfg) {
		c.repository(o.Path+".repo", o.Repo)
		c.branch(o.Path+".branch", o.Branch)
		c.push(o.Path+".on_success", o.OnSuccess)
		if o.Ref != "" && (strings.HasPrefix(o.Ref, "-") || strings.ContainsAny(o.Ref, " ^~:?*[\\\x00\n") || strings.Contains(o.Ref, "..") || strings.Contains(o.Ref, "@{")) {
			c.bad(o.Path+".ref", "%q is not the name of a branch, a tag or a commit", o.Ref)
		}
	}

	for path, a := range config.Each("agents", c.cfg.Agents) {
		if a.Checkout != nil {
			c.besideCheckout(path, a, c.cfg.HostOfAgent(a))
		}
	}
	for path, j := range config.Each("jobs", c.cfg.Jobs) {
		if a := c.agent(j); a != nil && j.Checkout != nil {
			c.besideCheckout(path, a, c.cfg.HostOf(j))
		}
		o := c.cfg.CheckoutOf(j)
		for at, e := range config.Each(path+".expect", j.Expect) {
			if o != nil && e.File != "" && fspath.Within(string(e.File), string(o.Repo)) {
				c.bad(at+".file", "lies in the repository of the checkout, which no run changes").Hint = "check the clone: command: [test, -s, FILE]"
			}
		}
	}
}

func (c *checkouts) push(path string, s *config.CheckoutSuccess) {
	if s == nil || !c.hasNoProblem(path) {
		return
	}
	if s.Push != "" && !checkout.IsRemoteName(s.Push) {
		c.bad(path+".push", "%q is not the name of a remote; an address is not taken", s.Push).Hint = "name one that git remote lists in repo, such as origin"
	}
	if s.PullRequest && s.Token == "" {
		c.warn(path+".open_pull_request", "a pull request is opened with a token, and none is set: each run that succeeds will end with an error").Hint = "token: secret:NAME, kept with: rouse secrets set NAME"
	}
}

// repository checks that a path is a git repository of the owner. A missing repository blocks only
// the jobs that use it.
func (c *checkouts) repository(path string, repo config.Path) {
	if repo == "" {
		return
	}
	info, err := os.Stat(string(repo))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.warn(path, "%s does not exist; until it does, each run fails", config.Display(string(repo)))
	case err != nil:
		c.warn(path, "%s cannot be read (%v); until it can, each run fails", config.Display(string(repo)), errors.Unwrap(err))
	case !info.IsDir() || !isRepository(string(repo)):
		c.bad(path, "%s is not a git repository", config.Display(string(repo))).Hint = "name the folder with .git in it"
	case !owner.Mine(info):
		c.bad(path, "%s %s", config.Display(string(repo)), owner.Whose(info)).Hint = "clone it to a folder of your own, and name that"
	case c.inHome(string(repo)):
		c.bad(path, "%s lies in the home of rouse; a repository of yours must lie elsewhere", config.Display(string(repo)))
	}
}

// isRepository reports whether a folder is a git repository, with or without working files.
func isRepository(folder string) bool {
	has := func(name string) bool {
		_, err := os.Lstat(filepath.Join(folder, name))
		return err == nil
	}
	return has(".git") || has("HEAD") && has("objects") && has("refs")
}

// branch checks that a template names a new branch for each run and uses only values from rouse.
func (c *checkouts) branch(path, source string) {
	if source == "" {
		return
	}
	if !c.template(path, source, checkout.BranchNames()) {
		return
	}

	name := func(run string) (string, error) {
		return playbook.Expand("branch", source, map[string]any{"Job": "job", "Agent": "agent", "Run": run})
	}
	one, err := name("1")
	if err == nil {
		err = checkout.CheckBranch(one)
	}
	if err != nil {
		c.bad(path, "%s", err.Error()).Hint = `write it like branch: "rouse/{{ .Job }}-{{ .Run }}"`
		return
	}
	if other, err := name("2"); err != nil || other == one {
		c.bad(path, "is the same for all runs, and each needs a branch of its own").Hint = "add {{ .Run }}"
	}
}

// besideCheckout refuses agent settings that conflict with a checkout, such as those that need a
// fixed workdir.
func (c *checkouts) besideCheckout(path string, a *config.Agent, host string) {
	at := path + ".checkout"
	switch {
	case a.Mode == plan.ModeNone:
		c.bad(at, "the agent %s has mode: none, and so neither file tools nor programs for a clone", a.Name).Hint = "choose another mode"
	case len(a.Grants.Write) > 0:
		c.bad(at, "the agent %s has grants.write, which names folders of its workdir; with checkout each run has another workdir, its clone", a.Name).Hint = "leave grants.write out"
	case c.cfg.Engine.Shared() && host == "":
		c.bad(at, "with engine.postgres several nodes may run, and clones lie on one of them").Hint = "name it with host"
	}
}
