package pool

import (
	"errors"
	"fmt"
	"strings"

	"rouse/agentdb/lineage"
	"rouse/internal/storage/dbfile"
	"rouse/internal/storage/sqlite"
)

// QuarantinedError is the error for a database that cannot be used until its owner acts.
type QuarantinedError struct {
	Agent      string
	Reason     string
	LastBackup string // name of the newest backup, or ""
	// UnknownRuns is true if the database is intact but the ledger does not know its runs. The
	// owner can accept such a database.
	UnknownRuns bool
	err         error
}

func (e *QuarantinedError) Error() string {
	return fmt.Sprintf("the database of agent %s cannot be used: %s. It was left as it is. %s", e.Agent, e.Reason, e.Remedy())
}

// Remedy returns the commands with which the owner can resolve the error.
func (e *QuarantinedError) Remedy() string {
	if e.UnknownRuns {
		return fmt.Sprintf("If the ledger is not the right one, stop rouse and put back the one that knows these runs. To go on with the one that is there: rouse db %s accept; what was written so far stays, and no undo reaches it", e.Agent)
	}

	var b strings.Builder
	if dbfile.Acceptable(e.Reason) {
		fmt.Fprintf(&b, "If a program of yours changed it: rouse db %s accept. ", e.Agent)
	}

	if e.LastBackup != "" {
		fmt.Fprintf(&b, "To go on from the last backup (%s), without what was written later: rouse db %s restore last. ", e.LastBackup, e.Agent)
	} else {
		fmt.Fprintf(&b, "It has no backup in its folder; from one that is elsewhere: rouse db %s restore FILE. ", e.Agent)
	}

	fmt.Fprintf(&b, "To begin with an empty one: rouse db %s reset", e.Agent)
	return b.String()
}

func (e *QuarantinedError) Unwrap() error { return e.err }

// recordUnusable returns the error for an unusable database and stores it for Quarantined.
func (p *Pool) recordUnusable(agent string, err error) error {
	err = p.describe(agent, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	// Do not store the error during a replacement: it does not apply to the new file.
	if _, replaced := p.exclusive[strings.ToLower(agent)]; !replaced && errors.As(err, new(*QuarantinedError)) {
		p.damaged[strings.ToLower(agent)] = err
	}
	return err
}

// describe adds the agent and the remedy to an error about a database.
func (p *Pool) describe(agent string, err error) error {
	var bad *sqlite.CorruptError
	var unknown *lineage.UnknownRunsError
	switch {
	case err == nil, errors.As(err, new(*QuarantinedError)):
		return err
	case errors.As(err, &unknown):
		return p.unknownRuns(agent, unknown)
	case !errors.As(err, &bad):
		return fmt.Errorf("the database of agent %s: %w", agent, err)
	}

	e := &QuarantinedError{Agent: agent, Reason: bad.Reason, err: err}
	if kept, err := dbfile.Backups(p.path(agent)); err == nil && len(kept) > 0 {
		e.LastBackup = kept[0].Name
	}

	return e
}

// Quarantined returns the reason why an agent's database cannot be used now, or nil if no problem
// is known. It does not open the file and reads the marker only once, because it is called before
// every run.
func (p *Pool) Quarantined(agent string) error {
	if checkAgent(agent) != nil {
		return nil
	}
	if known, err := p.knownState(strings.ToLower(agent)); known {
		return p.describe(agent, p.ifHere(agent, err))
	}

	err := p.describe(agent, p.ifHere(agent, dbfile.QuickInspect(p.path(agent))))
	p.mu.Lock()
	defer p.mu.Unlock()

	// If another caller has opened the file meanwhile, its result is more recent.
	if p.entries[strings.ToLower(agent)] == nil {
		p.damaged[strings.ToLower(agent)] = err
	}

	return err
}

// knownState returns the state of a database that the pool knows without reading a file.
func (p *Pool) knownState(key string) (known bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if _, taken := p.exclusive[key]; taken {
		return true, errReplacing
	}
	if s := p.entries[key]; s != nil && s.opened() {
		return true, s.fault()
	}

	// A database that is being opened counts as usable until opening ends.
	err, seen := p.damaged[key]
	return seen || p.entries[key] != nil, err
}

var errReplacing = errors.New("it is being replaced")
