package config

import (
	"time"

	"rouse/cmd/internal/replicate/target"
)

// minKeep is the shortest time that copies are kept: what is older than it is removed hourly.
const minKeep = time.Hour

// checkReplicate refuses a place for continuous copies that is none, and keys that nobody asks for.
func (c *checker) checkReplicate(r *Replicate) {
	if r == nil {
		return
	}
	if r.Keep > 0 && time.Duration(r.Keep) < minKeep {
		c.bad("replicate.keep", "must be 1h at least: what is older is looked for once in an hour")
	}
	if c.cfg.Shared() {
		c.bad("replicate", "copies a home whose ledger is a file of it; with engine.postgres leave it out, and have PostgreSQL archive its log (pg_basebackup, archive_command)")
		return
	}
	if r.To == "" || !c.hasNoProblem("replicate.to") {
		return
	}

	t, err := target.Parse(r.To)
	if err != nil {
		c.bad("replicate.to", "%v", err)
		return
	}
	c.checkPlace("replicate", t, r.AccessKey, r.SecretKey)
	if c.inHome(t.Folder) {
		c.bad("replicate.to", "lies in the home, which is what is copied; name a place on another disk")
	}
}
