package config

// private is what of an agent's own places is for its owner alone.
type private struct {
	Workdir  *bool `key:"workdir" unset:"true if the agent has both untrusted input and a way out (also by a condition) other than reading from hosts granted by name" say:"a run that reads in the workdir holds private data (B)"`
	Database *bool `key:"database" unset:"false" say:"a run that reads rows of the database holds private data (B)"`

	// What holds in the end, once all agents and jobs are known.
	folders  []string
	database bool
}

// PrivatePlaces are the folders that an agent can reach in which everything is private, and whether its
// database is: by what is written, by the other agents whose workdirs they are, or by default (see warnTaints).
func (a *Agent) PrivatePlaces() (folders []string, database bool) {
	return a.Private.folders, a.Private.database
}

// privatePlaces decides which places of each agent are private. By default, the workdir is private if the agent has both
// untrusted input and a way to send data out, because untrusted content could make it send files. The database is not private
// by default, because its rows have the labels of the runs that wrote them.
func (c *checker) privatePlaces(reached map[*Agent]*reach) {
	for a, r := range reached {
		a.Private.folders, a.Private.database = nil, On(a.Database.Enabled) && a.Private.Database != nil && *a.Private.Database
		private := len(r.sources[untrusted]) > 0 && (len(r.sources[outward]) > r.onlyReads || c.sending[a])
		if said := a.Private.Workdir; said != nil {
			private = *said
		}
		if private {
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
