package checkout

import "time"

// Options is the checkout section of a job or an agent. Each run gets a private clone of Repo as its workdir.
type Options struct {
	Repo, Ref string
	Branch    string // a template of BranchNames
	Keep      time.Duration
	Push      *PushOptions // what happens after success; nil leaves the branch in Repo
}

// PushOptions sends the branch of a successful run to a server.
type PushOptions struct {
	Remote      string // name of a remote of the owner's repository
	Token       string
	PullRequest bool
	Provider    string // github or gitlab; "" is told by the host of the remote
}

// BranchNames returns the names for the template of checkout.branch. Only the host decides their values.
func BranchNames() []string { return []string{"Job", "Agent", "Run"} }
