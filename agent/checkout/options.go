package checkout

import "time"

// Options is the checkout section of a job or an agent. Each run gets a private clone of Repo as
// its working folder.
type Options struct {
	Repo, Ref string
	Branch    string // template, see BranchNames
	Keep      time.Duration
	Push      *PushOptions // if nil, the branch stays in Repo
}

// PushOptions configures the push of a successful run's branch.
type PushOptions struct {
	Remote      string // name of a remote of the owner's repository
	Token       string
	PullRequest bool
	Provider    string // github or gitlab; empty means by the host of the remote
}

// BranchNames returns the names available in the checkout.branch template. All their values come
// from the host.
func BranchNames() []string { return []string{"Job", "Agent", "Run"} }
