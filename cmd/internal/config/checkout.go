package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rouse/agent/checkout"
	"rouse/agent/model/playbook"
	agentplan "rouse/agent/plan"
	"rouse/internal/fspath"
	"rouse/internal/owner"
)

// Checkout gives each run a private clone of one of your repositories as its workdir.
type Checkout struct {
	Repo   Path     `key:"repo" need:"yes" say:"a git repository of yours; runs do not write in it, and rouse brings the branch of each run there as data" eg:"~/src/app"`
	Ref    string   `key:"ref" say:"the branch, tag or commit at which a run begins" unset:"the branch that is checked out in repo" eg:"main"`
	Branch string   `key:"branch" default:"rouse/{{ .Job }}-{{ .Run }}" say:"name of the new branch, a template of .Job, .Agent and .Run; without a job .Job is the agent's name"`
	Keep   Duration `key:"keep" default:"14d" positive:"yes" say:"how long a clone is kept that is neither applied nor discarded; the branch stays in repo"`

	OnSuccess *CheckoutSuccess `key:"on_success" say:"what is done with the branch of a run that ended with success" unset:"it waits in repo to be applied or discarded"`

	At Position
}

// CheckoutSuccess sends the branch of a run to a server.
type CheckoutSuccess struct {
	Push        string `key:"push" need:"yes" say:"a remote of repo by its name, to which the branch is pushed" eg:"origin"`
	Token       string `key:"token" secret:"yes" say:"the token for a remote with an https address, and for pull requests; it is sent to the host of the remote alone" unset:"git uses your own SSH key" eg:"secret:github"`
	PullRequest bool   `key:"open_pull_request" say:"open a pull request at GitHub, or a merge request at GitLab, on the branch ref"`
	Provider    string `key:"provider" enum:"github|gitlab" say:"the kind of the server, if its host is not github.com or gitlab.com"`
}

// CheckoutOf returns the checkout of a job, or nil if its runs have none.
func (c *Config) CheckoutOf(j *Job) *Checkout {
	if j.Checkout != nil {
		return j.Checkout
	}
	if a := c.agentOf(j); a != nil {
		return a.Checkout
	}
	return nil
}

// Spec returns the checkout in the terms of the runner.
func (o *Checkout) Spec() *checkout.Options {
	if o == nil {
		return nil
	}
	out := &checkout.Options{Repo: string(o.Repo), Ref: o.Ref, Branch: o.Branch, Keep: time.Duration(o.Keep)}
	if s := o.OnSuccess; s != nil {
		out.Push = &checkout.PushOptions{Remote: s.Push, Token: s.Token, PullRequest: s.PullRequest, Provider: s.Provider}
	}
	return out
}

// placedCheckout is a checkout with its path in the configuration.
type placedCheckout struct {
	*Checkout
	path string
}

// checkouts returns all checkouts, those of agents first.
func (c *Config) checkouts() (out []placedCheckout) {
	for path, a := range each("agents", c.Agents) {
		if a.Checkout != nil {
			out = append(out, placedCheckout{a.Checkout, path + ".checkout"})
		}
	}
	for path, j := range each("jobs", c.Jobs) {
		if j.Checkout != nil {
			out = append(out, placedCheckout{j.Checkout, path + ".checkout"})
		}
	}
	return out
}

// checkCheckouts checks each checkout by itself, and against the agent that gets it.
func (c *checker) checkCheckouts() {
	for _, o := range c.cfg.checkouts() {
		c.repository(o.path+".repo", o.Repo)
		c.branch(o.path+".branch", o.Branch)
		c.push(o.path+".on_success", o.OnSuccess)
		if o.Ref != "" && (strings.HasPrefix(o.Ref, "-") || strings.ContainsAny(o.Ref, " ^~:?*[\\\x00\n") || strings.Contains(o.Ref, "..") || strings.Contains(o.Ref, "@{")) {
			c.bad(o.path+".ref", "%q is not the name of a branch, a tag or a commit", o.Ref)
		}
	}

	for path, a := range each("agents", c.cfg.Agents) {
		if a.Checkout != nil {
			c.besideCheckout(path, a, c.cfg.HostOfAgent(a))
		}
	}
	for path, j := range each("jobs", c.cfg.Jobs) {
		if a := c.agent(j); a != nil && j.Checkout != nil {
			c.besideCheckout(path, a, c.cfg.HostOf(j))
		}
		o := c.cfg.CheckoutOf(j)
		for at, e := range each(path+".expect", j.Expect) {
			if o != nil && e.File != "" && fspath.Within(string(e.File), string(o.Repo)) {
				c.bad(at+".file", "lies in the repository of the checkout, which no run changes").Hint = "check the clone: command: [test, -s, FILE]"
			}
		}
	}
}

func (c *checker) push(path string, s *CheckoutSuccess) {
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

// repository checks that a path is a git repository of the owner. One that is missing keeps only its own jobs from running.
func (c *checker) repository(path string, repo Path) {
	if repo == "" {
		return
	}
	info, err := os.Stat(string(repo))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.warn(path, "%s does not exist; until it does, each run fails", display(string(repo)))
	case err != nil:
		c.warn(path, "%s cannot be read (%v); until it can, each run fails", display(string(repo)), errors.Unwrap(err))
	case !info.IsDir() || !isRepository(string(repo)):
		c.bad(path, "%s is not a git repository", display(string(repo))).Hint = "name the folder with .git in it"
	case !owner.Mine(info):
		c.bad(path, "%s %s", display(string(repo)), owner.Whose(info)).Hint = "clone it to a folder of your own, and name that"
	case c.inHome(string(repo)):
		c.bad(path, "%s lies in the home of rouse; a repository of yours must lie elsewhere", display(string(repo)))
	}
}

// isRepository reports whether git takes a folder for a repository, with or without working files.
func isRepository(folder string) bool {
	has := func(name string) bool {
		_, err := os.Lstat(filepath.Join(folder, name))
		return err == nil
	}
	return has(".git") || has("HEAD") && has("objects") && has("refs")
}

// branch checks that a template names a new branch for each run, with values of the host alone.
func (c *checker) branch(path, source string) {
	if source == "" {
		return
	}
	before := len(c.d.problems)
	c.template(path, source, checkout.BranchNames())
	if len(c.d.problems) > before {
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

// besideCheckout refuses settings of an agent that speak of a workdir which runs with a checkout do not have.
func (c *checker) besideCheckout(path string, a *Agent, host string) {
	at := path + ".checkout"
	switch {
	case a.Mode == agentplan.ModeNone:
		c.bad(at, "the agent %s has mode: none, and so neither file tools nor programs for a clone", a.Name).Hint = "choose another mode"
	case len(a.Grants.Write) > 0:
		c.bad(at, "the agent %s has grants.write, which names folders of its workdir; with checkout each run has another workdir, its clone", a.Name).Hint = "leave grants.write out"
	case c.cfg.Shared() && host == "":
		c.bad(at, "with engine.postgres several nodes may run, and clones lie on one of them").Hint = "name it with host"
	}
}
