package config

// private is what of an agent's own places is for its owner alone.
type private struct {
	Workdir  *bool `key:"workdir" unset:"true where the agent has both untrusted input and a way out" say:"a run that reads in the workdir holds private data (B)"`
	Database *bool `key:"database" unset:"as workdir" say:"a run that reads rows of the database holds private data (B)"`

	// What holds in the end, once all agents and jobs are known.
	folders  []string
	database bool
}

// PrivatePlaces are the folders that an agent can reach in which everything is private, and whether its
// database is: by what is written, by the other agents whose workdirs they are, or by default (see warnTaints).
func (a *Agent) PrivatePlaces() (folders []string, database bool) {
	return a.Private.folders, a.Private.database
}

// privatePlaces decides what is private of each agent. Without a word of the owner that is what an agent keeps that has
// both untrusted input and a way out: whoever talks to it could have it sent.
func (c *checker) privatePlaces(reached map[*Agent]*reach) {
	isPrivate := func(said *bool, r *reach) bool {
		if said != nil {
			return *said
		}
		return len(r.sources[untrusted]) > 0 && len(r.sources[outward]) > 0
	}

	for a, r := range reached {
		a.Private.folders, a.Private.database = nil, On(a.Database.Enabled) && isPrivate(a.Private.Database, r)
		if isPrivate(a.Private.Workdir, r) {
			a.Private.folders = append(a.Private.folders, string(a.Workdir))
		}

		// What one owner says of a folder holds for whoever reads it.
		for i := range c.cfg.Agents { // a disabled one has left it there
			if o := &c.cfg.Agents[i]; o != a && o.Private.Workdir != nil && *o.Private.Workdir {
				a.Private.folders = append(a.Private.folders, string(o.Workdir))
			}
		}
	}
}
