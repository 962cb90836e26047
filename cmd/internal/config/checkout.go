package config

import (
	"time"

	"rouse/agent/checkout"
)

// Checkout configures a private clone of a repository as the workdir of each run.
type Checkout struct {
	Repo   Path     `key:"repo" required:"yes" doc:"a git repository of yours; runs do not write in it, and rouse brings the branch of each run there as data" example:"~/src/app"`
	Ref    string   `key:"ref" doc:"the branch, tag or commit at which a run begins" defaultdoc:"the branch that is checked out in repo" example:"main"`
	Branch string   `key:"branch" default:"rouse/{{ .Job }}-{{ .Run }}" doc:"name of the new branch, a template of .Job, .Agent and .Run; without a job .Job is the agent's name"`
	Keep   Duration `key:"keep" default:"14d" positive:"yes" doc:"how long a clone is kept that is neither applied nor discarded; the branch stays in repo"`

	OnSuccess *CheckoutSuccess `key:"on_success" doc:"what is done with the branch of a run that ended with success" defaultdoc:"it waits in repo to be applied or discarded"`

	At Position
}

// CheckoutSuccess configures the push of a run's branch after the run succeeded.
type CheckoutSuccess struct {
	Push        string `key:"push" required:"yes" doc:"a remote of repo by its name, to which the branch is pushed" example:"origin"`
	Token       string `key:"token" secret:"yes" doc:"the token for a remote with an https address, and for pull requests; it is sent to the host of the remote alone" defaultdoc:"git uses your own SSH key" example:"secret:github"`
	PullRequest bool   `key:"open_pull_request" doc:"open a pull request at GitHub, or a merge request at GitLab, on the branch ref"`
	Provider    string `key:"provider" enum:"github|gitlab" doc:"the kind of the server, if its host is not github.com or gitlab.com"`
}

// CheckoutOf returns the checkout of a job, or nil if its runs use the agent's workdir.
func (c *Config) CheckoutOf(j *Job) *Checkout {
	if j.Checkout != nil {
		return j.Checkout
	}
	if a := c.Agent(j.Agent); a != nil {
		return a.Checkout
	}
	return nil
}

// Spec converts the checkout to the options of the runner. It returns nil for nil.
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
	Path string
}

// Checkouts returns all checkouts, those of agents first.
func Checkouts(c *Config) (out []placedCheckout) {
	for path, a := range Each("agents", c.Agents) {
		if a.Checkout != nil {
			out = append(out, placedCheckout{a.Checkout, path + ".checkout"})
		}
	}
	for path, j := range Each("jobs", c.Jobs) {
		if j.Checkout != nil {
			out = append(out, placedCheckout{j.Checkout, path + ".checkout"})
		}
	}
	return out
}
